"""Whether a server that no record names is where the baseline would be started.

A second engine would be loaded beside it, and could not answer there. Whether the first one serves,
loads, refuses or hangs, nothing shows that it may be ended: somebody may have started it by hand,
as the baseline.
"""

from __future__ import annotations

import os

from console.host import process
from console.host.memory import container_of
from console.host.ports import foreign, held_words, strangers
from console.host.process import BASELINE_COOKIE
from console.recovery.rollback.observe import Observed


def held(baseline: Observed) -> str:
    """Who has the baseline's address, or runs its command line, although no record names it as the
    baseline, and what to do about it; "" if nobody is seen to. What runs behind the engine's proxy
    may be what a start script is about to replace: that is nobody.
    """
    url, own = baseline.plan.url, baseline.pids()
    own |= {pid for pid, _ in process.by_cookie(BASELINE_COOKIE, baseline.context.mark)}
    if any(other.is_engine_proxy for other in strangers(url, own)):
        return ""
    hidden = not own and foreign(url, here=True, published=True) is not None
    words = held_words(url, own) or ("another user's server holds its port" if hidden else "")
    if not words and not own and (pid := _started_by_hand(baseline)):
        words = f"pid {pid} has the site file's command line, and does not listen at its address"
    if not words:
        return ""
    return (
        f"{words}: nothing is started beside it; `omni-console adopt` takes it over if it is the "
        "baseline"
    )


def _started_by_hand(baseline: Observed) -> int:
    """The pid of a process of this user that has the very arguments of a process baseline and that
    no console has started; 0 if there is none. Some engines load before they listen. An
    interpreter may stand before the program, and its path may be another one."""
    spec, mine = baseline.plan.process, container_of(os.getpid())
    if baseline.plan.kind != "process" or spec is None:
        return 0
    for pid in process.pids():
        if not _is_like(process.argv(pid), spec.argv) or process.user_of(pid) != os.getuid():
            continue
        if not process.has_cookie(pid) and container_of(pid) == mine:
            return pid
    return 0


def _is_like(argv: tuple[str, ...], spec: tuple[str, ...]) -> bool:
    """Whether a command line is that of a specification, or ends in it: `python3 /opt/bin/vllm …`
    is what the kernel shows of a script `/opt/bin/vllm …`, and `./llama-server …` is the same."""
    if argv == spec:
        return True
    program, arguments = os.path.basename(spec[0]), spec[1:]
    begun = argv[: len(argv) - len(arguments)]
    same = len(arguments) > 1 and argv[len(begun) :] == arguments
    return same and program in map(os.path.basename, begun)
