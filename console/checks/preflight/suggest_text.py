"""What `check checkpoint --suggest` says: a table, lines to paste, and the same as JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.checks.preflight.suggest import Nearest, Row, Suggestion
from console.common import redact
from console.common.text import one_line
from console.common.units import format_bytes, plural
from console.models.hub import local_files as here
from console.models.sizing.assessment import HOST, HOST_MARGIN, PAGES, WIDTH, wrapped
from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.suggest.ranking import WORDS

MAX_PASTED = 3
"""Rows whose lines to paste are printed; all are in the JSON."""
MAX_TOLD = 6
"""Sets named for each reason why they are not in the table."""
LOAD_TIME = "30m"
_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a service would answer, and whether the baseline goes on beside it. `to`: where the
    files would be downloaded to (None: below the current directory)."""

    port: int = 8001
    beside: bool = False
    to: Path | None = None


def left(row: Row) -> dict[str, int]:
    """Bytes that stay free at each place, cards first; of RAM, what the page cache leaves."""
    free: dict[str, int] = {}
    for limit in row.sum.limits:
        if limit.where != PAGES:
            free[limit.where] = limit.left
        elif limit.hard is False:
            free[HOST] = max(0, min(free.get(HOST, limit.left), limit.left + HOST_MARGIN))
    return {name: free[name] for name in sorted(free, key=lambda name: name == HOST)}


def command(suggestion: Suggestion, row: Row, place: Place) -> list[str]:
    """The whole command line of the server, with the port."""
    port = ["--port", str(place.port)]
    model = model_of(suggestion, row, place)
    if isinstance(row.case.plan, VllmPlan):
        return ["vllm", "serve", model, *row.args, *port]
    if isinstance(row.case.plan, SglangPlan):
        start = ["python3", "-m", "sglang.launch_server", "--model-path", model]
        return [*start, *row.args, *port]
    return ["llama-server", "-m", model, *row.args, *port]


def model_of(suggestion: Suggestion, row: Row, place: Place) -> str:
    """The path of a GGUF's first file, or the directory (on the hub: the name) of safetensors."""
    first = row.case.known.chosen.files[0].path
    gguf = not isinstance(row.case.plan, SglangPlan | VllmPlan)
    if gguf or not suggestion.listing.commit:
        folder = folder_of(suggestion, row, place)
        return str(folder / first) if gguf else str((folder / first).parent)
    return suggestion.listing.repo


def folder_of(suggestion: Suggestion, row: Row, place: Place) -> Path:
    listing = suggestion.listing
    if not listing.commit:
        return Path(listing.repo)
    if place.to is None and not fetched(suggestion, row, place):
        return here.snapshot(listing)
    return place.to if place.to is not None else Path(listing.repo.rpartition("/")[2]).absolute()


def fetched(suggestion: Suggestion, row: Row, place: Place) -> bool:
    """Whether some of the files are still to be fetched."""
    if not suggestion.listing.commit:
        return False
    files = row.case.known.chosen.files
    return here.look(suggestion.listing, files, place.to).to_fetch != 0


def download(suggestion: Suggestion, row: Row, place: Place) -> list[str]:
    """What fetches the files, [] where they are here or the engine fetches them itself."""
    if isinstance(row.case.plan, SglangPlan | VllmPlan) or not fetched(suggestion, row, place):
        return []
    files = row.case.known.chosen.files
    names = [files[0].path]
    if len(files) > 1:
        names = [re.sub(r"-\d{5,6}-of-", "-*-of-", files[0].path)]
    to = str(folder_of(suggestion, row, place))
    return ["hf", "download", suggestion.listing.repo, "--revision", suggestion.listing.commit,
            "--include", *names, "--local-dir", to]  # fmt: skip


def service(suggestion: Suggestion, row: Row, place: Place) -> list[str]:
    """The lines of a playbook's service."""
    words = [_scalar(word) for word in redact.argv(command(suggestion, row, place))]
    argv, indent = [], " " * 8
    text = f"      argv: [{words[0]}"
    for word in words[1:]:
        if len(text) + len(word) + 3 > WIDTH:
            argv.append(f"{text},")
            text = f"{indent}{word}"
        else:
            text += f", {word}"
    argv.append(f"{text}]")
    return [
        "  candidate:",
        "    process:",
        *argv,
        f"    url: http://127.0.0.1:{place.port}",
        f"    ready: {{http: /health, timeout: {LOAD_TIME}}}",
        f"    exclusive: {'false' if place.beside else 'true'}",
    ]


def _scalar(word: str) -> str:
    """A word for a flow list of YAML."""
    plain = _PLAIN.fullmatch(word) and word.lower() not in ("true", "false", "null", "yes", "no",
                                                            "on", "off", "y", "n", "~")  # fmt: skip
    return word if plain else json.dumps(word, ensure_ascii=False)


def shell(words: Sequence[str]) -> list[str]:
    """A command for a shell, over several lines where it is long; secrets hidden."""
    out, text = [], ""
    for word in map(shlex.quote, redact.argv(words)):
        if text and len(text) + len(word) + 3 > WIDTH:
            out.append(f"{text} \\")
            text = f"    {word}"
        else:
            text = f"{text} {word}" if text else word
    return [*out, text]


def lines(suggestion: Suggestion, place: Place, width: int = WIDTH) -> list[str]:
    listing = suggestion.listing
    pinned = f"  at {listing.commit[:12]}" if listing.commit else ""
    out = [f"{one_line(listing.repo, 60)}{pinned}", ""]
    if suggestion.rows:
        out += list(_table(suggestion, width))
    else:
        out += list(_nothing(suggestion, width))
    for number, row in enumerate(suggestion.rows[:MAX_PASTED], 1):
        out += ["", f"{number}  {row.case.name}, {row.fit.words}:"]
        out += [
            line
            for words in (download(suggestion, row, place), command(suggestion, row, place))
            for line in (shell(words) if words else [])
        ]
    if suggestion.rows:
        out += ["", "The first as a service of a playbook, under `services:`:"]
        out += service(suggestion, suggestion.rows[0], place)
    out += list(_others(suggestion, width))
    return out


def _table(suggestion: Suggestion, width: int) -> Iterator[str]:
    yield "What fits, the best first, with the largest context of each:"
    if len(suggestion.rows) + max(0, suggestion.more) > 1:
        yield from wrapped(WORDS, "", width)
    names = [row.case.name.removeprefix("GGUF ") for row in suggestion.rows]
    size = max([12, *(len(name) for name in names)])
    for number, (name, row) in enumerate(zip(names, suggestion.rows, strict=True), 1):
        chosen = row.case.known.chosen
        if number == 1 or row.merits.heading != suggestion.rows[number - 2].merits.heading:
            yield ""
            yield from wrapped(f"{row.merits.heading}:", "", width)
        yield (
            f"{number:<2} {name[:28]:<{min(size, 28)}} {format_bytes(chosen.size or 0):>10}  "
            f"{row.judged.verdict:<12} {row.fit.ctx:>9,} tokens"
        )
        bits = f", {row.case.bits:.2f} bits per weight" if row.case.bits else ""
        yield from wrapped(f"   {row.fit.words}{bits}", "   ", width)
        free = ", ".join(f"{format_bytes(size)} on {where}" for where, size in left(row).items())
        yield from wrapped(f"   left: {free}".replace(f"on {HOST}", f"of {HOST}"), "   ", width)
        if row.longer:
            yield from wrapped(f"   {_longer(row.longer)}", "   ", width)
        if row.sum.ceiling_tok_s:
            yield f"   at most {row.sum.ceiling_tok_s:.3g} tok/s"
        if str(row.judged.verdict) != "GO":
            yield from wrapped(f"   {row.judged.verdict}: {row.judged.because}", "   ", width)
    if suggestion.more > 0:
        yield ""
        count = len(suggestion.rows) + suggestion.more
        yield f"{plural(suggestion.more, 'row')} more: --top {count}"


def _longer(row: Row) -> str:
    flags = " ".join(redact.argv(row.args))
    return f"or {row.fit.ctx:,} tokens, {row.merits.cost.label}: {row.fit.words} ({flags})"


def _nothing(suggestion: Suggestion, width: int) -> Iterator[str]:
    """Nothing fits: what is missing, and how much, for what is nearest."""
    unknown = " is known to fit" if suggestion.unknown else " fits"
    yield from wrapped(f"{suggestion.verdict}: nothing of it{unknown} this machine.", "  ", width)
    for candidate in suggestion.nearest[:MAX_TOLD]:
        yield from wrapped(f"  {_nearest(candidate)}", "    ", width)
    if len(suggestion.nearest) > MAX_TOLD:
        yield f"  and {len(suggestion.nearest) - MAX_TOLD} more sets, which lack more"


def _nearest(candidate: Nearest) -> str:
    fit = candidate.fit
    return f"{candidate.name}, {fit.words}, {fit.ctx:,} tokens: {fit.trial.judgement.because}"


def _others(suggestion: Suggestion, width: int) -> Iterator[str]:
    """What is not in the table, and why."""
    for title, rows in (
        ("Not known, and so not suggested:", suggestion.unknown),
        ("Not looked at:", suggestion.left_out),
    ):
        if rows:
            yield ""
            yield title
        for name, why in rows[:MAX_TOLD]:
            yield from wrapped(f"  {name}: {one_line(why, 300)}", "    ", width)
        if len(rows) > MAX_TOLD:
            yield f"  and {len(rows) - MAX_TOLD} more"


def to_json(suggestion: Suggestion, place: Place) -> dict[str, Any]:
    listing = suggestion.listing
    return {
        "repo": listing.repo,
        "commit": listing.commit,
        "verdict": str(suggestion.verdict),
        "rows": [_row(suggestion, row, place) for row in suggestion.rows],
        "more": max(0, suggestion.more),
        "unknown": [{"set": name, "why": why} for name, why in suggestion.unknown],
        "left_out": [{"set": name, "why": why} for name, why in suggestion.left_out],
        "nearest": [
            {
                "set": candidate.name,
                "placement": candidate.fit.words,
                "ctx": candidate.fit.ctx,
                "args": list(candidate.fit.args),
                "short_by": candidate.fit.trial.short_by,
                "because": candidate.fit.trial.judgement.because,
            }
            for candidate in suggestion.nearest
        ],
    }


def _row(suggestion: Suggestion, row: Row, place: Place) -> dict[str, Any]:
    chosen = row.case.known.chosen
    return {
        "set": row.case.name, "quantization": chosen.quantization, "bytes": chosen.size,
        "bits_per_weight": round(row.case.bits, 3), "files": [file.path for file in chosen.files],
        "engine": row.engine, "cost": row.merits.cost.label, "placement": row.fit.words,
        "args": redact.argv(row.args),
        "ctx": row.fit.ctx, "verdict": str(row.judged.verdict), "because": row.judged.because,
        "left": left(row), "ceiling_tok_s": row.sum.ceiling_tok_s,
        "download": redact.argv(download(suggestion, row, place)),
        "command": redact.argv(command(suggestion, row, place)),
        "service": "\n".join(service(suggestion, row, place)),
        "longer": _row(suggestion, row.longer, place) if row.longer else None,
    }  # fmt: skip
