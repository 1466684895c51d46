"""What a bisect has found, in lines, as an object and as a Markdown report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.common import redact
from console.common.errors import Exit
from console.common.files import write_atomically
from console.common.text import clean
from console.common.units import format_duration, plural
from console.render.facts.words import when
from console.render.report.markdown import code, prose, table, took
from console.runner.bisect.candidates import shown, subject
from console.runner.bisect.record import PRIVATE, Record, Try
from console.runner.bisect.search import Word

GIVEN = "not run: taken as given"
MAX_SUSPECTS = 8


def is_over(record: Record) -> bool:
    """Whether nothing is left to try."""
    return record.contradiction is not None or record.standing.following is None


def exit_of(record: Record) -> Exit:
    """0 if the first bad version is known, 5 if an end is not what it was said to be, else 4."""
    if record.contradiction is not None:
        return Exit.FAILED
    return Exit.OK if len(record.standing.suspects) == 1 else Exit.HOLD


def name_of(record: Record, at: int, *, whole: bool = False) -> str:
    """A version as it is printed; `whole`: a commit with the first line of its message."""
    query = record.query
    name = shown(query.candidates[at], git=bool(query.repo))
    words = subject(Path(query.repo), query.candidates[at]) if whole and query.repo else ""
    return f"{name} ({words})" if words else name


def conclusion(record: Record) -> list[str]:
    """The result first, then the figures and runs of the two versions that it stands between."""
    tries = record.tries
    skipped = sum(trial.word is Word.SKIP for trial in tries)
    count = plural(sum(bool(trial.run) for trial in tries), "run")
    spent = f"{count}, {skipped} skipped" if skipped else count
    if (wrong := record.contradiction) is not None:
        end_trial = record.of(wrong)
        claim = Word.GOOD if wrong == 0 else Word.BAD
        what = (
            end_trial.word
            if end_trial is not None and end_trial.word is not Word.SKIP
            else "undecided"
        )
        why = end_trial.why if end_trial is not None else ""
        return [f"{name_of(record, wrong)} was given as {claim}, and is {what} ({spent}): {why}"]
    here = record.standing
    good, suspects = here.good, list(here.suspects)
    if here.following is not None:
        more = plural(here.max_runs, "run")
        lead = f"not found yet ({spent}): {len(suspects)} versions left, at most {more} more"
    elif len(suspects) == 1:
        lead = f"first bad: {name_of(record, here.bad, whole=True)} ({spent})"
    else:
        names = [name_of(record, at) for at in suspects[:MAX_SUSPECTS]]
        tail = ", …" if len(suspects) > MAX_SUSPECTS else ""
        lead = f"first bad: one of {', '.join(names)}{tail} ({spent}: no other can be tried)"
    bad = record.of(here.bad)
    metric = bad.metric if bad is not None else ""
    lines = [f"{lead}; last good: {name_of(record, good)}"]
    for at in (good, here.bad):
        lines.append(f"  {name_of(record, at)}: {_measured(record.of(at), metric)}")
    if tries and tries[-1].baseline:
        lines.append(f"  the baseline after the last run: {tries[-1].baseline}")
    return lines


def _measured(trial: Try | None, metric: str) -> str:
    """A version's figure of a metric, and where it is from."""
    if trial is None:
        return GIVEN
    figure = trial.figures.get(metric)
    words = f"{metric} {figure}" if figure else trial.why
    return f"{words}; run {trial.run}" if trial.run else words


def as_json(record: Record) -> dict[str, Any]:
    query, here = record.query, record.standing
    over = is_over(record)
    is_found = over and exit_of(record) is Exit.OK
    return {
        "playbook": query.playbook,
        "site": query.site,
        "over": query.over,
        "inputs": query.inputs,
        "versions": list(query.candidates),
        "finished": over,
        "first_bad": query.candidates[here.bad] if is_found else None,
        "last_good": query.candidates[here.good],
        "suspects": [query.candidates[at] for at in here.suspects],
        "most_runs": here.max_runs,
        "exit_code": int(exit_of(record)),
        "runs": sum(bool(trial.run) for trial in record.tries),
        "skipped": sum(trial.word is Word.SKIP for trial in record.tries),
        "tries": [
            {
                "version": query.candidates[trial.at],
                "word": str(trial.word),
                "run": trial.run or None,
                "why": trial.why,
                "metric": trial.metric or None,
                "figures": trial.figures,
                "took_s": trial.took_s,
            }
            for trial in record.tries
        ],
        "under_way": record.pending.run if record.pending is not None else None,
        "report": str(record.report),
        "said": conclusion(record),
    }


def markdown(record: Record) -> str:
    query = record.query
    first, *rest = conclusion(record)
    rows = [
        (
            code(name_of(record, trial.at)),
            f"**{trial.word}**",
            prose(trial.figures.get(trial.metric, "–")),
            code(trial.run) if trial.run else "–",
            took(trial.took_s),
            prose(trial.why),
        )
        for trial in record.tries
    ]
    inputs = ", ".join(
        f"{name}={redact.named(name, value)}" for name, value in query.inputs.items()
    )
    ends = (name_of(record, 0), name_of(record, len(query.candidates) - 1))
    return "\n".join([
        f"# The first bad {prose(query.over, 60)} of {prose(query.playbook, 80)}", "",
        f"**{prose(first)}**", "", *(f"- {prose(line.strip())}" for line in rest),
        *([""] if rest else []),
        f"{len(query.candidates)} versions from {code(ends[0])} (given as good) to "
        f"{code(ends[1])} (given as bad), site {prose(query.site, 60)}, begun {when(record.begun)}"
        + (f", inputs {code(inputs)}" if inputs else "") + ".", "",
        *table(("version", "verdict", "figure", "run", "took", "why"), rows),
    ]).rstrip() + "\n"  # fmt: skip


def write(record: Record) -> Path:
    """Write the report beside the record. Raises OSError."""
    write_atomically(record.report, markdown(record), PRIVATE)
    return record.report


def line(record: Record) -> str:
    """A bisect in one line, for the list of all."""
    query = record.query
    under_way = f"; run {record.pending.run} is under way" if record.pending else ""
    return clean(f"{query.playbook} over {query.over}: {conclusion(record)[0]}{under_way}", 400)


def cost(record: Record, each_s: float, known: str, down_s: float, *, verify: bool) -> str:
    """How many runs it takes at most, and how long, in a sentence. `known`: where that is from."""
    tried = record.words
    ends = sum(at not in tried for at in (0, len(record.query.candidates) - 1)) if verify else 0
    most = record.standing.max_runs + ends
    words = f"at most {plural(most, 'run')}"
    words += f", {ends} of them to verify the ends" if ends else ""
    words += ", and one more for each that has to be skipped"
    if not each_s:
        return f"{words}; how long one takes is not known yet"
    whole = format_duration(most * each_s)
    words += f"; about {format_duration(each_s)} each ({known}), {whole} in all"
    return words + (f", the baseline down for {format_duration(down_s)} of each" if down_s else "")
