"""`bench`: measure one endpoint, as a benchmark step does."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from console.bench.benchmark import Benchmark, BenchmarkResult, Protocol, run_words
from console.bench.client import Waiting
from console.bench.concurrency import Level
from console.bench.interference import Engine, Surroundings
from console.bench.metrics import Sample
from console.bench.statistics import median
from console.common.errors import Exit, UsageError
from console.common.text import clean
from console.common.units import DURATION_FORM, format_number, parse_duration
from console.host.ports import listener


def bench(args: Namespace) -> int:
    """Exit 0 with figures, 4 when not one run was valid."""
    if not args.url.startswith(("http://", "https://")):
        raise UsageError(f"'{clean(args.url, 80)}' is not a URL", "expected http://HOST:PORT")

    def progress(number: int, planned: int, sample: Sample) -> None:
        rate = f"{sample.tok_s:.1f} tok/s" if sample.tok_s is not None else ""
        what = f"discarded: {sample.void}" if sample.void else rate
        twice = " (sent twice)" if sample.transport_retries else ""
        _say(f"{run_words(number, planned)} {what}{twice}")

    protocol = _protocol(args)
    who = listener(args.url)
    around = Surroundings(Engine(who.words, who.pid) if who else None)
    result = Benchmark(
        args.url, protocol, model=args.model, progress=progress, surroundings=around,
        waiting=Waiting(lambda silent: _say(f"no token for {silent:.0f} s")),
    ).run()  # fmt: skip
    if args.json:
        print(json.dumps(result.to_json()))
    else:
        _print(result)
    return int(Exit.OK if result.metrics["tok_s"].n else Exit.HOLD)


def _protocol(args: Namespace) -> Protocol:
    """What to send. Raises UsageError for settings that measure nothing."""
    try:
        timeout_s = parse_duration(args.timeout)
        if timeout_s <= 0:
            raise ValueError(DURATION_FORM)
    except ValueError as error:
        raise UsageError(f"--timeout '{clean(args.timeout, 40)}'", str(error)) from error
    # a third more while they disagree, as a benchmark step
    most = args.max_runs if args.max_runs is not None else args.runs + max(1, args.runs // 3)
    if most < args.runs:
        raise UsageError("nothing to measure", f"--max-runs {most} is below --runs {args.runs}")
    try:
        return Protocol(
            runs=args.runs, max_runs=most, max_tokens=args.max_tokens, endpoint=args.endpoint,
            levels=tuple(args.concurrency), timeout_s=timeout_s,
            prompt_lengths=tuple(args.prompt_lengths),
        )  # fmt: skip
    except ValueError as error:
        raise UsageError("nothing to measure", str(error)) from error


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _print(result: BenchmarkResult) -> None:
    for name, figure in result.metrics.items():
        if figure.value is not None:
            unit = figure.unit
            spread = f" ± {format_number(figure.std, unit)}" if figure.std is not None else ""
            middle = figure.median
            half = f", median {format_number(middle, unit)}" if middle is not None else ""
            value = format_number(figure.value, unit)
            mark = ", estimated" if figure.estimated else ""
            print(f"{name:<14} {value}{spread}{half} (n={figure.n}{mark})")
    for one in result.prompt_rates:
        if one.rates:
            rate = format_number(median(one.rates) or 0.0, "tok/s")
            print(f"{f'{one.tokens} tokens':<14} {rate} prompt processing (n={len(one.rates)})")
    for level in result.levels:
        print(_level(level))
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
