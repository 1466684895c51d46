"""Which containers of a moment a later console removes: none whose own console still runs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from console.host import process
from console.runtime.docker import oneoff

MINE = oneoff.console_mark()[oneoff.CONSOLE_LABEL]
PID, START, BOOT = MINE.split(" ")


@pytest.mark.parametrize(
    ("mark", "removed"),
    [
        (MINE, False), (f"{PID} {int(START) + 1} {BOOT}", True), (f"{PID} {START} another", True),
        (f"{PID} None {BOOT}", True), ("", True), (None, True),
    ],
    ids=["it runs", "another process", "another boot", "no start", "empty", "none"],
)  # fmt: skip
def test_a_container_whose_console_runs_is_left_whatever_the_clock_says(
    mark: str | None, removed: bool
) -> None:
    """The wall clock of a machine may be set a day forward while a check runs."""
    labels = {} if mark is None else {oneoff.CONSOLE_LABEL: mark}
    row = {"Id": "c", "Created": time.time() - 86400, "Labels": labels}
    gone: list[str] = []

    def remove(container: str, **_: Any) -> None:
        gone.append(container)

    api = SimpleNamespace(containers=lambda **_: [row], remove_container=remove)
    client: Any = SimpleNamespace(api=api)
    assert oneoff.sweep(client) == len(gone) == removed
    assert process.boot_id() == BOOT
