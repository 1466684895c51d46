"""The public reports as tables: what the console says beside what people have seen.

    python -m tests.sizing.reports --write

writes them into docs/measurements/memory.md.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from console.host.sample import Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from tests.sizing import test_llama_logs as gguf
from tests.sizing import test_public_logs as safetensors

PAGE = Path(__file__).parents[2] / "docs" / "measurements" / "memory.md"
MARK = "<!-- python -m tests.sizing.reports --write -->"
SAID = {True: "served", False: "refused", None: "not told"}
MAX_REASON = 110
Row = tuple[dict[str, Any], Verdict, str]


@cache
def rows() -> tuple[Row, ...]:
    """Every report with the console's verdict and its first reason."""
    return tuple(_rows())


def _rows() -> Iterator[Row]:
    for row in gguf.LOGS:
        facts, plan, cards = gguf.read(row)
        ram = int((row["ram_gib"] or 512) * 0.97 * 2**30)
        found = assess(facts, plan, Machine(cards=cards, ram_available=ram))
        yield row, found.verdict, _reason(found)
    for row in safetensors.LOGS:
        found, refused = safetensors.judged(row)
        verdict = Verdict.NO_GO if refused else found.verdict
        yield row, verdict, "no kernel for it" if refused else _reason(found)


def _reason(found: Assessment) -> str:
    first = found.because.partition(";")[0].replace("not known: ", "").replace("|", "/")
    return first if len(first) <= MAX_REASON else f"{first[:MAX_REASON].rsplit(' ', 1)[0]} …"


def against(row: dict[str, Any], verdict: Verdict) -> str:
    """ "false GO", "false NO-GO", or nothing."""
    if row["served"] is False and verdict in (Verdict.GO, Verdict.STREAMING):
        return "false GO"
    return "false NO-GO" if row["served"] and verdict is Verdict.NO_GO else ""


def text() -> str:
    every = sorted(rows(), key=lambda one: one[0]["engine"])
    lines = [MARK, "", "## Verdicts", "", "| engine | reports | GO | TIGHT | NO-GO | UNKNOWN | "
             "false GO | false NO-GO |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for engine in dict.fromkeys(row["engine"] for row, _, _ in every):
        own = [one for one in every if one[0]["engine"] == engine]
        said = Counter(verdict for _, verdict, _ in own)
        wrong = Counter(against(row, verdict) for row, verdict, _ in own)
        go = said[Verdict.GO] + said[Verdict.STREAMING]
        counts = (len(own), go, said[Verdict.TIGHT], said[Verdict.NO_GO], said[Verdict.UNKNOWN],
                  wrong["false GO"], wrong["false NO-GO"])  # fmt: skip
        lines.append(f"| {engine} | {' | '.join(map(str, counts))} |")
    lines += ["", "## Report by report", "", "| report | model | it was | verdict | why |",
              "|---|---|---|---|---|"]  # fmt: skip
    for row, verdict, why in every:
        wrong_word = against(row, verdict)
        shown = f"**{verdict.value}**, {wrong_word}" if wrong_word else verdict.value
        lines.append(
            f"| {row['source']} | {row['model']} | {SAID[row['served']]} | {shown} | {why} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    before = PAGE.read_text("utf-8").partition(MARK)[0]
    if "--write" in sys.argv:
        PAGE.write_text(before + text(), "utf-8")
    else:
        print(text())


if __name__ == "__main__":
    main()
