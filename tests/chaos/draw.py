"""What one trial does, drawn from its seed: the same seed and number draw the same trial."""

from __future__ import annotations

import random
from dataclasses import dataclass

VICTIMS = (
    "runner", "ladder", "sentinel", "sentinel-child", "candidate", "baseline", "step", "closer",
    "follower", "rollback",
)  # fmt: skip
"""Who may be killed; one that does not live at that moment is passed over."""
WAYS = ("rollback", "resume", "race", "start")
"""What follows: a rollback; a resume; resume, rollback and a starting run within half a second; a
rollback beside a run that starts."""
WORLDS = (
    "plain", "full-disk", "read-only", "few-files", "clock", "stop", "shm", "lost-files",
    "no-venv", "upgrade", "no-python",
)  # fmt: skip
BY_SCRIPT = ("no-venv", "upgrade", "no-python")
"""Worlds in which the command cannot be had: the rollback is rollback.sh."""
REAL_SHARE = 0.05
RACE_S = 0.5


@dataclass(frozen=True, order=True)
class Act:
    """`at`: seconds after the moment that the trial waits for. `do`: kill (comma-separated
    victims) or start (rollback, resume or run)."""

    at: float
    do: str
    what: str


@dataclass(frozen=True)
class Plan:
    seed: int
    number: int
    world: str
    way: str
    real: bool
    """The engine is llama.cpp; else a stand-in that costs nothing to start."""
    intruder: bool
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]
    """Options of the stand-in."""
    moment: str
    """What is waited for: begun (the run), outage (the candidate is needed), served (no run)."""
    acts: tuple[Act, ...]

    def words(self) -> str:
        done = "; ".join(f"{a.at:.2f} s {a.do} {a.what}" for a in self.acts)
        who = " with another user" if self.intruder else ""
        engine = "llama.cpp" if self.real else "stand-in"
        return f"{self.world} {self.way}{who}, {engine}, from {self.moment}: {done}"


def draw(seed: int, number: int, world: str = "plain") -> Plan:
    dice = random.Random(f"{seed}/{number}/{world}")
    way = dice.choices(WAYS, (5, 3, 3, 1))[0] if world == "plain" else "rollback"
    moment = dice.choices(("outage", "begun"), (4, 1))[0] if world == "plain" else "outage"
    acts = _acts(dice, way)
    return Plan(
        seed, number, world, way,
        real=dice.random() < REAL_SHARE and world not in BY_SCRIPT,
        intruder=world == "plain" and dice.random() < 0.4,
        baseline=("--loading", str(dice.choice((0, 0, 3, 8)))),
        candidate=(
            "--loading", str(dice.choice((0, 0, 3, 8))),
            *(("--ignore-term",) if dice.random() < 0.1 else ()),
        ),
        moment="served" if way == "start" else moment,
        acts=tuple(sorted(acts)),
    )  # fmt: skip


def _acts(dice: random.Random, way: str) -> list[Act]:
    if way == "race":
        starts = [Act(0.02 + dice.uniform(0, RACE_S), "start", what)
                  for what in ("resume", "rollback", "run")]  # fmt: skip
        more = [_kill(dice, dice.uniform(0, 1.0))] if dice.random() < 0.3 else []
        return [Act(0.0, "kill", "runner"), *starts, *more]
    if way == "start":
        begun = dice.uniform(0, 1.5)
        starts = [Act(0.0, "start", "run"), Act(begun, "start", "rollback")]
        more = [_kill(dice, dice.uniform(0.5, 2.0))] if dice.random() < 0.3 else []
        return [*starts, *more]
    kills = [_kill(dice, dice.uniform(0, 0.8)) for _ in range(dice.randint(1, 3))]
    if way == "resume":
        at = dice.uniform(0, 0.3)
        kills += [Act(at, "kill", "runner"), Act(at + dice.uniform(0.05, 0.5), "start", "resume")]
        return kills
    at = dice.uniform(0, 0.8)
    kills.append(Act(at, "start", "rollback"))
    if dice.random() < 0.4:
        kills.append(Act(at + dice.uniform(0.05, 1.0), "kill", "rollback"))
    return kills


def _kill(dice: random.Random, at: float) -> Act:
    return Act(at, "kill", ",".join(sorted(dice.sample(VICTIMS, dice.randint(1, 5)))))
