"""`runner`: the detached process of a run (internal)."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from console.journal.run_dir import RunDir


def runner(args: Namespace) -> int:
    from console.runner.main import main

    return main(
        RunDir(Path(args.run)), ready_fd=args.ready_fd, resume=args.resume, close=args.close,
        from_step=args.from_step,
    )  # fmt: skip
