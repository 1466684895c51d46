"""The console's colours: four themes of its own, and the one that the operator chose last.

A state is a word and a sign before it is a colour, so a theme never carries a fact. `NO_COLOR` wins
over every theme.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

from textual.app import App
from textual.theme import BUILTIN_THEMES, Theme

from console.common import paths
from console.common.files import write_atomically

DARK = Theme(
    name="dark", primary="#5f87af", secondary="#5f8787", accent="#87afd7", warning="#d7af5f",
    error="#d75f5f", success="#87af5f", foreground="#d0d0d0", background="#121212",
    surface="#1c1c1c", panel="#262626", dark=True, variables={"border-blurred": "#585858"},
)  # fmt: skip
LIGHT = Theme(
    name="light", primary="#005f87", secondary="#5f8787", accent="#005faf", warning="#875f00",
    error="#af0000", success="#005f00", foreground="#1c1c1c", background="#ffffff",
    surface="#f2f2f2", panel="#e4e4e4", dark=False, variables={"border-blurred": "#9e9e9e"},
)  # fmt: skip
COLOUR_BLIND = Theme(
    name="colour-blind", primary="#0072b2", secondary="#cc79a7", accent="#56b4e9",
    warning="#f0e442", error="#d55e00", success="#009e73", foreground="#d0d0d0",
    background="#121212", surface="#1c1c1c", panel="#262626", dark=True,
    variables={"border-blurred": "#585858"},
)  # fmt: skip
"""The palette of Okabe and Ito, whose colours differ for every kind of colour vision."""
_ANSI = BUILTIN_THEMES["ansi-dark"]
TERMINAL = replace(
    _ANSI, name="terminal", accent="ansi_cyan",
    variables={**_ANSI.variables, "border-blurred": "ansi_bright_black"},
)  # fmt: skip
"""The sixteen colours of the terminal's own palette."""
THEMES = {theme.name: theme for theme in (DARK, LIGHT, COLOUR_BLIND, TERMINAL)}


def chosen() -> str:
    """The name of the theme that was chosen last; the dark one if none was, or it is unknown."""
    with contextlib.suppress(OSError, UnicodeError):
        name = (paths.state_dir() / "theme").read_text("utf-8").strip()
        if name in THEMES:
            return name
    return DARK.name


def choose(name: str) -> None:
    """Remember a theme. A disk that cannot be written is no reason to complain about a colour."""
    with contextlib.suppress(OSError):
        write_atomically(paths.state_dir() / "theme", name + "\n")


def use(app: App[int]) -> None:
    """Make the themes known to the app, and use the one that was chosen last."""
    for theme in THEMES.values():
        app.register_theme(theme)
    app.theme = chosen()


def use_next(app: App[int]) -> str:
    """Use the theme that follows in the list and remember it; its name."""
    names = list(THEMES)
    name = names[(names.index(app.theme) + 1) % len(names)] if app.theme in names else names[0]
    app.theme = name
    threading.Thread(target=choose, args=(name,), daemon=True).start()
    return name
