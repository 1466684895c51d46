"""Know before you pay: a repository, address or file, and whether it can work here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.errors import ConsoleError
from console.common.text import clean
from console.config.locate import site as load_site
from console.models.hub.reference import typed
from screens.base import ReadingPage
from screens.dialogs import FormField, FormScreen
from widgets.bars import bindings
from widgets.rows import Row
from widgets.steps import hanging, paragraph

if TYPE_CHECKING:
    from console.checks.preflight.architecture.check import Connect

FIELDS = (
    ("what", "repository, URL, file or directory", "org/name[@revision]"),
    ("include", "files", "patterns, like *Q4_K_M*"),
    ("loader", "how it is loaded", "up/down"),
    ("engine", "what runs it", "up/down"),
    ("ctx", "tokens of context", "empty: as the arguments say"),
    ("to", "downloaded to", "its disk is looked at"),
    ("args", "the engine's arguments", "empty: the baseline's"),
)
AUTO = "auto"
"""As the format asks."""
CHOICES = {
    "loader": (AUTO, "mmap", "resident", "convert"),
    "engine": (AUTO, "llama.cpp", "ik_llama.cpp", "sglang", "kt-kernel", "vllm", "exllamav3"),
}
WORDS = {"ok": "GO", "warn": "GO", "fail": "NO-GO"}
"""The level of what is said of the architecture, in a word."""

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


@dataclass(frozen=True, slots=True)
class Shown:
    """Lines to draw, clean; `verdict` in one word, "" where it was not reached."""

    verdict: str
    lines: tuple[str, ...]


class PreflightScreen(ReadingPage):
    """The form, then the answer: files, checks, arithmetic."""

    SCOPE = "preflight"
    BINDINGS = bindings("preflight")
    DEFAULT_CSS = "PreflightScreen TextView { padding: 0; }"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.shown: Shown | None = None
        self.busy = False
        self.turn = 0

    def stand(self) -> None:
        self.action_ask()

    def action_ask(self) -> None:
        """The form, with what was asked before."""
        fields = []
        for name, title, note in FIELDS:
            choices = CHOICES.get(name, ())
            value = self.values.get(name, AUTO if choices else "")
            fields.append(FormField(name, value, title, note, choices))
        form = FormScreen("Can it work here?", fields, "Look", check)
        self.app.push_screen(form, self._asked)

    def _asked(self, changed: dict[str, str] | None) -> None:
        if changed is None:
            return
        self.values |= changed
        self.busy, self.turn = True, self.turn + 1
        self.in_thread(partial(self._look, self.turn, dict(self.values)))
        self.redraw()

    def _look(self, turn: int, values: dict[str, str]) -> None:
        self.on_loop(self._seen, turn, look(values, self.console.watchers.site))

    def _seen(self, turn: int, found: Shown) -> None:
        if turn == self.turn:
            self.busy, self.shown = False, found
            self.redraw()

    def in_trouble(self, words: str) -> None:
        self.busy = False
        super().in_trouble(words)

    def rows(self, width: int) -> list[Row]:
        width += 2  # no padding: the answer's own lines are 78 wide
        if self.shown is None or self.busy:
            words = "reading listings and headers …" if self.busy else EMPTY
            return paragraph(words, width, "dim")
        return answer_rows(self.shown.lines, width)

    def head(self, width: int) -> list[Row]:
        what = clean(self.values.get("what", ""), 120)
        if self.busy:
            return [((what, "bold"), ("  looking …", "accent"))]
        if self.shown is None:
            return [(("Know before you pay", "bold"), ("   i asks", "dim"))]
        verdict = self.shown.verdict
        return [((verdict or "no verdict", TONES.get(verdict, "bad")), (f"  {what}", "bold"))]


def answer_rows(lines: tuple[str, ...], width: int) -> list[Row]:
    """The answer's own lines, 78 wide, wrapped where the screen is narrower."""
    rows: list[Row] = []
    for line in lines:
        tone = next((tone for begin, tone in BEGINS if line.startswith(begin)), "")
        rows += hanging(line, width, tone)
    return rows


def check(name: str, text: str) -> str:
    """What is wrong with one field, or ""."""
    if name == "ctx" and text and not (text.isdecimal() and 0 < int(text) < 1 << 31):
        return "a number of tokens, like 8192"
    if name == "what" and not text.strip():
        return "needed"
    if name == "args":
        try:
            shlex.split(text)
        except ValueError as error:
            return str(error)
    return ""


def look(values: Mapping[str, str], site: str | None) -> Shown:
    """The whole answer; an error is an answer too. Takes seconds, never raises ConsoleError."""
    lines: list[str] = []
    verdict = ""
    try:
        verdict = _fit(values, site, lines)
    except ConsoleError as error:
        lines += [clean(line, 400) for line in error.lines()]
    return Shown(verdict, tuple(lines))


def _fit(values: Mapping[str, str], site: str | None, lines: list[str]) -> str:
    from console.checks.preflight.architecture import check as architecture
    from console.checks.preflight.checkpoint import Ask, preflight
    from console.models.gguf.address import is_address
    from console.models.hub import settings
    from console.models.hub.checkpoint import Format
    from console.models.sizing.assessment import wrapped

    values = {name: "" if value == AUTO else value for name, value in values.items()}
    place = load_site(site)
    what = typed(values.get("what", ""))
    include = tuple(values.get("include", "").split())
    specs = {**place.service_specs(), "baseline": place.baseline_spec()}

    def ask_build() -> str:
        engine = None
        try:
            engine = architecture.build_of(specs, _connect(place.model.engine.host))
        except ConsoleError as error:
            lines.append(clean(f"which build runs here is not known: {error}", 300))
        answer = architecture.check(what, engine, include=include)
        lines.extend([*answer.lines(), ""])
        finding = answer.finding()
        return WORDS.get(finding.level, "UNKNOWN") if finding is not None else "UNKNOWN"

    if is_address(what) and not what.startswith(settings.endpoint().rstrip("/") + "/"):
        return ask_build()  # not the hub's: its header is all there is to know
    to = Path(values["to"]).expanduser() if values.get("to") else None
    loader = architecture.loader_for(
        place.model, values.get("loader", ""), values.get("engine", ""),
        shlex.split(values.get("args", "")), int(values["ctx"]) if values.get("ctx") else None,
    )  # fmt: skip
    found = preflight(
        Ask(what, loader, include, (), to), architecture.machine_for(place.model, to), place.model
    )
    known = "GO"
    if found.chosen.format is Format.GGUF and found.chosen.whole:
        known = ask_build()
    verdict = "NO-GO" if known == "NO-GO" else str(found.verdict)
    if verdict == str(found.verdict):
        lines[:0] = [*wrapped(f"{verdict}: {found.because}", "  "), ""]
    lines.extend(found.lines())
    return verdict


def _connect(host: str) -> Connect:
    from console.runtime.docker.client import connect

    return lambda: connect(host or None)
