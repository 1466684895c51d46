"""Whether the labels of a container are its own, or those of the image that it was made from."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from console.common.errors import EngineError
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
