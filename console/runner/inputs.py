"""A retry may change inputs: checked like a new file, recorded, and sealed anew."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from console.common.errors import ConsoleError
from console.common.text import one_line
from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import Playbook
from console.recovery.rollback import sealed_plan as sealed
from console.runner.context import Context
from console.runner.prepare import header
from console.runner.prepare.plan import Plan, make_plan
from console.runner.prepare.rehearsed import rewriter
from console.runner.prepare.seal import seal


def input_error(context: Context, changes: dict[str, Any], why: str) -> str:
    """Why these inputs cannot be taken, or "" when they can.

    One that moves a gate's threshold needs a reason: it overrides what was to be decided.
    """
    try:
        fresh = make_plan(_load(context, changes), context.plan.site, context.view.restore_s)
    except ConsoleError as error:
        return one_line(str(error), 300)
    moved = moved_thresholds(context.plan, fresh)
    if moved and not why.strip():
        gate, words = moved[0]
        return f"this moves what gate {gate} asks for ({words}): it needs a reason"
    return ""


def moved_thresholds(before: Plan, after: Plan) -> list[tuple[str, str]]:
    """(gate, `METRIC >= 500 tok/s -> >= 5 tok/s`) for every criterion that is not what it was."""
    found = []
    nothing: dict[str, Any] = {}
    pairs = zip_longest(header.targets(before), header.targets(after), fillvalue=nothing)
    for was, now in pairs:
        if was != now:
            known = now or was
            words = f"{known['metric']} {_asked(was)} -> {_asked(now)}"
            found.append((str(known["gate"]), one_line(words, 300)))
    return found


def _asked(target: dict[str, Any]) -> str:
    sides = [("", "go"), ("no-go ", "no_go")]
    words = [f"{head}{target[key]}" for head, key in sides if target.get(key)]
    if (target.get("min_samples") or 1) > 1:
        words.append(f"of {target['min_samples']}")
    return ", ".join(words) or "not asked"


def change_inputs(context: Context, changes: dict[str, Any], who: str, why: str) -> None:
    """Go on with other inputs; what runs under a specification that changed is stopped."""
    if not changes:
        return
    fresh = _load(context, changes)
    before = context.plan
    for name, value in changes.items():
        context.record("input", name=one_line(str(name)), value=one_line(str(value)))
    context.meta.inputs.update(_texts(changes))
    context.run.write_meta(context.meta)
    context.plan = make_plan(fresh, context.plan.site, context.view.restore_s)
    moved = [
        {"gate": gate, "words": words, "who": who, "why": why}
        for gate, words in moved_thresholds(before, context.plan)
    ]
    context.record("targets", targets=header.targets(context.plan), moved=moved)
    context.fleet.change(context.plan.services)
    seal(context, sealed.read(context.run.sealed).baseline)


def _texts(changes: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in changes.items()}


def _load(context: Context, changes: dict[str, Any]) -> Playbook:
    return load_playbook(
        context.run.playbook, {**context.meta.inputs, **_texts(changes)},
        base=context.plan.playbook.base, pinned=True,
        rewrite=rewriter(context.run, context.plan.site),
        site_services=frozenset(context.plan.site.model.services),
        aliases=context.plan.site.model.names,
    )  # fmt: skip
