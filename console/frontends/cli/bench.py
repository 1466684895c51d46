"""`bench` and `check contract`: ask one server, to measure it or to compare what it answers."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from console.bench.answers import failure_of
from console.bench.benchmark import Benchmark, BenchmarkResult, Protocol, run_words
from console.bench.beside.who import server_at
from console.bench.client import Waiting
from console.bench.concurrency import Level
from console.bench.contract.compare import Change, Comparison, compare, untold_words
from console.bench.contract.fingerprint import Fingerprint, read_fingerprint, take
from console.bench.interference import Surroundings
from console.bench.sample import Sample
from console.bench.statistics import median
from console.common import redact
from console.common.errors import ConsoleError, Exit, UsageError
from console.common.files import write_atomically
from console.common.text import clean, columns, one_line
from console.common.units import (
    DURATION_FORM,
    format_duration,
    format_number,
    parse_duration,
    plural,
)
from console.config import locate
from console.host.ports import reach_the_same

MAX_ROWS = 40
"""Changes in the table of a contract; --json has them all."""


def bench(args: Namespace) -> int:
    """Exit 0 with figures, 4 when not one run was valid."""
    _check_url(args.url)

    def progress(number: int, planned: int, sample: Sample) -> None:
        rate = f"{sample.tok_s:.1f} tok/s" if sample.tok_s is not None else ""
        what = f"discarded: {sample.void}" if sample.void else rate
        twice = " (sent twice)" if sample.transport_retries else ""
        _say(f"{run_words(number, planned)} {what}{twice}")

    protocol = _protocol(args)
    around = Surroundings(server_at(args.url))
    result = Benchmark(
        args.url, protocol, model=args.model, progress=progress, surroundings=around, held=_say,
        waiting=Waiting(lambda silent: _say(f"no token for {silent:.0f} s")),
    ).run()  # fmt: skip
    _remember(result)
    if args.json:
        print(redact.dumped(result.to_json()))
    else:
        _print(result)
    return int(Exit.OK if result.metrics["tok_s"].n else Exit.HOLD)


def _remember(result: BenchmarkResult) -> None:
    """Keep what a benchmark shows of the baseline, where that is what was measured. A site file
    that cannot be read refuses no figures."""
    with contextlib.suppress(ConsoleError, OSError):
        path = locate.site_file(None)
        if path is None:
            return
        from console.config.site.site import load_site
        from console.recovery.rollback import evidence, observe
        from console.recovery.rollback.sealed_plan import SealedPlan
        from console.runner.prepare.baseline import written

        site = load_site(path)
        base = written(site)
        plan = SealedPlan("", "", base, site.name)
        if not reach_the_same(result.url, base.url) or not observe.answers(plan, known=False):
            return
        garbage = result.garbled if result.garbled is not None and result.garbled.mostly else ""
        seen = evidence.of_benchmark(
            result.metrics["tok_s"].mean, str(garbage), time.time(), base.reference_tok_s,
            base.tolerance, failure=failure_of(result.url, result.runs),
        )  # fmt: skip
        if seen is not None:
            evidence.record(plan, observe.known_start(plan, seen))


def _protocol(args: Namespace) -> Protocol:
    """What to send. Raises UsageError for settings that measure nothing."""
    try:
        timeout_s = parse_duration(args.timeout)
        if timeout_s <= 0:
            raise ValueError(DURATION_FORM)
    except ValueError as error:
        raise UsageError(f"--timeout '{clean(args.timeout, 40)}'", str(error)) from error
    try:
        re.compile(args.expect)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--expect '{clean(args.expect, 80)}'", one_line(str(error))) from error
    # a third more while they disagree, as a benchmark step
    most = args.max_runs if args.max_runs is not None else args.runs + max(1, args.runs // 3)
    if most < args.runs:
        raise UsageError("nothing to measure", f"--max-runs {most} is below --runs {args.runs}")
    try:
        return Protocol(
            runs=args.runs, max_runs=most, max_tokens=args.max_tokens, endpoint=args.endpoint,
            levels=tuple(args.concurrency), timeout_s=timeout_s,
            prompt_lengths=tuple(args.prompt_lengths), expect=args.expect,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError("nothing to measure", str(error)) from error


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _print(result: BenchmarkResult) -> None:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(result.started_at))
    print(
        f"{'taken':<14} {began}, for {format_duration(result.duration_s)}, at {clean(result.url)}"
    )
    for name, figure in result.metrics.items():
        if figure.value is not None:
            unit = figure.unit
            spread = f" ± {format_number(figure.std, unit)}" if figure.std is not None else ""
            middle = figure.median
            half = f", median {format_number(middle, unit)}" if middle is not None else ""
            value = format_number(figure.value, unit)
            mark = ", estimated" if figure.estimated else ""
            print(f"{name:<14} {value}{spread}{half} (n={figure.n}{mark})")
    for prompt in result.prompt_rates:
        if prompt.rates:
            rate = format_number(median(prompt.rates) or 0.0, "tok/s")
            print(
                f"{f'{prompt.tokens} tokens':<14} {rate} prompt processing (n={len(prompt.rates)})"
            )
    for level in result.levels:
        print(_level(level))
    for answer in result.answers:
        state = f"GARBLED, {answer.garbled}" if answer.garbled else one_line(answer.answer, 160)
        print(f"answer to {one_line(answer.prompt, 60)}: {clean(state) or answer.reasoning}")
    for void in result.voids:
        print(f"discarded: {clean(str(void.get('reason', '')))}")
    for flag in result.flags:
        print(f"note: {clean(flag)}")


def _level(level: Level) -> str:
    """`4 streams       all 31.2 tok/s, each 8.1 tok/s decoding, TTFT 0.41 s (12 of 12 requests)`"""
    parts = [
        f"{words} {format_number(value, unit)}"
        for words, value, unit in (
            ("all", level.tok_s, "tok/s"), ("each", level.decode_tok_s, "tok/s"),
            ("TTFT", level.ttft_s, "s"), ("longest", level.ttft_max_s, "s"),
        )
        if value is not None
    ]  # fmt: skip
    count = f"({level.valid} of {level.requests} requests valid)"
    name = f"{level.streams} streams"
    return f"{name:<14} {', '.join(parts) or 'no valid request'} {count}"


def contract(args: Namespace) -> int:
    """What a server answers to the cases of a contract, compared with another one or with what one
    answered before. Exit 0 if it is the same, 3 if not, 4 if there was nothing to compare or a case
    is not known."""
    from console.config.contract import contract_cases

    _check_url(args.url)
    cases = contract_cases(Path(args.cases).expanduser() if args.cases else None)
    before = None
    if args.against and not args.against.startswith(("http://", "https://")):
        before = read_fingerprint(Path(args.against).expanduser())

    def taken(url: str) -> Fingerprint:
        def say(number: int, of: int, case: str) -> None:
            if number % len(cases) == 0:
                _say(f"{clean(url, 80)}: {plural(of - number, 'request')} to go, {case} first")

        return take(url, cases, repeat=args.repeat, say=say)

    after = taken(args.url)
    if args.save:
        _save(Path(args.save).expanduser(), after)
    if args.against and before is None:
        before = taken(args.against)
    comparison = compare(before.of(cases), after) if before is not None else None
    if args.json:
        comparison_json = comparison.to_json() if comparison is not None else None
        print(redact.dumped({"fingerprint": after.to_json(), "comparison": comparison_json}))
    else:
        print("\n".join(_contract_lines(after, comparison)))
    if comparison is not None and comparison.changes:
        return int(Exit.NO_GO)
    known = (
        not after.untold
        if comparison is None
        else bool(comparison.compared and not comparison.untold)
    )
    return int(Exit.OK if known else Exit.HOLD)


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{clean(url, 80)}' is not a URL", "expected http://HOST:PORT")


def _save(path: Path, fingerprint: Fingerprint) -> None:
    try:
        write_atomically(path, redact.dumped(fingerprint.to_json(), indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"--save {clean(str(path), 80)}", error.strerror or str(error)) from error


def _contract_lines(after: Fingerprint, comparison: Comparison | None) -> Iterator[str]:
    """What was asked of it, and what is different, a line for each case."""
    own = after.unsteady
    steady = f", differs from itself in {len(own)} ({', '.join(own[:3])})" if own else ""
    yield f"{plural(len(after.cases), 'case')}, {after.offered} offered{steady}"
    if comparison is None:
        yield from (f"  {words}" for words in untold_words(after.untold))
        for name, case in after.cases.items():
            if "offered" not in case.states and not case.untold:
                yield clean(f"  not offered: {name} ({case.answers[0].why})", 300)
        return
    yield comparison.words()
    width = max((len(difference.case) for difference in comparison.changes), default=0)
    for change in comparison.changes[:MAX_ROWS]:
        yield _change(change, width)
    if len(comparison.changes) > MAX_ROWS:
        yield f"  and {len(comparison.changes) - MAX_ROWS} more: --json has them all"


def _change(change: Change, width: int) -> str:
    """`  props     chat template: 141 characters … → 803 characters …`"""
    fact = "" if change.part == "state" else f"{change.fact}: "
    line = clean(f"  {change.case:<{width}}  {fact}{change.before} → {change.after}", 1000)
    wide = columns(sys.stdout)
    return line if len(line) <= wide else f"{line[: wide - 1]}…"
