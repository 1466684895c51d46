"""`runs`, `show`, `report`, `logs`, `recorder`: what happened, from journals and flight recorders,
during a run and after a crash or a reboot."""

from __future__ import annotations

import contextlib
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from glob import escape
from pathlib import Path
from typing import Any

from console.common import redact
from console.common.errors import ConsoleError, Exit, UsageError
from console.common.logs.tail import read_last
from console.common.text import clean, columns
from console.common.units import format_bytes, format_duration, number
from console.frontends.cli.machine import DRAWN, guard_json, text_signs
from console.frontends.tui.watch.history import RunRow, rows
from console.journal.breach import crossed, each
from console.journal.guard_status import ACTED, NOBODY, GuardView, GuardWatch
from console.journal.lock import ladder_busy, runner_alive, runs_of_others
from console.journal.recording import Recorded, ending, find
from console.journal.run_dir import RunDir, find_run
from console.journal.run_files import (
    INTERRUPTED,
    NEVER_BEGAN,
    NO_RESUME,
    LogFile,
    baseline_log,
    silence_of,
    view_of,
)
from console.journal.run_view import MAX_TROUBLE, GuardEvent, RunView
from console.journal.state import Decision, RunState, StepState, possible_verbs
from console.recovery.guard.record.read import FastSample
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.baseline_state import UP, Word
from console.recovery.rollback.look import Looker, answers_200
from console.recovery.rollback.sealed_plan import SealedPlan
from console.render.breach import cause_of
from console.render.cells import plain
from console.render.cutover import BACK, cut_over
from console.render.facts.gate import doubts, gates
from console.render.facts.run import DOWN, notes
from console.render.facts.step import facts_of
from console.render.guard import deeds, event_words, lease_words, value_words
from console.render.guard import line as guard_line
from console.render.measuring import answer_lines
from console.render.progress import said_words
from console.render.report.benchmarks import figures_line, taken_at
from console.render.text_chart import chart, curve_of
from console.runner.slurm.standing import waiting

HEALTH_S = 1.5
LAST_S, AFTER_S, ROWS = 60.0, 10.0, 5
"""Extent of a breach's curve in `show`: seconds before and after the kill, and rows."""


def runs(args: Namespace) -> int:
    run_rows, waits, others = rows(), waiting(), runs_of_others()
    if args.json:
        table = {"runs": [_as_json(row) for row in run_rows], "waiting": waits, "others": others}
        print(redact.dumped(table))
        return int(Exit.OK)
    for words in waits:
        print(words)
    for words in others:
        print(clean(f"of another user, on now: {words}"))
    if not run_rows and not waits:
        print("no runs yet: omni-console demo shows one, omni-console run PLAYBOOK starts one")
    for row in run_rows:
        decision = Decision(row.decision).word or "–"
        text = format_duration(row.took_s) if row.took_s is not None else ""
        print(f"{row.id:<44} {row.state:<16} {decision:<6} {text:<12} {row.mark}".rstrip())
    return int(Exit.OK)


def _as_json(row: RunRow) -> dict[str, object]:
    if row.problem:
        return {"run": row.id, "state": row.state, "playbook": row.problem}
    return {
        "run": row.id, "state": row.state, "decision": row.decision or None,
        "outcome": row.outcome or None, "playbook": row.playbook, "created": row.created,
        "took_s": row.took_s, "mark": row.mark,
    }  # fmt: skip


def show(args: Namespace) -> int:
    """Print one run; the exit code is the run's, 4 while it has none."""
    run = find_run(args.run)
    view, state = view_of(run)
    guard = NOBODY if view.over else GuardWatch().look(run, runner_alive(run), over=False)
    if args.json:
        from console.render.report.document import Evidence
        from console.render.report.document import as_json as reported

        known = Evidence(interrupted=state == INTERRUPTED)
        now = None if view.over else guard_json(guard)
        status = {"state": state, "path": str(run.path), "guard": now}
        print(redact.dumped({**reported(view, known), **status}))
    else:
        _print(run, view, state, guard)
    return int(view.exit_code) if view.over else int(Exit.HOLD)


def _print(run: RunDir, view: RunView, state: str, guard: GuardView) -> None:
    reason = f" ({clean(view.reason)})" if view.reason else ""
    print(f"{run.id}  {clean(view.title)}")
    decision = " ".join(x for x in (str(view.decision) or "none", view.outcome, view.mark) if x)
    print(f"state {state}{reason}   decision {clean(decision)}")
    if view.detail and state == RunState.PAUSED:
        print(clean(view.detail))
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.created))
    print(f"started {started} by {clean(view.owner)}, site {clean(view.site)}")
    for fact in notes(view):
        print(fact.line)
    for text in view.trouble[:MAX_TROUBLE]:
        print(clean(text, 300))
    for text in [*_now(guard), *way_on(run, view, state)]:
        print(text)
    phase = ""
    for step in view.steps:
        if step.phase != phase:
            phase = step.phase
            print(f"\n{clean(phase)}")
        facts = facts_of(view, step)
        cause = f" [{facts.cause}]" if facts.cause else ""
        print(f"  {facts.sign} {step.id:<22} {facts.took:>10}{cause} {facts.detail}")
        if step.state is StepState.RUNNING and step.message and state == str(view.state):
            print(f"      … {said_words(step, time.time())}")
        for line in step.lines:
            print(f"      | {clean(line, 200)}")
    for event in view.guards:
        if event.kind != "watching":
            at = event.body.at or event.at
            print(f"\n{time.strftime('%H:%M:%S', time.localtime(at))} {event_words(event)}")
        for text in [*deeds(event.body), *(_curve(event) if event is view.breach else [])]:
            print(f"  {text}".rstrip())
    for scope, metrics in view.metrics.items():
        at = taken_at(view, scope)
        when = time.strftime(", from %H:%M:%S", time.localtime(at)) if at else ""
        print(f"\n{clean(scope)}{when}: {clean(figures_line(metrics))}")
        for line in answer_lines(view, scope):
            print(f"  {line}")
    for gate in gates(view):
        print(f"\ngate {gate.step}: {gate.verdict} {gate.outcome}".rstrip())
        for mark in gate.marks:
            print(f"  {mark.line}")
        for row in gate.criteria:
            print(f"  {row.label:>6}  {row.value}")
    for doubt in doubts(view):
        print(f"\n{doubt.line}")


def _curve(breach: GuardEvent) -> list[str]:
    """The figure that crossed its limit, in the seconds before the kill and after it."""
    curve, kill = crossed(breach.body), breach.body.at or breach.at
    if curve is None:
        return []
    times = [at for at, _ in curve.points if kill - LAST_S <= at <= kill + AFTER_S]
    begin, end = min(times, default=kill), max(times, default=kill)
    if end <= begin:
        return []
    level = f", the limit {value_words(curve.level, curve.unit)}" if curve.level is not None else ""
    wide = max(40, min(DRAWN, columns(sys.stdout, DRAWN)) - 2)
    rows = chart(curve_of(curve), begin, end, wide, ROWS, text_signs(), kill)
    return ["", f"{curve.name}, {end - begin:.0f} s{level}", *(plain(row) for row in rows)]


def _now(guard: GuardView) -> list[str]:
    """The sentinel's state of an unfinished run, and what is left of its lease."""
    if guard.run is None:
        return []
    texts = [plain(guard_line(guard, time.monotonic(), key="")), lease_words(guard.lease)]
    if guard.word == ACTED and (why := cause_of(guard.breach)):
        texts[0] += f": {why}"
    return [text for text in texts if text]


def way_on(run: RunDir, view: RunView, state: str) -> list[str]:
    """Where the baseline is, and what to do: a single suggestion if only one makes sense."""
    short = run.id[-4:]
    if ladder_busy(run):
        return [f"a rollback is under way: omni-console attach {short} follows it"]
    if state == NEVER_BEGAN:
        return [NO_RESUME]
    gone = state == INTERRUPTED
    out = []
    if view.cutover:
        silent = silence_of(run)
        at = f"{cut_over(view)} at {clean(view.cutover.url)}"
        out.append(f"{at}{silent and ', '}{silent}; {BACK}")
    elif view.outage:
        out += _outage(run, view, gone=gone)
    elif view.back_at:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.back_at))
        when = "the run ended" if view.over else "the runner died"
        if view.fell_after_end:
            out.append(f"a rollback failed after the run's end; the baseline served again at {at}")
        else:
            out.append(f"the baseline was down when {when}, and served again at {at}")
    verbs = possible_verbs(view.state, view.reason) if not (view.over or gone) else []
    if verbs:
        out.append(f"to go on, type: omni-console tell {short} {' | '.join(verbs)}")
    if view.offer and "measure" in verbs:
        out.append(f"omni-console tell {short} measure: {clean(view.offer)}, then judge again")
    if gone:
        up = ", ".join(clean(name) for name in view.services)
        left = f"; omni-console rollback ends what may be up ({up})" if up else ""
        left = left or ("" if view.outage else "; nothing has to be rolled back")
        out.append(f"the runner is gone: omni-console resume {short} goes on{left}")
    return out


def _outage(run: RunDir, view: RunView, *, gone: bool) -> list[str]:
    """What the journal calls an outage, by how the baseline is now: it may have been started by
    hand since, or answer something that is no proof."""
    word, url = _now_at(run)
    words = "not proven" if word is Word.UNKNOWN or word in UP else str(word)
    if view.state is RunState.ROLLBACK_FAILED:
        why = f": {clean(view.detail, 400)}" if view.detail else ""
        return [
            f"BASELINE {words.upper()}, and the rollback failed{why}",
            "once that is mended, omni-console rollback tries it again",
        ]
    if word is Word.DOWN:
        return [f"{DOWN}: omni-console rollback brings it back"]
    ends = "the journal ends with the baseline down" if gone else "this run took the baseline down"
    now = "answers" if words == "not proven" else f"is {word}"
    return [
        f"{ends}, but {clean(url)} {now} now: omni-console rollback makes sure that it is the "
        "baseline"
    ]


def _now_at(run: RunDir) -> tuple[Word, str]:
    """How a run's baseline is now, and its URL; down where nobody can say."""
    try:
        plan = sealed.read(run.sealed)
        word = Looker().state(plan).word
    except (ConsoleError, OSError):
        return Word.DOWN, ""
    return (Word.DOWN if word is Word.UNKNOWN and not _answers(plan) else word), plan.baseline.url


def _answers(plan: SealedPlan) -> bool:
    return answers_200(plan.baseline.url, plan.baseline.ready_path, HEALTH_S)


def report(args: Namespace) -> int:
    """The report of a run as Markdown; for several runs a table of attempts. `--json`: objects.

    The table fits the terminal; without one it is Markdown.
    """
    from console.render.report import compare as comparison
    from console.render.report.document import as_json as reported
    from console.render.report.document import evidence, markdown, write_copy

    run_dirs = [find_run(name) for name in args.run] or [find_run(None)]
    seen = [view_of(run) for run in run_dirs]
    several = len(run_dirs) > 1
    if args.to and several:
        raise UsageError("--to writes the report of one run", f"{len(run_dirs)} runs were named")
    if args.to:
        path = Path(args.to).expanduser()
        try:
            write_copy(seen[0][0], evidence(run_dirs[0], seen[0][0]), path)
        except OSError as error:
            words = error.strerror or str(error)
            raise UsageError(f"{clean(str(path), 200)} cannot be written", words) from error
        print(redact.dumped({"report": str(path)}) if args.json else path)
    elif args.json:
        known = [evidence(run, view) for run, (view, _) in zip(run_dirs, seen, strict=True)]
        runs = [
            reported(view, run_evidence)
            for (view, _), run_evidence in zip(seen, known, strict=True)
        ]
        table = {"comparison": comparison.as_json(comparison.compare(seen))} if several else {}
        print(redact.dumped({"runs": runs, **table}))
    elif not several:
        folder = run_dirs[0].report.with_suffix("")
        drawn = str(folder) if folder.is_dir() else ""
        print(markdown(seen[0][0], evidence(run_dirs[0], seen[0][0]), drawn))
    elif args.markdown or not sys.stdout.isatty():
        print(comparison.markdown(comparison.compare(seen)))
    else:
        width = columns(sys.stdout)
        print("\n".join(comparison.lines(comparison.compare(seen), width)))
    return int(Exit.OK)


def logs(args: Namespace) -> int:
    """The last lines a service wrote, or a step's output; read from the run's own files."""
    run = find_run(args.run)
    paths = [run.log(args.name)] if "/" not in args.name else []
    attempts = (run.path / "attempts").glob(f"{escape(args.name)}.[0-9]*.log")
    paths += sorted(attempts, reverse=True)[:1]
    if args.name == "baseline" and (baseline := _baseline_log(run)) is not None:
        whose = f"of run {run.id} on site {clean(view_of(run)[0].site or 'none', 60)}"
        print("; ".join(filter(None, (whose, baseline.note))), file=sys.stderr)
        paths.append(baseline.path)
    for path in paths:
        if path.exists():
            lines = read_last(path, max(1, args.lines))
            log = {"file": str(path), "lines": lines}
            print(redact.dumped(log) if args.json else "\n".join(lines))
            return int(Exit.OK)
    step = view_of(run)[0].step(args.name)
    if step is not None and step.lines:  # it wrote no file of its own: what is in the journal
        lines = [clean(line, 400) for line in step.lines]
        print(redact.dumped({"step": step.id, "lines": lines}) if args.json else "\n".join(lines))
        return int(Exit.OK)
    files = [*(run.path / "logs").glob("*.log"), *(run.path / "attempts").glob("*.log")]
    names = sorted({p.name.split(".")[0] for p in files})
    raise UsageError(
        f"run {run.id} has no log '{clean(args.name, 60)}'",
        f"there are: {', '.join(names) or 'none'}",
    )


def _baseline_log(run: RunDir) -> LogFile | None:
    """The log of a run's baseline that is a host process; None for any other."""
    with contextlib.suppress(ConsoleError, OSError):
        plan = sealed.read(run.sealed)
        return baseline_log(plan) if plan.baseline.log else None
    return None


DENSE_S = 5.0
DENSE_EVERY_S = 0.2
HEAD = f"{'UTC':<13} {'level':<6} {'RAM left':>10} {'swap used':>10} {'some':>7} {'full':>7}"


def recorder(args: Namespace) -> int:
    """The recording of a run, or of the newest that has one, as a table or an object."""
    if not 0 < args.seconds < 86_400:
        raise UsageError(
            "--seconds takes a number of seconds", "between 0 and a day", "--seconds 120"
        )
    excerpt = find(args.run, args.seconds)
    print(redact.dumped(as_json(excerpt)) if args.json else "\n".join(lines(excerpt)))
    return int(Exit.OK)


def lines(excerpt: Recorded) -> list[str]:
    """What the recording holds, what happened, why, and where it ends."""
    out = [f"{excerpt.run.id}  {clean(str(excerpt.recording.path))}", *ending(excerpt), ""]
    shown = thinned(excerpt.fast)
    if shown:
        out += [HEAD, *(_line(sample) for sample in shown)]
    else:
        out.append("no complete sample is in it")
    for name in ("spared", "trouble"):
        out += [f"{name}: {text}" for text in each(excerpt.status.get(name))]
    seconds = [text for record in excerpt.slow if (text := second_words(record))]
    if seconds:
        out += ["", "cards, loads and rates, once a second", *seconds]
    out += ["", "events" if excerpt.events else "no events"]
    out += [f"{clock_of(event)}  {event.get('what', '')}  {event.get('text', '')}".rstrip()
            for event in excerpt.events]  # fmt: skip
    cause = cause_of(excerpt.breach, excerpt.events)
    out += ["", f"cause: {cause}" if cause else "no breach"]
    return out + deeds(excerpt.breach)


def thinned(samples: Sequence[FastSample]) -> list[FastSample]:
    """One sample a second, the worst of each; five a second in the last DENSE_S."""
    if not samples:
        return []
    last, out = samples[-1].mono, []
    key: tuple[bool, int] | None = None
    for sample in samples:
        dense = sample.mono > last - DENSE_S
        slot = (dense, int(sample.mono / (DENSE_EVERY_S if dense else 1.0)))
        if slot != key:
            out.append(sample)
        elif sample.available < out[-1].available:
            out[-1] = sample
        key = slot
    return out if out[-1] is samples[-1] else [*out, samples[-1]]


def second_words(record: dict[str, Any]) -> str:
    """One slow record in a line: swap traffic, cards, loads, disks; unknown ones say so."""
    parts = []
    for name in ("swap_in", "swap_out"):
        if name in record:
            rate = number(record[name])
            words = "not known" if rate is None else f"{format_bytes(rate)}/s"
            parts.append(f"{name.replace('_', '-')} {words}")
    for row in _each(record, "cards"):
        parts.append(f"{str(row.get('uuid') or 'a card')[:12]} {_of(row, 'used', 'total')}")
    if record.get("gpu_trouble"):
        parts.append(str(record["gpu_trouble"]))
    for row in _each(record, "loads"):
        parts.append(f"{row.get('name', '?')} {_of(row, 'ram', 'limit')}")
    for row in _each(record, "disks"):
        parts.append(f"{row.get('path', '?')} {_of(row, 'free', '')} free")
    return f"{clock_of(record)}  {', '.join(parts)}"[:400] if parts else ""


def _each(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in each(record.get(name)) if isinstance(row, dict)]


def _of(row: dict[str, Any], part: str, whole: str) -> str:
    """`90.0 GiB of 96.0 GiB`, or why not."""
    size, most = number(row.get(part)), number(row.get(whole))
    if size is None:
        return str(row.get("why") or "not known")
    return f"{format_bytes(size)} of {format_bytes(most)}" if most else format_bytes(size)


def clock_of(record: dict[str, Any]) -> str:
    """`14:03:12.412`, UTC."""
    at = record.get("wall")
    return _clock(float(at)) if isinstance(at, int | float) else "?" * 12


def as_json(excerpt: Recorded) -> dict[str, Any]:
    """Plain objects; times as Unix seconds (`wall`) and monotonic ones of that boot (`mono`)."""
    return {
        "run": excerpt.run.id,
        "path": str(excerpt.recording.path),
        "alive": excerpt.recording.alive,
        "pid": excerpt.recording.pid,
        "boot": excerpt.recording.boot,
        "restarted": excerpt.restarted,
        "ends": excerpt.ends,
        "synced": excerpt.synced,
        "level": excerpt.level,
        "status": excerpt.status,
        "events": list(excerpt.events),
        "breach": excerpt.breach.data() or None,
        "seconds": list(excerpt.slow),
        "samples": [asdict(sample) for sample in excerpt.fast],
    }


def _line(sample: FastSample) -> str:
    return (
        f"{_clock(sample.wall):<13} {sample.level:<6} {format_bytes(sample.available):>10} "
        f"{format_bytes(sample.swap_used):>10} {_percent(sample.some):>7} "
        f"{_percent(sample.full):>7}"
    )


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f} %"


def _clock(at: float) -> str:
    try:
        return f"{time.strftime('%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03d}"
    except (OverflowError, ValueError, OSError):
        return "?" * 12
