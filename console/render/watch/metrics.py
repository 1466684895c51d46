"""Figures in the text format of Prometheus, version 0.0.4. Pure.

Names are as Prometheus asks: base units, `_total` for what only grows. What is counted from files
that `clean` may remove (runs, gates) can become less, so it is a gauge. A figure that nobody knows
is left out, never 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from console.common.text import clean
from console.host.sample import Sample
from console.journal.state import Mark
from console.journal.watch_record import WORDS, WatchState
from console.recovery.rollback.baseline_state import BaselineState, Word

GAUGE, COUNTER = "gauge", "counter"
Labels = Mapping[str, str]
Row = tuple[Labels, float | None]


@dataclass(frozen=True, slots=True)
class BaselineFacts:
    """`state` None: nobody could look. Rates in tok/s, durations in seconds."""

    site: str
    state: BaselineState | None = None
    ttft_s: float | None = None
    reference: float | None = None
    restore_s: float | None = None
    """How long a restore usually takes."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One kept run; `gates` is verdict → how many, `kills` what the guard killed. `mark`: what goes
    with its decision, see RunView."""

    state: str
    decision: str
    gates: Mapping[str, int] = field(default_factory=dict)
    kills: int = 0
    created: float = 0.0
    restored_s: float | None = None
    mark: str = ""


def text(
    version: str, baseline: BaselineFacts, watch: WatchState | None, runs: Iterable[RunFacts],
    sample: Sample | None,
) -> str:  # fmt: skip
    """The whole page."""
    out: list[str] = []
    families = [
        *_console(version), *_baseline(baseline), *_watch(watch, baseline.site),
        *_runs(list(runs)), *(_machine(sample) if sample is not None else ()),
    ]  # fmt: skip
    for name, kind, words, rows in families:
        samples = [(labels, value) for labels, value in rows if value is not None]
        if not samples:
            continue
        out += [f"# HELP {name} {_help(words)}", f"# TYPE {name} {kind}"]
        out += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(out) + "\n"


Family = tuple[str, str, str, list[Row]]


def _family(
    name: str, words: str, value: float | bool | None, labels: Labels | None = None
) -> Family:
    kind = COUNTER if name.endswith("_total") else GAUGE
    return name, kind, words, [(labels or {}, None if value is None else float(value))]


def _console(version: str) -> Iterator[Family]:
    yield _family("omni_build_info", "The release of omni-console.", 1, {"version": version})


def _baseline(facts: BaselineFacts) -> Iterator[Family]:
    site = {"site": facts.site}
    if facts.state is not None:
        yield from _state(facts.state, site)
    yield _family(
        "omni_baseline_time_to_first_token_seconds", "Of the watch's last completion: all of it "
        "less what the tokens after the first took.", facts.ttft_s, site,
    )  # fmt: skip
    yield _family(
        "omni_baseline_reference_tokens_per_second", "The reference of the site file.",
        facts.reference, site,
    )  # fmt: skip
    yield _family(
        "omni_rollback_expected_seconds", "Median of the last five restores.",
        facts.restore_s, site,
    )  # fmt: skip


def _state(state: BaselineState, site: Labels) -> Iterator[Family]:
    rate = state.figure
    yield _family(
        "omni_baseline_up", "Whether the baseline serves, by the newest evidence of any witness.",
        state.up, site,
    )  # fmt: skip
    yield _family(
        "omni_baseline_proven", "Whether a completion has proven the server that is there now; 0 "
        "for one of which only the health path answers.", state.proven, site,
    )  # fmt: skip
    yield (
        "omni_baseline_state", GAUGE, "How the baseline is: 1 for one of the states.",
        [({**site, "state": word}, float(word is state.word)) for word in Word],
    )  # fmt: skip
    yield _family(
        "omni_baseline_evidence_timestamp_seconds", "When that was seen.", state.at or None, site
    )
    yield _family(
        "omni_baseline_tokens_per_second", "Newest decode rate, by a proof, the watch or a "
        "benchmark.", rate.tok_s if rate else None, site,
    )  # fmt: skip
    yield _family(
        "omni_baseline_tokens_per_second_timestamp_seconds", "When that rate was measured.",
        rate.at if rate else None, site,
    )  # fmt: skip
    yield _family(
        "omni_baseline_tokens_per_second_beside_others", "Whether it was measured beside requests "
        "of others, so that the server may be faster.", rate.beside if rate else None, site,
    )  # fmt: skip
    yield _family(
        "omni_baseline_proof_timestamp_seconds", "When a completion was answered last.",
        state.proven_at or None, site,
    )  # fmt: skip
    yield _family(
        "omni_baseline_degraded", "Whether the last whole measurement was below the reference.",
        state.word is Word.DEGRADED, site,
    )  # fmt: skip


RUNS = "Whether the watch runs and looks."


def _watch(state: WatchState | None, name: str) -> Iterator[Family]:
    if state is None:
        yield _family("omni_watch_running", RUNS, 0, {"site": name})
        return
    site = {"site": name}
    yield _family("omni_watch_running", RUNS, state.looks_on(time.time()), site)
    yield (
        "omni_watch_state", GAUGE, "What the watch's last look said: 1 for one of the states.",
        [({**site, "state": word}, float(word == state.word)) for word in WORDS],
    )  # fmt: skip
    yield _family(
        "omni_watch_last_look_timestamp_seconds", "When the watch looked last.",
        state.at or None, site,
    )  # fmt: skip
    yield _family(
        "omni_watch_usual_tokens_per_second", "The speed by which the watch judges.",
        state.reference, site,
    )  # fmt: skip
    yield _family(
        "omni_watch_recent_tokens_per_second", "Median of the watch's last figures.",
        state.level, site,
    )  # fmt: skip
    yield _family(
        "omni_watch_slow", "Whether the baseline is slower than usual, beyond noise.",
        state.slow_since > 0, site,
    )  # fmt: skip
    yield _family("omni_watch_looks_total", "Looks of the watch.", state.looks, site)
    yield _family("omni_watch_completions_total", "Completions it asked for.", state.asks, site)
    yield _family("omni_watch_restores_total", "Rollbacks it started.", state.restored, site)
    yield (
        "omni_watch_events_total", COUNTER, "What it told an operator, by kind.",
        [({**site, "event": kind}, count) for kind, count in sorted(state.events.items())],
    )  # fmt: skip


def _runs(runs: list[RunFacts]) -> Iterator[Family]:
    ends: dict[tuple[str, str], int] = {}
    gates: dict[tuple[str, str], int] = {}
    for run in runs:
        ends[run.state, run.decision] = ends.get((run.state, run.decision), 0) + 1
        for verdict, count in run.gates.items():
            marked = (verdict, run.mark.lower())
            gates[marked] = gates.get(marked, 0) + count
    yield (
        "omni_runs", GAUGE, "Runs that are kept here, by state and decision.",
        [({"state": s, "decision": d}, float(n)) for (s, d), n in sorted(ends.items())],
    )  # fmt: skip
    yield (
        "omni_gates", GAUGE, "Gates of these runs, by verdict and by what marks the run.",
        [({"verdict": verdict, **({"mark": mark} if mark else {})}, float(count))
         for (verdict, mark), count in sorted(gates.items())],
    )  # fmt: skip
    doubtful = sum(run.mark == Mark.DOUBTFUL for run in runs)
    yield _family("omni_runs_doubtful", "Runs with a gate that would decide otherwise, as the "
               "baseline moved meanwhile.", doubtful)  # fmt: skip
    yield _family("omni_guard_kills", "Loads of these runs that the guard stopped.",
               sum(run.kills for run in runs))  # fmt: skip
    restored = [run for run in runs if run.restored_s is not None]
    last = max(restored, key=lambda run: run.created, default=None)
    yield _family("omni_rollback_last_restore_seconds", "How long the last restore of a run took.",
               last.restored_s if last else None)  # fmt: skip


def _machine(sample: Sample) -> Iterator[Family]:
    cards = sample.gpu.gpus if sample.gpu is not None else ()
    named = [({"gpu": str(g.index), "uuid": g.uuid, "name": g.name}, g) for g in cards]
    for name, words, rows in (
        ("memory_used_bytes", "Memory of a card in use.", [(n, g.used_bytes) for n, g in named]),
        ("memory_size_bytes", "Memory of a card.", [(n, g.total_bytes) for n, g in named]),
        ("utilization_ratio", "How busy a card is.", [(n, g.utilisation) for n, g in named]),
        ("power_watts", "What a card draws.", [(n, g.power_w) for n, g in named]),
        ("power_limit_watts", "What a card may draw.", [(n, g.power_limit_w) for n, g in named]),
        ("temperature_celsius", "Of a card.", [(n, g.temperature_c) for n, g in named]),
    ):
        yield (
            f"omni_gpu_{name}",
            GAUGE,
            words,
            [(n, None if v is None else float(v)) for n, v in rows],
        )
    if (memory := sample.memory) is not None:
        yield _family("omni_memory_size_bytes", "RAM of the machine.", memory.total)
        yield _family("omni_memory_available_bytes", "RAM that is available.", memory.available)
        yield _family("omni_swap_size_bytes", "Swap of the machine.", memory.swap_total)
        yield _family("omni_swap_used_bytes", "Swap in use.", memory.swap_used)
        yield (
            "omni_memory_pressure_ratio", GAUGE,
            "Part of ten seconds in which some task, or all, waited for memory (PSI).",
            [({"kind": kind}, None if value is None else value / 100) for kind, value in
             (("some", memory.pressure_some), ("full", memory.pressure_full))],
        )  # fmt: skip
    disks = [({"path": disk.path}, disk) for disk in sample.disks]
    for name, words, rows in (
        ("size_bytes", "Size of a file system.", [(n, d.total) for n, d in disks]),
        ("free_bytes", "What a user may still write.", [(n, d.free) for n, d in disks]),
    ):
        yield (
            f"omni_disk_{name}",
            GAUGE,
            words,
            [(n, None if v is None else float(v)) for n, v in rows],
        )


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_value(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _value(value: str) -> str:
    return clean(value, 200).replace("\\", "\\\\").replace('"', '\\"')


def _help(words: str) -> str:
    return words.replace("\\", "\\\\").replace("\n", " ")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return f"{value:.0f}" if value == int(value) else repr(value)
