"""Two scripted GPUs of 96 and 32 GB, read by the real sentinel and shown on its status page."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.recovery.guard.config import Limit
from console.recovery.rollback.live import Live
from tests.guard.yard import hogs
from tests.guard.yard.hogs import Hog
from tests.guard.yard.post import Post, posted
from tests.testbed.nvml import MIB, RTX_5090, RTX_PRO_6000, Card, Nvml
from tests.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.alone]

GIB = 1 << 30
BIG, SMALL = RTX_PRO_6000.uuid, RTX_5090.uuid
HANG_S = 600
"""Longer than any wait in these tests."""
FRESH_S = 3.0
"""A GPU is read once a second, by a process of its own."""


@dataclass
class Bench:
    post: Post
    nvml: Nvml
    script: Path
    hog: Hog

    def cards(self, big: Card = RTX_PRO_6000, small: Card = RTX_5090) -> None:
        self.nvml.write(self.script, [big, small])

    def card(self, uuid: str) -> dict[str, Any]:
        """Return one GPU of the status page; empty while it is not there."""
        rows = self.post.status.get("cards") or []
        return next((row for row in rows if row["uuid"] == uuid), {})

    def fresh(self, uuid: str, used: int) -> bool:
        row = self.card(uuid)
        return bool(row) and row["used"] == used and row["age_s"] < FRESH_S


def over(of: str, value: int) -> Limit:
    return Limit("gpu.memory_used", above=float(value), of=of, source="yard")


@contextmanager
def bench(place: Path, nvml: Nvml, *limits: Limit) -> Iterator[Bench]:
    """A sentinel that watches both GPUs, and a process that may be killed."""
    script = place / "cards"
    nvml.write(script)
    with ExitStack() as stack:
        post = stack.enter_context(
            posted(place, *limits, env=nvml.env(script), extra={"gpus": (BIG, SMALL)})
        )
        hog = stack.enter_context(hogs.waiting(["alloc", "4096", "0"], cgroup=False))
        post.arm(Live("process", "cand", hog.pid, hog.start))
        until(lambda: post.armed, f"armed: {post.status}")
        made = Bench(post, nvml, script, hog)
        until(lambda: made.fresh(BIG, 612 * MIB) and made.fresh(SMALL, 15 * MIB), "both are seen")
        yield made


def test_a_card_that_becomes_too_hot(tmp_path: Path, nvml: Nvml) -> None:
    limit = Limit("gpu.temperature", above=87.0, of="max", source="yard")
    with bench(tmp_path, nvml, limit) as made:
        made.cards(small=RTX_5090.but(temp=87))
        until(lambda: made.fresh(SMALL, 15 * MIB), "at the limit")
        assert made.post.breach is None
        made.cards(small=RTX_5090.but(temp=93))
        breach = made.post.breached()
        assert breach["reason"] == f"GPU temperature ({SMALL}) 93 °C, above 87 °C (yard)"
        assert breach["curve"]["points"][-1][1] == 93.0
        until(lambda: not made.hog.alive, "the candidate is killed")


def test_a_limit_on_all_cards(tmp_path: Path, nvml: Nvml) -> None:
    with bench(tmp_path, nvml, over("sum", 110 * GIB)) as made:
        made.cards(RTX_PRO_6000.but(mem_used=60 * GIB), RTX_5090.but(mem_used=20 * GIB))
        until(lambda: made.fresh(BIG, 60 * GIB) and made.fresh(SMALL, 20 * GIB), "they fill")
        assert made.hog.alive
        assert made.post.breach is None
        made.cards(RTX_PRO_6000.but(mem_used=85 * GIB), RTX_5090.but(mem_used=28 * GIB))
        found = made.post.breached()
        assert "VRAM" in found["reason"], found["reason"]
        until(lambda: not made.hog.alive, "it is killed")


def test_a_lost_card_is_said_and_the_other_is_still_guarded(tmp_path: Path, nvml: Nvml) -> None:
    with bench(tmp_path, nvml, over(SMALL, 30 * GIB)) as made:
        made.cards(big=RTX_PRO_6000.but(lost=True))
        until(lambda: made.card(BIG).get("why"), "it is said")
        assert made.card(BIG)["used"] is None, "never a wrong zero"
        until(lambda: made.fresh(SMALL, 15 * MIB), "the other one lives")
        made.cards(RTX_PRO_6000.but(lost=True), RTX_5090.but(mem_used=31 * GIB))
        made.post.breached()
        until(lambda: not made.hog.alive, "it is killed")


def test_a_call_that_hangs_holds_up_nothing_else(tmp_path: Path, nvml: Nvml) -> None:
    with bench(tmp_path, nvml, over(SMALL, 30 * GIB)) as made:
        calls = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
        hung = RTX_PRO_6000.but(hang=dict.fromkeys(calls, HANG_S))
        made.cards(big=hung)
        until(lambda: made.card(BIG).get("age_s", 0) > FRESH_S + 2, "its age is shown")
        page = made.post.status
        assert page["memory"]["age_s"] < 1.0, "memory is looked at as before"
        until(lambda: made.fresh(SMALL, 15 * MIB), f"the other one lives: {page}")
        made.cards(hung, RTX_5090.but(mem_used=31 * GIB))
        made.post.breached()
        until(lambda: not made.hog.alive, "it is killed")
