"""Faults of what is done on the host: kernels, kills, waits without an end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.checks.lint import commands, vocabulary
from console.checks.lint.rule import Facts, rule
from console.checks.lint.unit import Command, Hit, Kind, Severity, Unit, Where

_KERNEL = re.compile(r"linux-(?:image|headers|modules)(?:-unsigned)?-6\.1[2-9]")
_PGREP = re.compile(r"\bpgrep\b.*?\s(?:-\w*f\w*|--full)\b|\bps\b.*\|\s*grep\b")
_LONG = frozenset({"cmake", "make", "ninja", "cargo"})


@rule(
    "kernel-6.12-ppa", Severity.ERROR, "F-018 F-023 D-002",
    title="A kernel from outside for sched_ext",
    why="A 6.12 kernel of a PPA breaks the NVIDIA driver (no DKMS fixes), gets no security "
    "updates, and the machine that serves has to boot it. What is missing is a module of "
    "ktransformers, not the kernel's scheduler of that name.",
    fix="stay on the distribution's kernel; SGLang instead of balance_serve",
)  # fmt: skip
def kernel(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if command.name in ("add-apt-repository", "apt-add-repository"):
            for word in command.args:
                if re.fullmatch(r"ppa:[\w.+-]+/(?:sched-ext\S*|mainline)", word.text):
                    yield Hit(word.place, word.text)
        for word in vocabulary.packages(command):
            if _KERNEL.match(word.text):
                yield Hit(word.place, word.text)


@rule(
    "pkill-f-as-rollback", Severity.WARNING, "D-003",
    title="Processes are ended by a pattern",
    why="`pkill -f sglang` ends whatever has that word in its command line: the editor, the log "
    "that is followed, a second trial, the baseline. It waits for no memory to come back.",
    fix="a service with `process:`, which is stopped by its pid; `omni-console rollback`",
)  # fmt: skip
def by_pattern(unit: Unit, facts: Facts) -> Iterator[Hit]:
    grave = Severity.ERROR if unit.source.kind is Kind.PLAYBOOK else None
    for at, command in enumerate(unit.commands):
        if command.where is not Where.HOST or command.has("-0"):
            continue
        if command.name == "killall" or _is_pkill_f(command) or _of_pattern(unit, at):
            yield Hit(command.place, command.line, grave)


def _is_pkill_f(command: Command) -> bool:
    flags = "".join(w.text[1:] for w in command.args if re.fullmatch(r"-[a-zA-Z0-9]+", w.text))
    return command.name == "pkill" and ("f" in flags or command.has("--full"))


def _of_pattern(unit: Unit, at: int) -> bool:
    """A `kill` of what `pgrep -f` or `ps | grep` found: in its own words, or from a pipe."""
    kill = unit.commands[at]
    if kill.name != "kill":
        return False
    if "xargs" not in kill.wrappers:
        return any(_PGREP.search(word.text) for word in kill.args)
    before = [one for one in unit.commands[max(0, at - 4) : at] if one.script == kill.script]
    found = any(_PGREP.search(one.line) for one in before)
    return found or {"ps", "grep"} <= {one.name for one in before}


@rule(
    "missing-timeout", Severity.WARNING, "F-019 D-004",
    title="Something that may hang or takes long, without a timeout of its own",
    why="A request to a server that hangs holds a test up for ever: an hour becomes a night. A "
    "build or a download in a playbook is ended after ten minutes, the default.",
    fix="curl --max-time SECONDS; `timeout: 2h` at the step",
)  # fmt: skip
def no_timeout(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if command.name == "curl" and command.looped and not _bounded(command) and _asks(command):
            yield Hit(command.place, "curl to an engine in a loop, without --max-time")
    if unit.source.kind is Kind.PLAYBOOK:
        yield from _steps(unit)


def _asks(command: Command) -> bool:
    return re.search(r"/v1/|completions?\b|/generate\b|/infill\b", command.line) is not None


def _bounded(command: Command) -> bool:
    short = any(re.fullmatch(r"-[a-zA-Z]*m\d*", word.text) for word in command.args)
    return short or command.has("--max-time") or "timeout" in command.wrappers


def _steps(unit: Unit) -> Iterator[Hit]:
    for step in unit.steps:
        if step.timed or step.kind not in ("run", "script"):
            continue
        inside = (one for one in unit.commands if one.scope == step.id)
        long = next((one for one in inside if _takes_long(one)), None)
        if long is not None:
            yield Hit(step.place, f"step {step.id} runs {long.line[:60]} and names no timeout")


def _takes_long(command: Command) -> bool:
    texts = [word.text for word in command.args]
    call = commands.engine_call(command.words)
    return (
        (command.name == "cmake" and "--build" in texts)
        or (command.name in _LONG - {"cmake"} and "-h" not in texts)
        or (call is not None and call.verb == "build")
        or bool(vocabulary.hub_repo(command))
        or any(
            re.match(r"(torch|vllm|sglang)\b", word.text) for word in vocabulary.pip_words(command)
        )
        or "convert_cpu_weights" in command.line
    )
