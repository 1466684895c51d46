"""Whether `adopt` would take a running server over: the judge of that command, and of every line
that advises it. Nothing is started, stopped or signalled here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from console.common import redact
from console.common.argv import may_have_started, option_of, started
from console.common.files import open_regular
from console.common.options.engines import engine_of
from console.common.text import one_line
from console.host import licence, process
from console.host.ports import answering, held_by_others, listeners
from console.host.process import ProcessSpec
from console.runtime.discovery import processes
from console.runtime.discovery.processes import Running
from console.runtime.discovery.servers import OWN_PORT, shared_by, unfit_process

LINE_SIZE = 256
"""How many bytes of a script's first line the kernel reads."""
CORRECT = "correct the site file"
AGAIN = f"{CORRECT}, or let `omni-console init --force` write it from what runs"
DIFFERS = "it is not what the site file starts: "
STARTED = (
    "make it a service of its own, a systemd unit or a container, that is stopped and started with "
    "all of its own, and let omni-console init --force write that into the site file"
)
ADOPT = "omni-console adopt takes it over, if it is meant as the baseline"
NOT_OURS = "ps -o pid,user,lstart,args -p PID shows whose it is; one of the two needs another port"
"""What to do about a stranger at the baseline's address: nothing of the console's ends it."""
LIST = "omni-console init --list shows what serves here"


def refusal(runs: ProcessSpec, running: Running, url: str) -> tuple[str, str]:
    """Why a process cannot be taken over as the baseline that `runs` starts and that answers at
    `url`, and what to do, in clean words; two empty texts if it can."""
    why, hint = unfit_process(running)
    why, hint = (why, hint) if why else _of_a_unit(running)
    if not why and (mismatch := difference(runs, running)):
        why, hint = f"{DIFFERS}{mismatch}", _correction(running)
    if not why:
        why, hint = with_others(running.pid, running.start)
    return (why, hint) if why else _elsewhere(running, url)


def _correction(running: Running) -> str:
    """How the site file is made to fit: `init` writes no secret, and nothing for a proxy."""
    if redact.argv(running.argv) != [*running.argv]:
        return f"{CORRECT}: write its secrets into process.argv, which init never does"
    return AGAIN if engine_of(running.argv) is not None else CORRECT


def first_at(url: str) -> list[int]:
    """The processes at an address of this machine that none of the others there has started."""
    pids = {listener.pid for listener in listeners(url, here=True)}
    return sorted(pid for pid in pids if not (process.ancestry(pid) - {pid}) & pids)


def advice(runs: object, url: str, pid: int = 0) -> str:
    """What the operator can do about a server that may be the baseline and that nothing records as
    such: the one that answers at `url`, or the one with this pid. `runs` is what starts the
    baseline. No command is named that would refuse. Never raises."""
    try:
        return _advice(runs, url, pid)
    except Exception:  # a word of advice ends no rollback
        return LIST


def _advice(runs: object, url: str, pid: int) -> str:
    pids = [pid] if pid else first_at(url)
    spec = runs if isinstance(runs, ProcessSpec) else None
    if len(pids) > 1:
        return _of_several(pids, spec, url)
    running = processes.read(pids[0]) if pids else None
    if running is None:
        return LIST
    if spec is not None and is_stranger(spec, running.pid) and not unfit_process(running)[0]:
        return NOT_OURS.replace("PID", str(running.pid))
    why, hint = refusal(spec, running, url) if spec is not None else unfit_process(running)
    if why:
        return f"omni-console adopt would refuse it, as {why}" + (f": {hint}" if hint else "")
    if spec is None:
        return (
            f"if it is meant as the baseline, omni-console init --pick {running.pid} --force "
            "writes a site file for it"
        )
    return ADOPT


def is_stranger(spec: ProcessSpec, pid: int) -> bool:
    """Whether a process can be no server that was started by hand as the site file's: it is of
    another program."""
    lines = process.command_lines(pid)
    return bool(lines) and not any(may_have_started(spec.argv, line) for line in lines)


def able(pids: Sequence[int], spec: ProcessSpec, url: str) -> list[int]:
    """Which of the processes at an address `adopt` would take over."""
    read = [running for pid in pids if (running := processes.read(pid)) is not None]
    return [candidate.pid for candidate in read if not refusal(spec, candidate, url)[0]]


def shared(pids: Sequence[int]) -> str:
    """That processes share one address, of which none can be the baseline, and what to do."""
    return f"{shared_by(pids)}: {OWN_PORT}"


def _of_several(pids: Sequence[int], spec: ProcessSpec | None, url: str) -> str:
    fit = able(pids, spec, url) if spec is not None else []
    if fit:
        return f"omni-console adopt PID names one of {', '.join(map(str, fit))}"
    return shared(pids)


def program_of(spec: ProcessSpec) -> str:
    """The absolute path at which a program would be found now; "" if it is not found."""
    first = spec.argv[0]
    if "/" in first:
        return os.path.abspath(os.path.join(spec.cwd, first))
    program = shutil.which(first, path=dict(spec.env).get("PATH"))
    return os.path.abspath(program) if program else ""


def difference(runs: ProcessSpec, running: Running) -> str:
    """Where a process is not what the site file would start, in clean words; "" if it is."""
    words = words_told(runs, running)
    if words is None:
        return f"its program is {one_line(running.program or ' '.join(started(running.argv)), 120)}"
    before = len(running.argv) - len(words)
    for at, (ours, theirs) in enumerate(zip(runs.argv[1:], words, strict=False), before):
        if ours != theirs:
            return _other_word(running.argv, at)
    count = len(words) + 1
    if len(runs.argv) != count:
        return f"its command line has {count} words, and the site file's {len(runs.argv)}"
    for name, value in runs.env if running.environ is not None else ():
        if running.environ is not None and running.environ.get(name) != value:
            return f"the variable {one_line(name, 60)} has another value"
    if os.path.realpath(runs.cwd) != os.path.realpath(running.cwd) and _has_relative(running):
        return f"its directory is {one_line(running.cwd, 120)}, and its command line depends on it"
    return ""


def words_told(runs: ProcessSpec, running: Running) -> tuple[str, ...] | None:
    """The words behind the program in the command line of a process; None if it does not run the
    program that `runs` names. Of a `#!` script (`vllm`) the kernel runs the interpreter: its name
    and the option of that line then stand before the script's path."""
    program, interpreter = os.path.realpath(program_of(runs)), os.path.realpath(running.program)
    if program == interpreter:
        return running.argv[1:]
    head, argv = _interpreter_of(program), running.argv
    if not head or len(argv) <= len(head):
        return None
    is_other = "/" in head[0] and os.path.realpath(head[0]) != interpreter
    if is_other or os.path.basename(argv[0]) != os.path.basename(head[0]):
        return None
    script = os.path.realpath(os.path.join(running.cwd, argv[len(head)]))
    return argv[len(head) + 1 :] if argv[1 : len(head)] == head[1:] and script == program else None


def _interpreter_of(program: str) -> tuple[str, ...]:
    """What the first line of a `#!` script has run it: the interpreter, a path or for `env` a name,
    and its options; () for any other file. The kernel passes all behind the path as one word."""
    try:
        with open_regular(Path(program)) as stream:
            line = os.fsdecode(stream.readline(LINE_SIZE))
    except OSError:
        return ()
    path, _, option = line.removeprefix("#!").strip().partition(" ")
    option = option.strip()
    if not line.startswith("#!") or not path:
        return ()
    if os.path.basename(path) != "env":
        return (path, option) if option else (path,)
    split = option.removeprefix("-S ")
    return tuple(split.split()) if split != option else (option,) if option else ()


def _other_word(argv: Sequence[str], at: int) -> str:
    """Which word of a foreign command line is another one. Of what it holds nothing is said, as any
    word may be a secret."""
    option = option_of(argv, at)
    if option and argv[at] != option:
        return f"it has another value of {option} (word {at + 1} of its command line)"
    if option:
        return f"word {at + 1} of its command line is {option}"
    return f"word {at + 1} of its command line is another one"


def _has_relative(running: Running) -> bool:
    """Whether a word of its command line is a path in its directory."""
    words = (word.rpartition("=")[2] for word in running.argv[1:])
    return any(
        os.path.exists(os.path.join(running.cwd, word))
        for word in words if word and not word.startswith("/")
    )  # fmt: skip


def _of_a_unit(running: Running) -> tuple[str, str]:
    if running.unit is None:
        return "", ""
    what = f"{running.unit.words} runs it, and its systemd may start it again when a run stops it"
    return what, "write `unit:` into the site file instead of `process:`: omni-console init --force"


def with_others(pid: int, start: int) -> tuple[str, str]:
    """Which other servers are in the process group of one, in words, and a hint; two empty texts
    if there are none. Signals go to the group, and nothing would start the others again."""
    other_servers = licence.other_servers(pid, start)
    if not other_servers:
        return "", ""
    others = [f"pid {other} at port {port}" for other, port in other_servers]
    why = f"another server is in its process group: {' and '.join(others)}"
    if all(pid in process.ancestry(other) for other, _ in other_servers):
        return f"{why}, which it has started", STARTED
    return why, "start each in a session of its own (setsid), or as a service of its own"


def _elsewhere(running: Running, url: str) -> tuple[str, str]:
    """Why a process and its own do not listen at an address, or not alone, and what to do: whoever
    shares it gets a part of the requests. Two empty texts if they do."""
    sockets = answering(url, here=True)
    holders = {holder.pid for socket in sockets for holder in socket.holders}
    own = {member.pid for member in process.members(running.pid, running.start)}
    own |= {running.pid, *processes.outside(running)}
    if not holders & own:
        return (
            f"it does not listen at {url}",
            "wait until it does, or correct `url` in the site file",
        )
    other = next(held_by_others(sockets, own), None)
    if other is not None:
        words = f"pid {other.pid}, {other.words}, answers at {url}, too"
        return words, "give one of the two another port"
    return "", ""
