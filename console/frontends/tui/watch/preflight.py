"""A preflight for a screen: what was typed, judged, as lines with a tone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.errors import ConsoleError
from console.common.text import clean
from console.config.locate import site as load_site
from console.models.hub.reference import typed

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
    "loader": [AUTO, "mmap", "resident", "convert"],
    "engine": [AUTO, "llama.cpp", "ik_llama.cpp", "sglang", "kt-kernel", "vllm", "exllamav3"],
}


WORDS = {"ok": "GO", "warn": "GO", "fail": "NO-GO"}
"""The level of what is said of the architecture, in a word."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Lines to draw, clean; `verdict` in one word, "" where it was not reached."""

    verdict: str
    lines: tuple[str, ...]


def check(name: str, text: str) -> str:
    """What is wrong with one field, or ""."""
    if name == "ctx" and text and not (text.isdecimal() and 0 < int(text) < 1 << 31):
        return "a number of tokens, like 8192"
    if name == "what" and not text.strip():
        return "needed"
    if name == "args":
        import shlex

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
    import shlex

    from console.checks.preflight.architecture import check
    from console.checks.preflight.checkpoint import Ask, preflight
    from console.models.gguf.byte_source import is_address
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
            engine = check.build_of(specs, _connect(place.model.engine.host))
        except ConsoleError as error:
            lines.append(clean(f"which build runs here is not known: {error}", 300))
        answer = check.check(what, engine, include=include)
        lines.extend([*answer.lines(), ""])
        finding = answer.finding()
        return WORDS.get(finding.level, "UNKNOWN") if finding is not None else "UNKNOWN"

    if is_address(what) and not what.startswith(settings.endpoint().rstrip("/") + "/"):
        return ask_build()  # not the hub's: its header is all there is to know
    to = Path(values["to"]).expanduser() if values.get("to") else None
    loader = check.loader_for(
        place.model, values.get("loader", ""), values.get("engine", ""),
        shlex.split(values.get("args", "")), int(values["ctx"]) if values.get("ctx") else None,
    )  # fmt: skip
    found = preflight(
        Ask(what, loader, include, (), to), check.machine_for(place.model, to), place.model
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
