"""`runner`: the detached process of a run (internal)."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from console.run.directory import RunDir


def runner(args: Namespace) -> int:
    from console.run.process import main

    return main(
        RunDir(Path(args.run)), ready_fd=args.ready_fd, resume=args.resume, close=args.close,
        from_step=args.from_step,
    )  # fmt: skip
