"""This machine: whether a checkpoint can run on it, and the findings of guard and doctor."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.errors import ConsoleError
from console.common.text import clean
from console.common.units import plural
from console.config.locate import site as load_site
from console.models.hub.reference import typed
from console.render.cells import glyphs
from console.render.guard import line, marked_rows
from screens.base import ReadingPage
from screens.dialogs import FormField, FormScreen
from widgets.bars import bindings
from widgets.rows import Row, width_of
from widgets.steps import behind, hanging, paragraph, wrapped

if TYPE_CHECKING:
    from console.checks.doctor.facts import Finding
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
"""Chosen by format."""
CHOICES = {
    "loader": (AUTO, "mmap", "resident", "convert"),
    "engine": (AUTO, "llama.cpp", "ik_llama.cpp", "sglang", "kt-kernel", "vllm", "exllamav3"),
}
WORDS = {"ok": "GO", "warn": "GO", "fail": "NO-GO"}
"""The level of a finding on the architecture, in a word."""

TONES = {"GO": "good", "GO-STREAMING": "good", "TIGHT": "warn", "NO-GO": "bad", "UNKNOWN": "warn"}
BEGINS = (
    ("fail ", "bad"), ("NO-GO", "bad"), ("warn ", "warn"), ("TIGHT", "warn"), ("unknown ", "warn"),
    ("UNKNOWN", "warn"), ("GO", "good"), ("Limiting", "bold"), ("The three", "bold"),
    ("What would", "bold"), ("Predicted", "bold"), ("Projected", "bold"), ("note: ", "dim"),
)  # fmt: skip
"""How lines begin, and their tone; the words say it too."""
EMPTY = (
    "Nothing was checked yet. Enter asks for a repository (org/name), an address, a GGUF file or a "
    "directory. Only listings and headers are read; nothing is downloaded."
)


@dataclass(frozen=True, slots=True)
class Shown:
    """Lines to draw, clean; `verdict` in one word, "" if none was reached."""

    verdict: str
    lines: tuple[str, ...]


Answer = Callable[[Mapping[str, str], str | None], Shown]
"""Answers the form's values on a site."""


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

    def action_ask(self) -> None:
        """Show the form with the last question."""
        self._form("Check", look)

    def action_suggest(self) -> None:
        """What of the repository fits; the form first, if none was named."""
        if self.values.get("what"):
            self._begin(fitting)
        else:
            self._form("What fits", fitting)

    def _form(self, submit: str, answer: Answer) -> None:
        fields = []
        for name, title, note in FIELDS:
            choices = CHOICES.get(name, ())
            value = self.values.get(name, AUTO if choices else "")
            fields.append(FormField(name, value, title, note, choices))
        form = FormScreen("Can it work here?", fields, submit, check)
        self.app.push_screen(form, partial(self._take_values, answer))

    def _take_values(self, answer: Answer, changed: dict[str, str] | None) -> None:
        if changed is not None:
            self.values |= changed
            self._begin(answer)

    def _begin(self, answer: Answer) -> None:
        self.busy, self.turn = True, self.turn + 1
        self.in_thread(partial(self._look, answer, self.turn, dict(self.values)))
        self.redraw()

    def _look(self, answer: Answer, turn: int, values: dict[str, str]) -> None:
        self.on_loop(self._seen, turn, answer(values, self.console.watchers.site))

    def _seen(self, turn: int, answer: Shown) -> None:
        if turn == self.turn:
            self.busy, self.shown = False, answer
            self.redraw()

    def in_trouble(self, words: str) -> None:
        super().in_trouble(words)
        self._if_here(self._seen, self.turn, Shown("", (words,)))

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
            return [(("Check before you download", "bold"), ("   Enter asks", "dim"))]
        verdict = self.shown.verdict
        return [((verdict or "no verdict", TONES.get(verdict, "bad")), (f"  {what}", "bold"))]


def answer_rows(lines: tuple[str, ...], width: int) -> list[Row]:
    """The answer's lines, 78 wide, wrapped on a narrower screen."""
    rows: list[Row] = []
    for answer_line in lines:
        tone = next((tone for begin, tone in BEGINS if answer_line.startswith(begin)), "")
        rows += hanging(answer_line, width, tone)
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
    return _answered(_fit, values, site)


def fitting(values: Mapping[str, str], site: str | None) -> Shown:
    """What of the repository fits; as `look`."""
    return _answered(_suggested, values, site)


def _answered(
    answer: Callable[[Mapping[str, str], str | None, list[str]], str],
    values: Mapping[str, str],
    site: str | None,
) -> Shown:
    lines: list[str] = []
    verdict = ""
    try:
        verdict = answer(values, site, lines)
    except ConsoleError as error:
        lines += [clean(line, 400) for line in error.lines()]
    return Shown(verdict, tuple(lines))


def _fit(values: Mapping[str, str], site: str | None, lines: list[str]) -> str:
    from console.checks.preflight import of_site
    from console.checks.preflight.architecture import check as architecture
    from console.models.gguf.byte_source import is_address
    from console.models.hub import settings
    from console.models.hub.checkpoint import Format
    from console.models.sizing.assessment import wrapped

    values = {name: "" if value == AUTO else value for name, value in values.items()}
    place = load_site(site)
    what = typed(values.get("what", ""))
    include = tuple(values.get("include", "").split())

    def ask_build() -> str:
        engine = None
        try:
            engine = architecture.build_of(
                of_site.services(place), _connect(place.model.engine.host)
            )
        except ConsoleError as error:
            lines.append(clean(f"which build runs here is not known: {error}", 300))
        answer = architecture.check(what, engine, include=include)
        lines.extend([*answer.lines(), ""])
        finding = answer.finding()
        return WORDS.get(finding.level, "UNKNOWN") if finding is not None else "UNKNOWN"

    if is_address(what) and not what.startswith(settings.endpoint().rstrip("/") + "/"):
        return ask_build()  # not the hub's: its header is all there is to know
    assessment = of_site.checkpoint(
        place.model, what, kind=values.get("loader", ""), engine=values.get("engine", ""),
        args=shlex.split(values.get("args", "")), include=include,
        ctx=int(values["ctx"]) if values.get("ctx") else None,
        to=Path(values["to"]).expanduser() if values.get("to") else None,
        own=architecture.of_baseline(place.baseline_spec()),
        build=lambda: of_site.build_here(place, _connect(place.model.engine.host)),
    )  # fmt: skip
    known = "GO"
    if assessment.chosen.format is Format.GGUF and assessment.chosen.whole:
        known = ask_build()
    verdict = "NO-GO" if known == "NO-GO" else str(assessment.verdict)
    if verdict == str(assessment.verdict):
        lines[:0] = [*wrapped(f"{verdict}: {assessment.because}", "  "), ""]
    lines.extend(assessment.lines())
    return verdict


def _suggested(values: Mapping[str, str], site: str | None, lines: list[str]) -> str:
    from console.checks.preflight import of_site, suggest_text

    values = {name: "" if value == AUTO else value for name, value in values.items()}
    place = load_site(site)
    to = Path(values["to"]).expanduser().absolute() if values.get("to") else None
    suggestion = of_site.suggestion(
        place.model, typed(values.get("what", "")), kind=values.get("loader", ""),
        engine=values.get("engine", ""), args=shlex.split(values.get("args", "")),
        ctx=int(values["ctx"]) if values.get("ctx") else None,
        include=tuple(values.get("include", "").split()), to=to,
        build=lambda: of_site.build_here(place, _connect(place.model.engine.host)),
    )  # fmt: skip
    lines.extend(suggest_text.lines(suggestion, suggest_text.Place(to=to)))
    return str(suggestion.verdict)


def _connect(host: str) -> Connect:
    from console.runtime.docker.client import connect

    return lambda: connect(host or None)


WHAT = 13
"""Cells of the name of what was checked."""
SIGN = {
    "ok": ("  ok ", "good"),
    "note": ("note ", "dim"),
    "warning": ("WARN ", "warn"),
    "failed": ("FAIL ", "bad"),
}


class HostScreen(ReadingPage):
    """Runs doctor in a thread and shows its findings."""

    SCOPE = "host"
    HEAD = False
    findings: list[Finding] | None = None
    problem = ""

    def stand(self) -> None:
        self.console.sampled.subscribe(self, lambda sample: self.redraw())
        self.in_thread(self._look)

    def _look(self) -> None:
        from console.checks.doctor.run import run

        self.on_loop(self._seen, run(self.console.watchers.site))

    def in_trouble(self, words: str) -> None:
        super().in_trouble(words)
        self.problem = words

    def _seen(self, findings: list[Finding]) -> None:
        self.findings = findings
        self.redraw()

    def rows(self, width: int) -> list[Row]:
        """Use of every resource with the guard's marks, the guard's state, the findings."""
        width = max(30, width)
        guard, sample = self.console.watchers.guard.latest, self.console.sample
        rows: list[Row] = [line(guard, time.monotonic(), width)]
        if sample is not None:
            rows += marked_rows(sample, guard.marks, width, glyphs())
        rows.append(())
        if self.problem:
            return [*rows, *paragraph(self.problem, width, "bad")]
        if self.findings is None:
            return [*rows, (("looking at this machine, four seconds at most …", "dim"),)]
        return rows + page_rows(self.findings, width)


def page_rows(findings: list[Finding], width: int) -> list[Row]:
    """Failures, warnings, then every finding under its group's heading."""
    from console.checks.doctor.run import counts

    failed, warnings = counts(findings)
    tone = "bad" if failed else "warn" if warnings else "good"
    rows: list[Row] = [((f"{failed} failed, {plural(warnings, 'warning')}", tone),)]
    for level in ("failed", "warning"):
        for finding in findings:
            if str(finding.level) == level:
                rows += finding_rows(finding, width)
    group = ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            rows += [(), ((group, "bold"),)]
        rows += finding_rows(finding, width)
    return rows


def finding_rows(finding: Finding, width: int) -> list[Row]:
    """Sign, what, detail; the hint under it."""
    sign = SIGN.get(str(finding.level), ("     ", ""))
    lead: Row = (sign, (f"{clean(finding.what):<{WHAT}} ", "bold"))
    rows = behind(lead, clean(finding.detail, 600), width)
    indent = width_of(lead)
    for hint in finding.hint.splitlines():
        for text in wrapped(clean(hint, 600), width - indent):
            rows.append(((" " * indent + text, "accent"),))
    return rows
