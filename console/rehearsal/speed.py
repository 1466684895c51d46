"""How fast a rehearsal is: how much CPU its stand-ins get, and how a playbook's times shrink.

A CPU quota sets a stand-in's speed. The CPU cost of a token is measured on this machine with the
baseline's own container, at the quota it then runs with, and remembered. A playbook's gates stay as
they are written; they only determine the quota of the candidate's stand-in.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from console.bench.metrics import QUALITY_METRICS, TASK_METRICS, metric_of
from console.common import paths, record
from console.common.errors import ServiceError, UsageError
from console.common.record import RecordError
from console.common.units import number, parse_duration
from console.config.playbook.kinds import AtMost, mark_of, model_of
from console.config.playbook.measuring_steps import ContractStep
from console.config.playbook.steps import CriterionModel, Step
from console.config.playbook.threshold import Threshold
from console.rehearsal import image, workspace
from console.rehearsal.inside.settings import HOLDS
from console.rehearsal.workspace import Mapping
from console.runtime.answers.completion import complete
from console.runtime.docker.client import ask, inspect
from console.runtime.probe import Health, health

if TYPE_CHECKING:
    import docker

PERIOD_US = 100_000
INNER = 8000
TOKENS, ROUNDS = 32, 3
NEAR = 0.1
"""A quota is accepted if its speed is within this share of the target."""
TRIES = 5
FIRST = 0.009
"""CPUs per tok/s assumed before anything was measured."""
READY_S = 120.0
LABEL = "omni.rehearsal.recipe"
Say = Callable[[str], None]


def container() -> str:
    return workspace.own_name("baseline")


def memory_file() -> Path:
    return paths.rehearsal_dir() / "speed.json"


def known(base: str) -> float | None:
    """CPUs per tok/s measured for this image; None before the first time."""
    try:
        return number(record.load(memory_file())[base])
    except (OSError, RecordError, LookupError, TypeError):
        return None


def bring_up(
    client: docker.DockerClient, mapping: Mapping, port: int, tok_s: float, say: Say
) -> float:
    """Start the container, measure it, set its quota; return CPUs per tok/s; may raise
    ConsoleError."""
    per = known(mapping.base) or FIRST
    tag = image.stands_for("baseline:1")
    image.ensure_stand_in(client, mapping.base, tag, mapping.settings)
    url = f"http://127.0.0.1:{port}"
    _start(client, tag, port)
    deadline = time.monotonic() + READY_S
    while health(url)[0] is not Health.SERVING:
        if time.monotonic() > deadline:
            raise ServiceError(
                "the stand-in baseline does not serve", url, f"docker logs {container()}"
            )
        time.sleep(0.1)
    cpus_per_tok_s = calibrate(
        lambda: _measure(url), lambda cpus: _limit(client, cpus), per, tok_s, say
    )
    memory_file().write_text(json.dumps({mapping.base: cpus_per_tok_s}) + "\n")
    return cpus_per_tok_s


def calibrate(
    measure: Callable[[], float], limit: Callable[[float], None], per: float, tok_s: float, say: Say
) -> float:
    """CPUs per tok/s at which `measure` gives `tok_s`. Raises ServiceError if it never does."""
    for _ in range(TRIES):
        limit(per * tok_s)
        seen = measure()
        say(f"stand-in baseline: {seen:.1f} tok/s at {per * tok_s:.3f} CPUs, wanted {tok_s:.1f}")
        if abs(seen / tok_s - 1) <= NEAR:
            return per
        per *= tok_s / seen
    raise ServiceError(
        "the stand-ins' speed cannot be set", f"{seen:.1f} tok/s where {tok_s:.1f} are wanted",
        "something else keeps the processors busy; try again when it is done",
    )  # fmt: skip


def _measure(url: str) -> float:
    """tok/s of whole requests, the median of a few."""
    speeds = []
    for _ in range(ROUNDS):
        done = complete(url, max_tokens=TOKENS)
        if not done.ok or not done.tokens:
            raise ServiceError("the stand-in baseline does not answer", done.detail)
        speeds.append(done.tokens / done.elapsed_s)
    return statistics.median(speeds)


def _start(client: docker.DockerClient, tag: str, port: int) -> None:
    """Start without a quota at first, so that it is ready soon."""
    from docker import types

    api: Any = client.api
    if inspect(client, container()) is not None:
        ask("Removing the last rehearsal's baseline",
            lambda: api.remove_container(container(), force=True, v=True))  # fmt: skip
    host = api.create_host_config(
        port_bindings={INNER: ("127.0.0.1", port)}, init=True, pids_limit=4096,
        cpu_period=PERIOD_US, cpu_quota=PERIOD_US, restart_policy={"Name": "no"},
        mounts=[types.Mount(HOLDS, str(workspace.holds()), type="bind")],
    )  # fmt: skip
    command = ["llama-server", "--host", "0.0.0.0", "--port", str(INNER), "--alias", "baseline",
               "--model", "baseline.gguf"]  # fmt: skip
    made = ask(
        "Creating the stand-in baseline",
        lambda: api.create_container(
            tag, command=command, name=container(), ports=[INNER], host_config=host,
            labels={image.LABEL: "baseline"},
        ),
    )  # fmt: skip
    ask("Starting the stand-in baseline", lambda: api.start(made["Id"]))


def _limit(client: docker.DockerClient, cpus: float) -> None:
    api: Any = client.api
    ask(
        "Setting the stand-in's quota",
        lambda: api.update_container(
            container(), cpu_period=PERIOD_US, cpu_quota=max(1000, int(cpus * PERIOD_US))
        ),
    )


def stop(client: docker.DockerClient) -> None:
    """Stop the container and keep it. Raises EngineError."""
    api: Any = client.api
    if inspect(client, container()) is not None:
        ask("Stopping the stand-in baseline", lambda: api.stop(container(), timeout=5), 30.0)


ABOVE, BELOW = 1.4, 0.7
"""Factors on a threshold to aim at for a GO and for an abort: on a shared machine the cost of a
token drifts by a fifth within minutes."""
FAST, SLOW = 1.6, 0.4
"""The same for the two speeds between which an unsteady candidate changes: their mean is the
threshold, so that its samples decide neither way."""
ROOM = 0.15
"""Least share of its middle that a grey zone has on either side: less, and a drift leaves it."""
FALLBACK = 12.0
"""tok/s assumed for a playbook without a gate on speed."""

SOAK_S, ANSWER_S = 20.0, 0.7
"""A soak's least duration, and the most that one of its short answers takes, seconds."""
FILL, FILL_S, TURN_S = 7000, 120.0, 2.0
"""Most tokens of a stand-in's context that a soak fills, how long a slow one takes to do so, and
the most that one answer in such a conversation takes."""
PROMPT = 1024
"""Most tokens of a prompt: so many take long enough for an estimate of the rate by their time."""
MODEL_AS_GOOD = {
    name: (value, QUALITY_METRICS[name].unit)
    for name, value in (
        ("mean_kld", 0.0001), ("top1_agreement", 0.999), ("ppl", 5.0), ("ppl_ratio", 1.0),
    )
}  # fmt: skip
TASKS_PASSED = {"correct": (1.0, TASK_METRICS["correct"].unit)}
"""What a quality step measures in a rehearsal: figure and unit."""
STABLE_S = 2.0
SAMPLES = 10

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TargetSpeeds:
    """tok/s of a candidate that passes, of one that is too slow, of one in between (or None);
    `required`: the most demanding threshold, 0.0 if no gate names a speed."""

    good: float
    slow: float
    grey: float | None
    required: float = 0.0

    def speed(self, fault: str) -> float:
        """The speed for a fault. Raises UsageError for a grey zone where no gate is on a speed."""
        if fault == "grey" and self.grey is None:
            if not self.required:
                raise UsageError(
                    "this playbook has no grey zone", "no gate asks for a speed",
                    "without --fault it rehearses its GO",
                )  # fmt: skip
            return self.required * FAST
        return {"slow": self.slow, "grey": self.grey or 0.0}.get(fault, self.good)

    @property
    def unsteady(self) -> float:
        """tok/s of every other answer where no gate leaves room enough between abort and GO; 0.0
        where one does."""
        return self.required * SLOW if self.grey is None else 0.0


def target_speeds(criteria: Iterable[CriterionModel], baseline_tok_s: float) -> TargetSpeeds:
    """Target speeds from every criterion on generated tok/s; relative ones by the baseline."""
    goes: list[float] = []
    aborts: list[float] = []
    zones: list[float] = []
    for criterion in criteria:
        metric = metric_of(criterion.metric)
        if metric is None or not metric.generates:
            continue
        go = _value(criterion.go, baseline_tok_s, (">", ">="))
        abort = _value(criterion.no_go, baseline_tok_s, ("<", "<="))
        goes += [go] if go else []
        aborts += [abort or go] if abort or go else []
        middle = (go + abort) / 2
        if abort and go - middle >= middle * ROOM:
            zones.append(middle)
    most = max(goes, default=FALLBACK)
    return TargetSpeeds(
        most * ABOVE, min(aborts, default=most) * BELOW, min(zones, default=None),
        max([*goes, *aborts], default=0.0),
    )  # fmt: skip


def _value(threshold: Threshold | None, baseline_tok_s: float, operators: tuple[str, ...]) -> float:
    """The threshold in tok/s; 0.0 if there is none of that kind."""
    if threshold is None or threshold.op not in operators:
        return 0.0
    return threshold.value * (baseline_tok_s if threshold.relative else 1.0)


def shorten(tree: Tree, steps: list[Tree], notes: list[str]) -> None:
    """Shorten the times of a playbook and its steps, in place: it measures the same, for less long.
    Each change is a line in `notes`."""
    for name, service in (tree.get("services") or {}).items():
        ready = service.get("ready") if isinstance(service, dict) else None
        if isinstance(ready, dict):
            _cap_time(ready, "stable_for", STABLE_S, f"service {name}: ready", notes)
    for step in steps:
        where = f"step {step.get('id')}:"
        for kind, field in Step.model_fields.items():
            model = model_of(field)
            if model is not None and isinstance(step.get(kind), dict):
                _shorten(model, step[kind], where, kind, notes)
        if isinstance(step.get("benchmark"), dict):
            _cap_prompts(step["benchmark"], where, notes)
        if isinstance(step.get("soak"), dict):
            _soak(steps, step, where, notes)


def _shorten(model: type[BaseModel], table: Tree, where: str, kind: str, notes: list[str]) -> None:
    """What is declared with the fields of a kind: `AtMost`."""
    for key, field in model.model_fields.items():
        limit = mark_of(field, AtMost)
        if limit is None or (model is ContractStep and "suite" in table and "cases" not in table):
            continue  # a suite alone is not repeated
        usual = None if field.is_required() else field.default
        if isinstance(usual, float) or isinstance(table.get(key), str):
            written = "" if usual is None else f"{usual:g}s"
            _cap_time(table, key, limit.value, f"{where} {kind}", notes, otherwise=written)
        else:
            _cap(table, key, int(limit.value), usual or 0, where, notes)


def make_up(step: Tree, where: str, notes: list[str]) -> None:
    """In place of a quality step a command that prints the figures of a model that is as good:
    stand-ins have no other."""
    figures = TASKS_PASSED if step.pop("quality").get("tasks") else MODEL_AS_GOOD
    words = "; ".join(f"{name}={value}" for name, (value, _) in figures.items())
    step["run"] = ["echo", words]
    step["outputs"] = {
        name: {"pattern": f"{name}=([0-9.]+)", "unit": unit} for name, (_, unit) in figures.items()
    }
    notes.append(f"{where}: no model is asked, its figures are made up: {words}")


def _soak(steps: list[Tree], step: Tree, where: str, notes: list[str]) -> None:
    """A duration for as many requests as the gates want, each of two tokens."""
    soak = step["soak"]
    needs = max([SAMPLES, *_gate_samples(steps, str(step.get("id")))])
    minimum_s, answer_s = (FILL_S, TURN_S) if "context" in soak else (SOAK_S, ANSWER_S)
    _cap(soak, "context", FILL, 0, where, notes)
    _cap_time(soak, "duration", max(minimum_s, needs * answer_s), f"{where} soak", notes)


def _gate_samples(steps: list[Tree], soak: str) -> Iterator[int]:
    for step in steps:
        for criterion in step.get("gate") or ():
            if isinstance(criterion, dict) and str(criterion.get("metric", "")).startswith(
                f"{soak}."
            ):
                yield int(criterion.get("min_samples") or 0)


def _cap(table: Tree, key: str, most: int, otherwise: int, where: str, notes: list[str]) -> None:
    written = table.get(key, otherwise)
    if isinstance(written, int) and written > most:
        notes.append(f"{where} {key} {written} → {most}")
        table[key] = most


def _cap_prompts(benchmark: Tree, where: str, notes: list[str]) -> None:
    """One length, the longest that is not too long."""
    written = benchmark.get("prompt_lengths")
    lengths = (
        [length for length in written if isinstance(length, int)]
        if isinstance(written, list)
        else []
    )
    shorter = [min(PROMPT, max(lengths, default=PROMPT))]
    if lengths and written != shorter:
        notes.append(f"{where} prompt_lengths {written} → {shorter}")
        benchmark["prompt_lengths"] = shorter


def _cap_time(
    table: Tree, key: str, limit_s: float, where: str, notes: list[str], otherwise: str = ""
) -> None:
    written = table.get(key, otherwise)
    try:
        seconds = parse_duration(written) if isinstance(written, str) and written else 0.0
    except ValueError:
        return  # the loader reports it
    if seconds > limit_s:
        table[key] = f"{limit_s * 1000:.0f}ms" if limit_s < 1 else f"{limit_s:.0f}s"
        notes.append(f"{where} {key} {written} → {table[key]}")
