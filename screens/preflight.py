"""Know before you pay: a repository, address or file, and whether it can work here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.common.text import clean
from screens.base import Page
from screens.dialogs import FormField, FormScreen
from widgets.bars import BaselineBadge, KeyLine, bindings
from widgets.lists import TextView
from widgets.rows import Row, Rows
from widgets.step_text import wrapped

if TYPE_CHECKING:
    from console.frontends.tui.watch.preflight import Shown

TONES = {"GO": "good", "GO-STREAMING": "good", "TIGHT": "warn", "NO-GO": "bad", "UNKNOWN": "warn"}
BEGINS = (
    ("fail ", "bad"), ("NO-GO", "bad"), ("warn ", "warn"), ("TIGHT", "warn"), ("unknown ", "warn"),
    ("UNKNOWN", "warn"), ("GO", "good"), ("Limiting", "bold"), ("The three", "bold"),
    ("What would", "bold"), ("Predicted", "bold"), ("Projected", "bold"), ("note: ", "dim"),
)  # fmt: skip
"""How lines begin, and their tone; the words say it too."""
EMPTY = (
    "Nothing was asked yet. i asks: a repository (org/name), an address, a GGUF file or a "
    "directory. Only listings and headers are read; nothing is downloaded."
)


class PreflightScreen(Page):
    """The form, then the answer: files, checks, arithmetic."""

    SCOPE = "preflight"
    BINDINGS = bindings("preflight")
    DEFAULT_CSS = """
    PreflightScreen #head { background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.shown: Shown | None = None
        self.busy = False
        self.turn = 0

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield Rows(id="head")
        yield TextView(id="answer")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(TextView))
        self._draw()
        self.action_ask()

    def action_ask(self) -> None:
        """The form, with what was asked before."""
        from console.frontends.tui.watch import preflight

        fields = [
            FormField(
                name,
                self.values.get(name, preflight.AUTO if choices else ""),
                title,
                note,
                tuple(choices),
            )
            for name, title, note in preflight.FIELDS
            for choices in [preflight.CHOICES.get(name, [])]
        ]
        form = FormScreen("Can it work here?", fields, "Look", preflight.check)
        self.app.push_screen(form, self._asked)

    def _asked(self, changed: dict[str, str] | None) -> None:
        if changed is None:
            return
        self.values |= changed
        self.busy, self.turn = True, self.turn + 1
        self.in_thread(partial(self._look, self.turn, dict(self.values)))
        self._draw()

    def _look(self, turn: int, values: dict[str, str]) -> None:
        from console.frontends.tui.watch import preflight

        found = preflight.look(values, self.console.watchers.site)
        self.on_loop(self._seen, turn, found)

    def _seen(self, turn: int, found: Shown) -> None:
        if turn == self.turn:
            self.busy, self.shown = False, found
            self._draw()

    def in_trouble(self, words: str) -> None:
        self.busy = False
        super().in_trouble(words)

    def redraw(self) -> None:
        self._draw()

    def _draw(self) -> None:
        view = self.query_one(TextView)
        if not view.size.width:
            return  # it is drawn when its size is known
        width = max(20, view.size.width - 1)
        self.query_one("#head", Rows).show([self._head()])
        if self.shown is None or self.busy:
            words = "reading listings and headers …" if self.busy else EMPTY
            view.show([((line, "dim"),) for line in wrapped(words, width)])
        else:
            view.show(answer_rows(self.shown.lines, width))

    def _head(self) -> Row:
        what = clean(self.values.get("what", ""), 120)
        if self.busy:
            return ((what, "bold"), ("  looking …", "accent"))
        if self.shown is None:
            return (("Know before you pay", "bold"), ("   i asks", "dim"))
        verdict = self.shown.verdict
        return ((verdict or "no verdict", TONES.get(verdict, "bad")), (f"  {what}", "bold"))


def answer_rows(lines: tuple[str, ...], width: int) -> list[Row]:
    """The answer's own lines, 78 wide, wrapped where the screen is narrower."""
    rows: list[Row] = []
    for line in lines:
        tone = next((tone for begin, tone in BEGINS if line.startswith(begin)), "")
        lead = line[: len(line) - len(line.lstrip())]
        if len(line) <= width:
            rows.append(((line, tone),))
            continue
        first, *more = wrapped(line.lstrip(), max(10, width - len(lead) - 2))
        rows.append(((lead + first, tone),))
        rows += [((f"{lead}  {text}", tone),) for text in more]
    return rows
