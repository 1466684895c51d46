"""Whether the labels of a container are its own, or those of the image that it was made from, and
whether its run goes on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from console.common.errors import EngineError
from console.common.text import one_line
from console.host import process
from console.recovery.rollback.context import RollbackContext
from console.runtime.engine_api import RawEngine
from console.runtime.spec import role_label


def labels_of_image(engine: RawEngine, image: str) -> Collection[str]:
    try:
        return engine.image_labels(image) if image else ()
    except EngineError:
        return ()


def is_of_image(context: RollbackContext, identity: str, labels: Collection[str]) -> bool:
    """Whether a container may have its role from its image (`docker commit` keeps the labels of
    what it was made from): then they do not say that a run of this site has started it."""
    if role_label() not in labels:
        return False
    context.report.note(
        "stop", f"container {identity[:12]} is left alone: its labels are those of its image, and "
        "no run has recorded it"
    )  # fmt: skip
    return True


def labels_by_command(context: RollbackContext, identity: str) -> Collection[str]:
    """The labels of a container's image, as the docker command tells; () where it does not."""
    form = "{{range $key, $value := .Config.Labels}}{{$key}}\n{{end}}"
    with contextlib.suppress(EngineError):
        image = context.command(["docker", "inspect", "-f", "{{.Image}}", identity]).strip()
        return context.command(["docker", "image", "inspect", "-f", form, image]).split("\n")
    return ()


def is_of_live_run(context: RollbackContext, identity: str, run: str) -> bool:
    """Whether the runner of the run that a container's label names is alive, and that run is
    another than this one: two consoles with directories of their own may have sites of one name."""
    runner = _runner_of(run) if run and run != context.plan.run_id else 0
    if runner:
        context.report.note(
            "stop", f"container {identity[:12]} is left alone: it is of run {one_line(run, 60)}, "
            f"whose runner, pid {runner}, is alive and is none of this console's runs"
        )  # fmt: skip
    return bool(runner)


def _runner_of(run: str) -> int:
    """The pid of a run's runner, by its command line; 0 where none of this user's or root's is."""
    for pid in process.pids():
        argv = process.argv(pid)
        at = argv.index("runner") + 1 if "runner" in argv else len(argv)
        its_runner = at < len(argv) and os.path.basename(argv[at]) == run
        if its_runner and process.user_of(pid) in (os.getuid(), 0):
            return pid
    return 0
