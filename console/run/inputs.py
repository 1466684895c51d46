"""A retry may change inputs: checked like a new file, recorded, and sealed anew."""

from __future__ import annotations

from typing import Any

from console.errors import ConsoleError
from console.playbook.load import load_playbook
from console.playbook.model import Playbook
from console.rollback import plan as sealed
from console.run import header
from console.run.context import Context
from console.run.plan import make_plan
from console.run.seal import seal
from console.text import one_line


def input_error(context: Context, changes: dict[str, Any]) -> str:
    """Why these inputs cannot be taken, or "" when they can."""
    try:
        _load(context, changes)
    except ConsoleError as error:
        return one_line(str(error), 300)
    return ""


def change_inputs(context: Context, changes: dict[str, Any]) -> None:
    """Go on with other inputs; what runs under a specification that changed is stopped."""
    if not changes:
        return
    fresh = _load(context, changes)
    for name, value in changes.items():
        context.record("input", name=one_line(str(name)), value=one_line(str(value)))
    context.meta.inputs.update(_texts(changes))
    context.run.write_meta(context.meta)
    context.plan = make_plan(fresh, context.plan.site, context.view.restore_s)
    context.record("targets", targets=header.targets(context.plan))
    context.fleet.change(context.plan.services)
    seal(context, sealed.read(context.run.sealed).baseline)


def _texts(changes: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in changes.items()}


def _load(context: Context, changes: dict[str, Any]) -> Playbook:
    return load_playbook(
        context.run.playbook, {**context.meta.inputs, **_texts(changes)},
        base=context.plan.playbook.base,
        site_services=frozenset(context.plan.site.model.services),
    )  # fmt: skip
