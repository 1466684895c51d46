"""What has to be true around a cutover, as the steps of a playbook are ordered."""

from __future__ import annotations

from collections.abc import Iterator

from console.common.errors import Problem
from console.config.playbook.playbook import PlaybookModel
from console.config.playbook.steps import Step
from console.config.yaml import Document, Loc


def cutover_problems(
    document: Document, model: PlaybookModel, services: frozenset[str]
) -> Iterator[Problem]:
    """Clients are given only what was started before; the way back stops it; a cutover that
    stays is the last one, and what it gave clients is not stopped by a later step."""
    up: set[str] = set()
    ended: dict[str, str] = {}
    stays = ""
    for p, phase in enumerate(model.phases):
        for s, step in enumerate(phase.steps):
            loc: Loc = ("phases", p, "steps", s)
            if not step.when:
                continue
            used = _used(step)
            if used in ended and used not in up:
                what = f"'{used}' was stopped by the way back of cutover '{ended[used]}'"
                yield document.problem(loc, what, f"service: {{start: {used}}} before it")
            if step.service is not None and step.service.verb == "start":
                up.add(step.service.target)
            elif step.service is not None and step.service.verb == "stop":
                up.discard(step.service.target)
                if step.service.target == stays:
                    what = f"'{stays}' is what clients reach by then, and the baseline is down"
                    yield document.problem((*loc, "service"), what, "cutover with then: back")
            if step.cutover is None:
                continue
            yield from _target(document, loc, step, up, services, stays)
            if step.cutover.stays:
                stays = step.cutover.to
            else:
                ended |= dict.fromkeys(up, step.id)
                up.clear()


def _target(
    document: Document, loc: Loc, step: Step, up: set[str], services: frozenset[str], stays: str
) -> Iterator[Problem]:
    assert step.cutover is not None
    to, where = step.cutover.to, (*loc, "cutover", "to")
    if to not in services:
        known = ", ".join(sorted(services)) or "a service under services:"
        yield document.problem(where, f"unknown service '{to}'", f"one of {known}")
    elif to not in up:
        what = f"'{to}' is not running when clients are to reach it"
        yield document.problem(where, what, f"service: {{start: {to}}} before it")
    if stays:
        yield document.problem(where, f"clients stay at '{stays}' already", "one that stays, last")


def _used(step: Step) -> str:
    """The service that a step needs alive; "" for none."""
    if step.benchmark is not None:
        return step.benchmark.service
    if step.soak is not None:
        return step.soak.service
    if step.service is not None and step.service.verb == "wait":
        return step.service.target
    return (step.where.service or "") if step.where is not None else ""
