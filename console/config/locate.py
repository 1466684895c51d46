"""Which site and which playbook is meant: by path, by name, or by what is configured.

The parsers are loaded when a file is read, not before: a screen comes first.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.common.errors import UsageError

if TYPE_CHECKING:
    from console.config.site.site import Site


def site(given: str | None) -> Site:
    """The site: given, OMNI_SITE, the user's, else the embedded demo's. Raises InvalidFile."""
    from console.config.demo_site import demo_site
    from console.config.site.load import load_site

    return load_site(site_file(given) or demo_site())


def site_file(given: str | None) -> Path | None:
    """`--site`, then `OMNI_SITE`, then the user's site file, which has to be there; None means the
    embedded demo. Nothing is made or parsed."""
    for named in (given, os.environ.get("OMNI_SITE")):
        if named:
            return Path(named)
    default = paths.default_site()
    return default if default.exists() else None


def services(given: str | None) -> frozenset[str]:
    """Services a playbook may use without declaring them: the site's, or the demo's.

    Raises InvalidFile.
    """
    from console.config.playbook.load import BASELINE, resolved
    from console.config.site.load import load_site

    path = site_file(given)
    if path is None:
        from console.config.demo_site import NAMES

        return frozenset(NAMES[1:])
    model = load_site(path).model
    return frozenset(model.services) | resolved(model.names, {*model.services, BASELINE}).keys()


def shipped() -> Path:
    """The directory of the playbooks that come with the console."""
    from importlib import resources

    return Path(str(resources.files("playbooks")))


def playbook_path(text: str) -> Path:
    """A file, or the name of a playbook that ships with the console. Raises UsageError."""
    path = Path(text)
    if re.fullmatch(r"[a-z0-9-]+", text) and not path.exists():
        for place in (shipped(), paths.config_dir() / "playbooks"):
            found = place / f"{text}.yaml"
            if found.is_file():
                return found
        names = ", ".join(sorted(p.stem for p in shipped().glob("*.yaml")))
        raise UsageError(f"no playbook '{text}'", f"shipped: {names}", "or give a path to a file")
    return path
