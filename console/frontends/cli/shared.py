"""What several commands need: the site, a playbook by path or name, inputs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.common.errors import UsageError
from console.common.text import one_line
from console.config.locate import playbook_path
from console.config.locate import site as site_of

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site

__all__ = ["inputs_of", "playbook_of", "playbook_path", "site_of"]


def own_command() -> str:
    """What a person types to call this program: its name where the PATH has it."""
    import shutil
    import sys
    from pathlib import Path

    if shutil.which("omni-console"):
        return "omni-console"
    here = Path(sys.executable).parent / "omni-console"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


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


def playbook_of(text: str, pairs: list[str], site: Site, *, planning: bool = False) -> Playbook:
    from console.config.playbook.load import load_playbook

    return load_playbook(
        playbook_path(text), inputs_of(pairs), planning=planning,
        site_services=frozenset(site.model.services), aliases=site.model.names,
    )  # fmt: skip
