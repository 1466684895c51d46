"""A server, its watch and a clock for soaks that take no time."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from console.bench.sample import Sample
from console.bench.soak import End, Look, Soak, SoakPlan
from console.bench.soak_requests import Answer
from console.bench.soak_stats import Line, Patience, Tally
from tests.clock import FakeClock

LOOK_S = 5.0
Script = Callable[[int, float], "Turn"]
"""(number of the request, seconds since the beginning) → how it goes."""


class SoakClock(FakeClock):
    """A wait ends at the very moment its event is due."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        due = getattr(event, "due", None)
        if due is not None and due <= self.time + seconds:
            self.time = max(self.time, due)
            return True
        return super().wait(event, seconds)


@dataclass(frozen=True)
class Turn:
    """One request: `tokens` of text, the first after `ttft` seconds, over after `took`. It falls
    silent for good before token `mute`. `error` is its class, `context` its prompt and answer."""

    took: float = 1.0
    ttft: float = 0.2
    tokens: int = 100
    error: str = ""
    words: str = ""
    void: str = ""
    mute: int | None = None
    retries: int = 0
    context: int | None = None


class Due(threading.Event):
    def __init__(self, clock: FakeClock, due: float) -> None:
        super().__init__()
        self.clock, self.due = clock, due

    def is_set(self) -> bool:
        return self.clock.time >= self.due


class Scripted:
    """A request that goes as its turn says."""

    def __init__(self, clock: FakeClock, turn: Turn) -> None:
        self.clock, self.turn, self.begun, self.was_cut = clock, turn, clock.time, False
        hangs = turn.mute is not None
        self.ended: threading.Event = Due(clock, float("inf") if hangs else clock.time + turn.took)

    @property
    def heard(self) -> int:
        turn, since = self.turn, self.clock.time - self.begun
        if since < turn.ttft or turn.error:
            return 0
        share = (since - turn.ttft) / max(1e-9, turn.took - turn.ttft)
        come = min(turn.tokens, 1 + int(share * (turn.tokens - 1)))
        return come if turn.mute is None else min(come, turn.mute)

    def answer(self) -> Answer:
        turn = self.turn
        if turn.error:
            return Answer(Sample(e2e_s=turn.took), turn.error, turn.words or "it went wrong")
        sample = Sample(
            ttft_s=turn.ttft,
            e2e_s=turn.took,
            tok_s=turn.tokens / turn.took,
            chunks=turn.tokens,
            transport_retries=turn.retries,
            prompt_tokens=None if turn.context is None else turn.context - turn.tokens,
            completion_tokens=turn.tokens,
        )
        return Answer(sample, void=turn.void)

    def cut(self) -> None:
        self.was_cut = True
        self.ended = Due(self.clock, self.clock.time + 0.1)


@dataclass
class Server:
    """What is asked and looked at, on one clock. `turn`, `look` and `dead` are the story."""

    turn: Script = lambda number, t: Turn()
    look: Callable[[float], Look | None] = lambda t: Look(2**30, 2**29, None, {"process": "1 1"})
    dead: Callable[[float], str] = lambda t: ""
    clock: SoakClock = field(default_factory=SoakClock)
    lines: list[Line] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    out: list[Scripted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begun = self.looked = self.clock.time

    @property
    def t(self) -> float:
        return self.clock.time - self.begun

    def ask(self, prompt: str) -> Scripted:
        self.prompts.append(prompt)
        self.out.append(Scripted(self.clock, self.turn(len(self.prompts), self.t)))
        return self.out[-1]

    def drain(self) -> list[Look]:
        looks: list[Look] = []
        while self.clock.time >= self.looked:
            found = self.look(self.looked - self.begun)
            self.looked += LOOK_S
            looks += [found] if found is not None else []
        return looks

    def gone(self) -> str:
        return self.dead(self.t)

    def state(self) -> str:
        return "stopped by a signal"

    def soak(
        self, plan: SoakPlan, tally: Tally | None = None, patience: Patience | None = None,
        beat: Callable[[float, float], None] = lambda t, silent_s: None,
    ) -> tuple[Tally, End]:  # fmt: skip
        soak = Soak(
            plan, self.clock, self.ask, self, self.lines.append, beat, tally or Tally(),
            patience or Patience(),
        )  # fmt: skip
        end = soak.run()
        return soak.tally, end


HOUR = SoakPlan(3600.0, prompts=("one", "two", "three"))


def values(tally: Tally) -> dict[str, float | None]:
    return {name: figure["value"] for name, figure in tally.figures().items()}
