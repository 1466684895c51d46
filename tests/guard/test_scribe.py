"""How often a status page is written, however long a tick took."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from console.recovery.guard.loop import SECOND_S
from console.recovery.guard.observe.collect import REST_POLL_S
from console.runner.guard.process import SILENT_S
from tests.guard.made_site import Site


def test_a_look_a_moment_early_leaves_no_page_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Site(tmp_path)
    second, seconds = one.deps.collector.second, 0

    def takes_time() -> None:
        nonlocal seconds
        seconds += 1
        one.clock.sleep(0.002 if seconds % 2 else 0.001)
        second()

    monkeypatch.setattr(one.deps.collector, "second", takes_time)
    due, pages = one.clock.monotonic(), []
    for _ in range(round(8 / REST_POLL_S)):
        due += REST_POLL_S
        one.clock.sleep(due - one.clock.monotonic())
        one.loop.tick()
        assert one.page()["level"] == "ok"
        pages.append(one.page()["mono"])
    one.close()
    written = sorted(set(pages))
    gaps = [later - before for before, later in itertools.pairwise(written)]
    assert seconds == 8
    assert max(gaps) < SECOND_S + REST_POLL_S < SILENT_S
