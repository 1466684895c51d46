"""What several commands need: the site, a playbook by path or name, inputs as text."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from console.errors import UsageError
from console.playbook.load import load_playbook
from console.playbook.model import Playbook
from console.site.load import find_site, load_site
from console.site.model import Site
from console.text import one_line


def site_of(given: str | None) -> Site:
    """The site: given, OMNI_SITE, the user's, else the embedded demo's."""
    path = find_site(given)
    if path is not None:
        return load_site(path)
    from console.demo.site import demo_site

    return load_site(demo_site())


def inputs_of(pairs: list[str]) -> dict[str, str]:
    """`NAME=VALUE` arguments. Raises UsageError."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise UsageError(
                f"--input {one_line(pair, 60)}", "expected NAME=VALUE", "--input port=8001"
            )
        given[name] = value
    return given


def playbook_path(text: str) -> Path:
    """A file, or the name of a playbook that ships with the console."""
    path = Path(text)
    if re.fullmatch(r"[a-z0-9-]+", text) and not path.exists():
        shipped = Path(str(resources.files("playbooks"))) / f"{text}.yaml"
        if shipped.is_file():
            return shipped
        names = ", ".join(sorted(p.stem for p in shipped.parent.glob("*.yaml")))
        raise UsageError(f"no playbook '{text}'", f"shipped: {names}", "or give a path to a file")
    return path


def playbook_of(text: str, pairs: list[str], site: Site, *, planning: bool = False) -> Playbook:
    return load_playbook(
        playbook_path(text), inputs_of(pairs), planning=planning,
        site_services=frozenset(site.model.services),
    )  # fmt: skip
