"""What a tone looks like: a colour of the theme, mixed once for each background.

Not component classes: eight of them for every widget are a hundred style sheets' work before the
first frame, and a component's muted colour is half transparent besides.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style
from textual.color import Color
from textual.widget import Widget

TONES = ("dim", "good", "warn", "bad", "bold", "accent", "alarm", "cursor")
_COLOURS = {
    "dim": "text-muted", "good": "text-success", "warn": "text-warning", "bad": "text-error",
    "accent": "text-accent",
}  # fmt: skip
_BACKGROUNDS = {"alarm": "error", "cursor": "primary-muted"}
_BOLD = ("warn", "bad", "bold", "alarm", "cursor")


def tones(widget: Widget) -> dict[str, Style]:
    """Styles by tone, to be laid over the widget's own; without colour a background is reverse."""
    app = widget.app
    variables = app.theme_variables
    names = (*_COLOURS.values(), *_BACKGROUNDS.values())
    wanted = tuple(variables.get(name, "") for name in names)
    return _mixed(wanted, widget.background_colors[1].hex, app.no_color)


@lru_cache(maxsize=64)
def _mixed(wanted: tuple[str, ...], background: str, no_color: bool) -> dict[str, Style]:
    own = Color.parse(background)
    texts = dict(zip(_COLOURS, wanted[: len(_COLOURS)], strict=True))
    grounds = dict(zip(_BACKGROUNDS, wanted[len(_COLOURS) :], strict=True))
    found = {"": Style.null()}
    for tone in TONES:
        bold = True if tone in _BOLD else None
        if tone in grounds:
            ground = Color.parse(grounds[tone] or "#444444")
            found[tone] = Style(
                color=_over(ground, "auto 87%").rich_color, bgcolor=(own + ground).rich_color,
                bold=bold, reverse=True if no_color else None,
            )  # fmt: skip
        else:
            value = texts.get(tone)
            color = _over(own, value).rich_color if value else None
            found[tone] = Style(color=color, bold=bold)
    return found


def _over(background: Color, value: str) -> Color:
    """A colour as the theme writes it (`#d75f5f`, `auto 60%`), mixed with what is behind it."""
    if value.startswith("auto"):
        share = float(value.removeprefix("auto").strip().rstrip("%") or 100) / 100
        return background + background.get_contrast_text(share)
    return background + Color.parse(value)
