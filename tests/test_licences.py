"""Every call in the program that could end a process, a container or a unit has a licence.

What ends its own child, which the same object or function has started, is listed by name. The
sentinel's kill has no time for more than its own rules, which `recovery.guard.kill.targets` has.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = ("console", "screens", "widgets")

SIGNALS = re.compile(
    r"(^|\.)(killpg|pidfd_send_signal|send_signal|terminate)$|^(process|child)\.suspend$|^os\.kill$|\.kill$"
    r"|^process\.send$|^(process\.)?stop_group$|(^|\.)stop_container$|^cgroup\.end$"
    r"|^licence\.(send|stop_group|end_cgroup)$|^end_cgroup$|^kill_by_helper$"
)
STOPS = re.compile(
    r"(engine|api|raw|units|container|driver\(.*\)|driver|docker)\.(stop|restart|pause|remove|kill)$"
)
ENDING = {"stop", "kill", "restart", "rm", "down", "pause"}
CLIENTS = {"docker", "podman", "systemctl", "loginctl"}

OWN = {
    "console/config/lessons/use.py": "its own child, a recheck command",
    "console/fleet/line.py": "its own child, ssh",
    "console/frontends/tui/terminal/guest.py": "its own child, a program in the terminal; itself",
    "console/frontends/web/terminal.py": "its own child, the console on a pseudo terminal",
    "console/host/children.py": "its own children",
    "console/host/sampler.py": "its own child, the NVML reader",
    "console/models/hub/download.py": "its own child, a download",
    "console/recovery/guard/kill/killer.py": "its own child, on which a kill is rehearsed",
    "console/recovery/guard/kill/mrelease.py": "its own child; descriptors that the sentinel sends",
    "console/recovery/rollback/command.py": "its own child, the sealed copy",
    "console/rehearsal/inside/command.py": "its own child, inside a stand-in's container",
    "console/rehearsal/speed.py": "the stand-in baseline, by the name that the rehearsal made",
    "console/runner/executors/command.py": "its own child, the command of a step",
    "console/runner/fault.py": "itself, at a fault point",
    "console/runner/launch.py": "its own child, and the run's own unit",
    "console/runtime/docker/exec.py": "the command that it started in a container, by its tree",
}
"""Where something ends what it has started itself, and what that is."""
RULES = {
    "console/host/licence.py": "asks before it acts",
    "console/host/process.py": "the acts of the licence",
    "console/recovery/guard/breach.py": "the sentinel's targets",
    "console/recovery/guard/loop.py": "the sentinel's targets",
    "console/recovery/guard/kill/signals.py": "the sentinel's targets",
    "console/recovery/guard/kill/root_helper.py": "a full id that root has not protected",
    "console/runtime/docker/engine_state.py": "takes a licence",
}
"""Where the rules are kept."""


def ends(node: ast.AST) -> bool:
    """Whether a node is a call that could end something, or the words of a command that could."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        words = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)
                 and isinstance(one.value, str)}  # fmt: skip
        if called in ("_call", "_of"):  # the calls of systemctl and of the engine's API
            return bool({"stop", "kill", "restart"} & words)
        return bool(SIGNALS.search(called) or STOPS.search(called))
    if isinstance(node, ast.List | ast.Tuple):
        words = [one.value for one in node.elts if isinstance(one, ast.Constant)]
        return bool(CLIENTS & {*map(str, words[:1])} and ENDING & {*map(str, words)})
    return False


def is_licensed(node: ast.AST, function: ast.AST | None) -> bool:
    """Whether a call passes a licence on, or its function was given one."""
    if isinstance(node, ast.Call):
        given = " ".join(ast.unparse(one) for one in node.args[:2])
        if re.search(r"\b(licence|Licence|why|own|ours)\b|_licence\(", given):
            return True
    if isinstance(function, ast.FunctionDef):
        names = [one.annotation for one in function.args.args if one.annotation is not None]
        return any("Licence" in ast.unparse(one) for one in names)
    return False


def calls(tree: ast.AST, function: ast.AST | None = None) -> Iterator[tuple[ast.AST, bool]]:
    """Each node that could end something, and whether it has a licence."""
    for child in ast.iter_child_nodes(tree):
        inner = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not (
            isinstance(function, ast.FunctionDef) and is_licensed(ast.Pass(), function)
        ):
            inner = child
        if ends(child):
            yield child, is_licensed(child, inner)
        yield from calls(child, inner)


def test_nothing_ends_without_a_licence() -> None:
    bare, exempt = [], set()
    for path in sorted(path for room in PROGRAM for path in (ROOT / room).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node, licensed in calls(ast.parse(path.read_text("utf-8"))):
            if name in OWN or name in RULES:
                exempt.add(name)
            elif not licensed:
                bare.append(f"{name}:{getattr(node, 'lineno', 0)} {ast.unparse(node)[:80]}")
    assert bare == []
    assert exempt == OWN.keys() | RULES.keys(), "a place that ends nothing any more is taken off"


ASKS = (
    "console/fleet",
    "console/watch",
    "console/frontends/web",
    "console/frontends/tui",
    "screens",
    "console/runner/slurm",
    "console/notify",
)
"""What asks for a rollback, here or on another host, and ends nothing itself."""


def test_what_asks_for_a_rollback_ends_nothing_itself() -> None:
    """The watch, the fleet, web pages, F12 and Slurm's holder: whom a rollback leaves alone, they
    leave alone."""
    bare = [
        str(path.relative_to(ROOT))
        for room in ASKS for path in sorted((ROOT / room).rglob("*.py"))
        if any(True for _ in calls(ast.parse(path.read_text("utf-8"))))
    ]  # fmt: skip
    assert set(bare) <= OWN.keys(), "only children that they have started themselves"


def test_the_test_sees_what_could_end_something() -> None:
    for code in (
        "os.kill(pid, 9)", "os.killpg(pid, 9)", "signal.pidfd_send_signal(fd, 9)",
        "child.send_signal(9)", "child.terminate()", "child.kill()", "process.send(1, 2, 9)",
        "process.stop_group(1, 2, grace_s=0)", "self.context.engine.stop('x', 1)",
        "client.api.kill('x')", "container.remove()", "units.stop(unit, 1)",
        "self.driver(name).stop(handle, 1)", "['docker', 'stop', 'x']",
        "['systemctl', '--user', 'restart', 'x']",
    ):  # fmt: skip
        found = list(calls(ast.parse(code)))
        assert [licensed for _, licensed in found] == [False], code
    assert [one for _, one in calls(ast.parse("process.send(why, 1, 2, 9)"))] == [True]
