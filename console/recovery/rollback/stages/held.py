"""Whether a server that no record names is where the baseline would be started.

A second engine would be loaded beside it, and could not answer there. Whether the first one serves,
loads, refuses or hangs, nothing shows that it may be ended: somebody may have started it by hand,
as the baseline.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from console.common.argv import quoted
from console.common.options.engines import OTHER, Engine, engine_of
from console.common.options.engines import port_of as port_of_engine
from console.host import process
from console.host.ports import (
    doors,
    foreign,
    held_words,
    is_local,
    port_of,
    ports_of,
    shares_ports,
    strangers,
)
from console.host.process import ProcessSpec
from console.recovery.rollback.observe import Observed

INTERPRETER = re.compile(r"(?:ba|da|k|z)?sh|env|(?:python|pypy|perl|ruby|node)[\d.]*")
"""Programs that the kernel shows before the script that they run."""
FILE = re.compile(r"^--?[\w-]*config|\.(?:ya?ml|json|toml|ini|conf|cfg|env)$", re.IGNORECASE)
"""Words of a command line that may name a file with a port."""


def held(baseline: Observed) -> str:
    """Who has the baseline's address, or runs its command line, although no record names it as the
    baseline, and what to do about it; "" if nobody is seen to. What runs behind the engine's proxy
    may be what a start script is about to replace: that is nobody.
    """
    url, own = baseline.plan.url, baseline.pids() | baseline.context.marked()
    behind = baseline.plan.kind != "container"  # that one would be somebody else's container
    if behind and any(other.is_engine_proxy for other in strangers(url, own)):
        return ""
    hidden = not own and foreign(url, here=True, published=True) is not None
    words = held_words(url, own) or ("another user's server holds its port" if hidden else "")
    pid = next((other.pid for other in strangers(url, own)), 0)
    if not words and not own:
        words, pid = _started_by_hand(baseline)
    if not words:
        return ""
    from console.runtime.discovery import adoption  # late: no rollback waits for it

    can_be_done = adoption.advice(baseline.plan.process, url, pid)
    return f"{words}: nothing is started beside it; {can_be_done}"


def _started_by_hand(baseline: Observed) -> tuple[str, int]:
    """What process of this user or root, which no console has started, may become the baseline, in
    words, and its pid; "" and 0 for none. Some engines load for minutes before they listen. One is
    known by the command line of a process baseline, or as a model server that is told to listen at
    the baseline's port: a start script may have become it, and by hand it may get other words.
    """
    plan = baseline.plan
    spec, port = plan.process if plan.kind == "process" else None, port_of(plan.url)
    here, own = is_local(plan.url), engine_of(spec.argv) if spec is not None else None
    for pid in process.pids():
        argv = process.argv(pid)
        like = spec is not None and _is_like(pid, argv, spec)
        asks = _asks_for(port, pid, argv, own) if here and not like else ""
        if not like and not asks:
            continue
        if process.user_of(pid) not in (os.getuid(), 0) or process.has_cookie(pid):
            continue
        if shares_ports(pid):
            does = asks or "has the site file's command line"
            words = f"pid {pid}, {quoted(argv, 120)}, {does}, and does not listen at its address"
            return words, pid
    return "", 0


def _is_like(pid: int, argv: tuple[str, ...], spec: ProcessSpec) -> bool:
    """Whether a process' command line is that of a specification, or ends in it: `python3
    /opt/bin/vllm …` is what the kernel shows of a script `/opt/bin/vllm …`, and `./llama-server …`
    is the same. Few words may be anybody's; then the very file has to be what is interpreted."""
    if argv == spec.argv:
        return True
    program, arguments = spec.argv[0], spec.argv[1:]
    begun = argv[: len(argv) - len(arguments)]
    if not begun or argv[len(begun) :] != arguments:
        return False
    if len(arguments) > 1:
        return os.path.basename(program) in map(os.path.basename, begun)
    interpreted = len(begun) == 1 or INTERPRETER.fullmatch(os.path.basename(begun[0]))
    return bool(interpreted) and _file(f"/proc/{pid}/cwd", begun[-1]) == _file(spec.cwd, program)


def _file(directory: str, word: str) -> str:
    """The file that a word of a command line names; what no directory names stays a word."""
    return os.path.realpath(os.path.join(directory, word)) if "/" in word else word


def _asks_for(port: int, pid: int, argv: tuple[str, ...], own: Engine | None) -> str:
    """Whether a process is a model server that is told to listen at a port, and does not yet, in
    words. One of the baseline's `own` engine that is told none and listens nowhere yet may have it
    from a file that it reads. Whatever names a file with weights is none without a port: it may be
    one that copies them, or this console.
    """
    engine = engine_of(argv)
    if engine is None:
        return ""
    environ, is_seen = process.environ(pid), os.access(f"/proc/{pid}/fd", os.R_OK)
    # of another user's process it is only seen that this user listens there
    user = process.user_of(pid)
    listens = ports_of([pid]) if is_seen else [door.port for door in doors() if door.uid == user]
    engine_port = port_of_engine(replace(engine, port=0), argv, environ)
    if engine == OTHER and not engine_port:
        return ""
    if (engine_port or engine.port) == port and port not in listens:
        return f"is to listen at port {port}"
    may_read = is_seen and engine == own and not engine_port and not listens
    if may_read and any(FILE.search(word) for word in argv[1:]):
        return f"may be told by a file to listen at port {port}"
    return ""
