"""Loading the site file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from console.common.errors import InvalidFile, Problem
from console.common.redact import Known
from console.config.site.guard import limits, trouble
from console.config.site.service import ServiceModel
from console.config.site.site import Site, SiteModel
from console.config.validation import validated
from console.config.yaml import Document, parse, read_text
from console.host.sample import Machine
from console.recovery.guard.config import Limit

TITLE = "the site file cannot be used"


def load_site(path: Path) -> Site:
    """A site file → Site; raises InvalidFile with every problem."""
    text = read_text(path, TITLE)
    document = parse(text, str(path), TITLE)
    model = validated(SiteModel, document, document.data)
    guards: tuple[Limit, ...] = ()
    if model is not None:
        guards = limits(document, model.guards, "site", frozenset(model.services))
        document.add(*taken(lambda: document, model.services, model))
        declared = model.machine.over(Machine(), model.gpus)
        for index, limit in enumerate(guards):
            if words := trouble(limit, declared):
                document.refuse(("guards", index), words)
    known = Known.of(document.data)
    if model is None or document.problems:
        told = [one.told(known.text) for one in sorted(document.problems)]
        raise InvalidFile(TITLE, told, "docs/site.md describes the file")
    return Site(model, path, text, guards, known)


def taken(
    document: Callable[[], Document], services: Mapping[str, ServiceModel], site: SiteModel
) -> Iterator[Problem]:
    """Services of a file whose container would have the name of one that is never stopped."""
    for name, service in services.items():
        if service.container is None:
            continue
        made = service.container.name or f"omni-{name}"
        whose = "the baseline's" if made == site.baseline.container else "protected"
        if made != site.baseline.container and made not in site.protected:
            continue
        own = ("container", "name") if service.container.name else ()
        yield document().problem(
            ("services", name, *own),
            f"service '{name}': container {made} is {whose}: it would never be stopped",
            hint="another container.name for the service, or correct `protected:`", key=not own,
        )  # fmt: skip
