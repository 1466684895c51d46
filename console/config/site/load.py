"""Finding and loading the site file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from console.common import paths
from console.common.errors import InvalidFile, Problem
from console.common.redact import Known
from console.config.site.guard import limits, trouble
from console.config.site.service import ServiceModel
from console.config.site.site import Site, SiteModel
from console.config.validation import validate
from console.config.yaml import Document, parse, read_text
from console.host.sample import Machine
from console.recovery.guard.config import Limit

TITLE = "the site file cannot be used"


def load_site(path: Path) -> Site:
    """A site file → Site; raises InvalidFile with every problem."""
    text = read_text(path, TITLE)
    document = parse(text, str(path), TITLE)
    model, problems = validate(SiteModel, document, document.data)
    problems += document.problems
    guards: tuple[Limit, ...] = ()
    if model is not None:
        guards, found = limits(document, model.guards, "site", frozenset(model.services))
        problems += [*found, *taken(lambda: document, model.services, model)]
        declared = model.machine.over(Machine(), model.gpus)
        for index, limit in enumerate(guards):
            words = trouble(limit, declared)
            if words:
                problems.append(document.problem(("guards", index), words))
    known = Known.of(document.data)
    if model is None or problems:
        told = [one.told(known.text) for one in problems]
        raise InvalidFile(TITLE, told, "docs/reference/site.md describes the file")
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


def find_site(given: str | None) -> Path | None:
    """`--site`, then `OMNI_SITE`, then the user's site file; None means the embedded demo."""
    for candidate in (given, os.environ.get("OMNI_SITE")):
        if candidate:
            return Path(candidate)
    default = paths.default_site()
    return default if default.exists() else None
