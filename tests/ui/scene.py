"""Scenes: fixed values for every screen, so that a picture is the same on every machine."""

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from console.common.progress import Figures, Progress
from console.frontends.tui.watch.baseline import BaselineView
from console.frontends.tui.watch.history import RunRow
from console.frontends.tui.watch.run import Snapshot
from console.host import process
from console.host.gpu.figures import GpuReport, GpuSample
from console.host.sample import DiskSample, MemorySample, Sample
from console.journal.events import RunCreated
from console.journal.guard_status import NOBODY, OK, GuardView, marks_of
from console.journal.run_dir import RunDir
from console.journal.run_files import log_files
from console.journal.run_view import GateVerdict, RunView, StepView
from console.journal.samples import Gauge
from console.journal.state import RunState, StepState
from console.recovery.guard.config import defaults
from console.recovery.rollback.baseline_state import BaselineState, Figure, Word
from console.recovery.rollback.progress import Result
from console.runner.prepare.catalog import Entry
from tests.watch import guard_ring

GIB = 2**30
NOW = 1_790_000_000.0
"""Every scene's time, Unix seconds."""
CLOCKS = ("console.frontends.tui.app", "screens.run_panels", "screens.emergency", "screens.base",
          "widgets.bars", "widgets.detail", "widgets.steps")  # fmt: skip
"""Modules of the faces that read the clock."""
STANDING = SimpleNamespace(
    time=lambda: NOW, monotonic=lambda: 100.0, localtime=time.gmtime, strftime=time.strftime
)
"""In place of `time` there: every look is at the same instant, in UTC."""

STEPS = [
    ("image", "Host", "check", "Is the image there?", 1.0),
    ("archs", "Host", "run", "Which architectures the build knows", 4.0),
    ("port", "Host", "check", "Is port 8001 free?", 1.0),
    ("baseline:measure", "Trial", "baseline:measure", "Measure the baseline", None),
    ("baseline:stop", "Trial", "baseline:stop", "Stop the baseline", None),
    ("up", "Trial", "service", "Start ik_llama.cpp on :8001", 240.0),
    ("bench", "Trial", "benchmark", "Measure it with the baseline's prompts", 600.0),
    ("go", "Trial", "gate", "Fast enough to switch?", None),
    ("look", "Trial", "approval", "Read three answers, then say whether they make sense", None),
    ("restore", "Restore", "restore", "Restore the baseline", 74.0),
    ("report", "Finally", "report", "Write the report", None),
]


def view(done: int, **changes: Any) -> RunView:
    """A run whose first `done` steps succeeded; the next one is the current step."""
    steps = []
    at = NOW - 960
    for number, (name, phase, kind, title, takes) in enumerate(STEPS):
        step = StepView(name, title, phase, kind, takes, implicit=":" in name or kind == "restore")
        if number < done:
            step.state, step.attempt = StepState.SUCCEEDED, 1
            step.started, step.duration_s = at, (takes or 20.0) * 1.1
            at += step.duration_s
        steps.append(step)
    made = RunView(
        run_id="20261120-140312-ik-llama-phase2-1a2b", title="Replace llama.cpp with ik_llama.cpp",
        playbook="ik-llama-phase2", site="workstation", owner="ann", created=NOW - 965,
        state=RunState.RUNNING, restore_s=74.0, steps=steps,
        inputs={"port": "8001", "ctx": "8192"},
    )  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made


RATES = (21.1, 21.4, 21.3, 21.3, 20.9, 21.6, 21.4, 21.2, 21.3)
"""The rate of each run of the benchmark."""
WAITS = (0.92, 0.8, 0.81, 0.81, 0.79, 0.83, 0.8, 0.82, 0.81)
"""And the time to the first token."""


def measured(made: RunView, runs: int) -> RunView:
    """With so many runs of its benchmark, beside the baseline's figures and the gate's rules."""
    made.steps[6].runs = [
        {"tok_s": r, "ttft_s": t, "void": ""} for r, t in zip(RATES[:runs], WAITS, strict=False)
    ]
    made.metrics = {
        "bench.baseline": {
            "tok_s": {"value": 10.7, "unit": "tok/s"},
            "ttft_s": {"value": 1.9, "unit": "s"},
        },
    }
    if runs == len(RATES):
        made.metrics["bench"] = {
            "tok_s": {"value": 21.3, "unit": "tok/s"},
            "ttft_s": {"value": 0.81, "unit": "s"},
        }
    made.header = RunCreated(
        targets=[
            {"gate": "go", "metric": "bench.tok_s", "go": ">= 20 tok/s", "no_go": "< 12 tok/s"},
            {"gate": "go", "metric": "bench.ttft_s", "go": "< 2 s", "no_go": ""},
        ]
    )
    return made


def running() -> RunView:
    """A benchmark runs while the baseline is down."""
    made = measured(view(6, outage=True), 4)
    step = made.steps[6]
    step.state, step.attempt, step.started = StepState.RUNNING, 1, NOW - 245
    step.message = "run 4 of 9: 21.3 tok/s, first token after 0.81 s"
    step.progress = Progress(Figures(4, 9, "run"), NOW - 10, 0, NOW - 245)
    step.effects = ["POST http://127.0.0.1:8001/v1/chat/completions, 9 runs of 256 tokens"]
    return made


def loading() -> RunView:
    """A candidate loads: so many bytes of its model are in memory."""
    made = view(5, outage=True, down_since=NOW - 95)
    step = made.steps[5]
    step.state, step.attempt, step.started = StepState.RUNNING, 1, NOW - 88
    step.message = "candidate: loading: HTTP 503, Loading model"
    step.progress = Progress(Figures(112 * GIB, 305 * GIB, "B"), NOW - 1, 0, NOW - 88)
    step.effects = ["docker run ik_llama.cpp: llama-server -m /models/r1.gguf -ngl 20 --port 8001"]
    return made


def held() -> RunView:
    """A gate without enough valid samples asks what to do."""
    made = measured(view(7, state=RunState.PAUSED, reason="few_samples", outage=True), 2)
    made.detail = "bench: 2 valid runs, 7 discarded: another engine was busy: llama-server pid 411"
    made.offer = "measure the candidate again (bench)"
    step = made.steps[7]
    step.state, step.attempt, step.duration_s = StepState.SUCCEEDED, 1, 0.2
    step.started = NOW - 40
    made.steps[6].warned = True
    why = "bench.tok_s 21.3 tok/s: 2 of 9 runs valid; 5 needed"
    row = {"metric": "bench.tok_s", "verdict": "HOLD", "why": why}
    made.verdicts = [GateVerdict(step="go", verdict="HOLD", criteria=[row])]
    return made


def approval() -> RunView:
    made = measured(view(8, state=RunState.WAITING_APPROVAL, outage=True), len(RATES))
    made.detail = "Do the three answers in the log make sense? The baseline is down meanwhile."
    made.steps[8].state, made.steps[8].attempt = StepState.RUNNING, 1
    made.steps[8].started = NOW - 30
    made.verdicts = [verdict("GO", "soak")]
    return made


def failed() -> RunView:
    made = view(5, state=RunState.PAUSED, reason="step_failed", outage=True)
    step = made.steps[5]
    step.state, step.attempt, step.cause = StepState.FAILED, 2, "not_ready"
    step.started, step.duration_s = NOW - 200, 61.2
    step.detail = "candidate died: container exited (1)"
    step.lines = [
        "llama_model_load: error loading model architecture: unknown model architecture: "
        "'deepseek3_2'",
        "llama_model_load_from_file_impl: failed to load model",
        "srv  load_model: failed to load model, '/models/deepseek-v32-q4.gguf'",
    ]
    return made


def ended() -> RunView:
    made = view(len(STEPS), state=RunState.ROLLED_BACK, ended=NOW - 10)
    measured(made, len(RATES))
    for run in made.steps[6].runs:
        run["tok_s"] = round(run["tok_s"] * 0.52, 1)
    made.metrics["bench"]["tok_s"]["value"] = 11.1
    made.verdicts = [verdict("NO-GO", "retain")]
    made.finished = True
    return made


def verdict(word: str, outcome: str) -> GateVerdict:
    said = "21.3 tok/s (20.9 to 21.6 tok/s) meets >= 20 tok/s"
    if word == "NO-GO":
        said = "11.1 tok/s (10.9 to 11.2 tok/s) is NO-GO by < 12 tok/s"
    why = f"bench.tok_s {said} (9 valid samples)"
    rows = [
        {"metric": "bench.tok_s", "verdict": word, "why": why},
        {"metric": "bench.ttft_s", "verdict": "GO",
         "why": "bench.ttft_s 0.81 s (0.79 to 0.92 s) meets < 2 s (9 valid samples)"},
    ]  # fmt: skip
    return GateVerdict(step="go", verdict=word, outcome=outcome, criteria=rows)


def earlier(view: RunView) -> list[RunRow]:
    """Three runs of the same playbook, the newest first."""
    return [
        RunRow(
            f"202611{day}-140312-{view.playbook}-{tail}", view.playbook, view.title, state,
            decision, outcome, NOW - ago * 86_400, took,
        )
        for day, tail, state, decision, outcome, ago, took in (
            ("13", "77c0", "succeeded", "hold", "", 7, 1_322.0),
            ("10", "0b1e", "rolled_back", "no_go", "retain", 10, 955.0),
            ("02", "9f3a", "failed", "", "", 18, 131.0),
        )
    ]  # fmt: skip


def snapshot(run: RunDir | None, made: RunView, **changes: Any) -> Snapshot:
    fields: dict[str, Any] = {
        "run": run, "view": made, "word": str(made.state), "alive": not made.over,
        "live": not made.over, "control": control_of(made), "stages": (), "is_rolling_back": False,
        "restore_s": made.restore_s, "sealed": None, "trouble": "",
        "logs": log_files(run, made, None) if run is not None else (),
    }  # fmt: skip
    return Snapshot(**{**fields, **changes})


def control_of(made: RunView) -> dict[str, Any]:
    current = made.current
    return {
        "state": str(made.state), "reason": made.reason, "step": current.id if current else "",
        "attempt": current.attempt if current else 0, "evidence": "e", "mode": "gate",
        "confirm": "",
    }  # fmt: skip


def nothing() -> Snapshot:
    return snapshot(
        None, RunView(), word="none", alive=False, live=False, control={}, restore_s=None
    )


def baseline(word: str = "serving", planned: bool = False, **changes: Any) -> BaselineView:
    """As it is known 400 s after its newest proof; changes are those of its state."""
    fields: dict[str, Any] = {
        "figure": Figure(10.9, NOW - 400, "a rollback"), "proven_at": NOW - 400,
        "proven_by": "a rollback", "at": NOW, "by": "its health path",
    }  # fmt: skip
    state = BaselineState(Word(word), **{**fields, **changes})
    source = "/home/ann/.config/omni-console/site.yaml"
    return BaselineView(state, "deepseek-r1", "http://127.0.0.1:8000", 10.9, source, planned)


def sample(at: float = 100.0) -> Sample:
    """Two cards, one of them hot and full; RAM under pressure."""
    cards = (
        GpuSample("GPU-a", 0, "NVIDIA RTX PRO 6000", 91 * GIB, 96 * GIB, 0.87, 64, 412, 600),
        GpuSample("GPU-b", 1, "NVIDIA GeForce RTX 5090", 27 * GIB, 32 * GIB, 0.35, 84, 350, 575),
    )
    memory = MemorySample(377 * GIB, 58 * GIB, 207 * GIB, 3 * GIB, 0.0, 1_200_000.0, 2.3, 0.4)
    disks = (DiskSample("/", 3_600 * GIB, 812 * GIB),)
    return Sample(at, memory, disks, GpuReport(at, cards))


def recorded(until: float = NOW) -> list[Gauge]:
    """Ten minutes before: RAM and both cards fill up, the cards work in waves."""
    found = []
    for second in range(600):
        part = second / 600
        filled = {"GPU-a": 96 * GIB * min(0.95, 0.1 + part), "GPU-b": 32 * GIB * min(0.84, part)}
        busy = {
            "GPU-a": 0.5 + 0.4 * math.sin(second / 40),
            "GPU-b": 0.3 + 0.2 * math.sin(second / 60),
        }
        watt = {"GPU-a": 80 + 350 * part, "GPU-b": 60 + 290 * part}
        at, ram = until - 600 + second, 319 * GIB * min(1.0, 0.2 + part)
        cards = {"gpu": filled, "busy": busy, "watt": watt}
        found.append(Gauge(at, "up", cards, ram, 3 * GIB * part, 2.3 * part))
    return found


def guard(run: RunDir | None, **changes: Any) -> GuardView:
    """A guard that sees RAM fill, a minute before it would act."""
    limits = defaults(377 * GIB, 207 * GIB).limits
    fields: dict[str, Any] = {
        "run": run, "word": OK, "at": 100.0, "tte_s": 61.0, "rate": 0.9 * GIB, "limits": limits,
        "marks": marks_of(limits),
    }  # fmt: skip
    return GuardView(**{**fields, **changes})


def breached(run: RunDir) -> GuardView:
    """A breach as it lies on the disk, from the boot before."""
    with patch.object(process, "boot_id", lambda: "the boot before"):
        guard_ring.record(run)
    synced = guard_ring.WALL + guard_ring.END_S + 1.2
    os.utime(run.path / "guard" / "recorder.ring", (synced, synced))
    guard_ring.climbed(run, ("memory", 2.1), ("serving", 74.0))
    return GuardView(run, "acted", breach=guard_ring.breach(run))


class StandInWatchers:
    """Watchers that say what the scene says, once: the boundary where real watchers plug in."""

    def __init__(
        self, scene: Snapshot, base: BaselineView, look: Sample, readonly: bool = False
    ) -> None:
        self.site: str | None = None
        self.readonly = readonly
        self.scene, self.base, self.look = scene, base, look
        self.recorded: list[Gauge] = []
        self.emergency = SimpleNamespace(press=self._press)
        self.baseline = SimpleNamespace(
            verify=lambda: "serving: 8 tokens, 10.9 tok/s", look=lambda: None
        )
        self.watch = SimpleNamespace(show=lambda run: None, look=lambda: None)
        self.presses = 0
        self.guard = SimpleNamespace(latest=NOBODY)
        self.baseline_log = None
        self.logs = scene.logs
        self.starting: threading.Thread | None = None
        self.started = ""
        self.tell: Callable[[Snapshot], None] = lambda snapshot: None

    def earlier(self, view: RunView) -> list[RunRow]:
        return earlier(view)

    def playbooks(self) -> list[Entry]:
        return [
            Entry(Path("/p/baseline-verify.yaml"), "baseline-verify", "Prove what serves now"),
            Entry(Path("/p/operation-lazarus.yaml"), "operation-lazarus", "KTransformers on CPU"),
        ]

    def _press(self) -> SimpleNamespace:
        self.presses += 1
        return SimpleNamespace(how="warm", progress=Climb())

    def first(self) -> Snapshot:
        return self.scene

    def start(self, tell: Any, base: Any, look: Any, recorded: Any) -> None:
        self.tell = tell
        base(self.base)
        look(self.look)
        recorded(self.recorded)

    def follow(self, scene: Snapshot) -> None:
        self.logs = scene.logs

    def close(self) -> None:
        pass


class Climb:
    def __init__(self) -> None:
        stages = [
            ("fence", 0.02, "runner 4711 and 2 of its processes ended"),
            ("stop", 3.41, "container omni-candidate stopped"),
            ("memory", 4.05, "GPU memory in use: 1.2 GiB"),
            ("start", 4.31, "container deepseek-r1 started"),
            ("ready", 73.2, "ready after 68.9 s"),
            ("completion", 74.0, "answered 8 tokens"),
            ("serving", 74.0, "the baseline serves"),
        ]
        self.lines = [{"rung": r, "state": "ok", "t": t, "detail": said} for r, t, said in stages]

        self.result = Result(True, tok_s=10.8, reference=10.9, restore_s=74.0)
        self.trouble = self.site = self.site_path = self.run_id = ""


def run_dir(place: Path) -> RunDir:
    run = RunDir(place / "20261120-140312-ik-llama-phase2-1a2b")
    for part in ("logs", "attempts", "rollback"):
        (run.path / part).mkdir(parents=True)
    lines = [
        f"2026-11-20T14:0{n // 60}:{n % 60:02d}.120000000Z slot print_timing: id 0 | task {n} | "
        f"eval time = 11987.21 ms / 256 tokens (21.36 tokens per second)"
        for n in range(90)
    ]
    lines[70] = "2026-11-20T14:01:10.120000000Z CUDA error: out of memory in ggml_cuda_pool"
    run.log("candidate").write_text("\n".join(lines) + "\n")
    return run
