"""`bench`: measure one endpoint, as a benchmark step does."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from console.benchmark.metrics import Sample
from console.benchmark.protocol import Protocol, run_benchmark
from console.errors import Exit, UsageError
from console.text import clean
from console.units import format_number


def bench(args: Namespace) -> int:
    """Exit 0 with figures, 4 when not one run was valid."""
    if not args.url.startswith(("http://", "https://")):
        raise UsageError(f"'{clean(args.url, 80)}' is not a URL", "expected http://HOST:PORT")

    def progress(number: int, planned: int, sample: Sample) -> None:
        rate = f"{sample.tok_s:.1f} tok/s" if sample.tok_s is not None else ""
        run = "warm-up" if number == 0 else f"run {number}/{planned}"
        print(f"{run} {f'void: {sample.void}' if sample.void else rate}", file=sys.stderr)

    try:
        protocol = Protocol(runs=args.runs, max_tokens=args.max_tokens, endpoint=args.endpoint)
    except ValueError as error:
        raise UsageError("nothing to measure", str(error)) from error
    result = run_benchmark(args.url, protocol, model=args.model, progress=progress)
    if args.json:
        print(json.dumps(result.to_json()))
    else:
        for name, figure in result.metrics.items():
            if figure.value is not None:
                unit = figure.unit
                spread = f" ± {format_number(figure.std, unit)}" if figure.std is not None else ""
                middle = figure.median
                median = f", median {format_number(middle, unit)}" if middle is not None else ""
                value = format_number(figure.value, unit)
                print(f"{name:<14} {value}{spread}{median} (n={figure.n})")
        for void in result.voids:
            print(f"void: {clean(str(void.get('reason', '')))}")
    return int(Exit.OK if result.metrics["tok_s"].n else Exit.HOLD)
