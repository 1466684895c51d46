"""Finding and loading the site file."""

from __future__ import annotations

import os
from pathlib import Path

from console import paths
from console.document.reader import parse, read_text
from console.document.validate import validate
from console.errors import InvalidFile
from console.fit.machine import Machine
from console.guard.limits import Limit
from console.site.guard import limits, trouble
from console.site.model import Site, SiteModel

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
        problems += found
        declared = model.machine.over(Machine(), model.gpus)
        for index, limit in enumerate(guards):
            words = trouble(limit, declared)
            if words:
                problems.append(document.problem(("guards", index), words))
    if model is None or problems:
        raise InvalidFile(TITLE, problems, "docs/site.md describes the file")
    return Site(model, path, text, guards)


def find_site(given: str | None) -> Path | None:
    """`--site`, then `OMNI_SITE`, then the user's site file; None means the embedded demo."""
    for candidate in (given, os.environ.get("OMNI_SITE")):
        if candidate:
            return Path(candidate)
    default = paths.default_site()
    return default if default.exists() else None
