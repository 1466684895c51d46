"""Runs with every kind of end: what their reports say is compared with what they said before.

`STORIES` are told by how they differ from the first trial of `reported`, which missed its target.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.journal.events import Body
from console.journal.run_view import GateDoubt, RunView, StepMeasurement
from console.journal.state import RunState, StepState
from console.render.report.document import evidence, markdown
from console.render.report.next_steps import CAUSES
from tests.runner.unit import reported
from tests.runner.unit.reported import GIB, no_go, soaked, trial, verdict

Story = Callable[[], RunView]
Row = tuple[str, str, dict[str, Any]]
FAST = ("bench.tok_s", "GO", "bench.tok_s 21.34 tok/s meets >= 20 tok/s (9 valid samples)")
AGAIN = "bench.baseline-after.tok_s"
CURED = (
    "tok_s", "prompt_tok_s", "ttft_s", "error_rate", "peak_used", "rss_growth", "restarts", "hangs",
    "errors", "decode_tok_s", "odd",
)  # fmt: skip
"""Names of figures: most are metrics that the program knows a cure for."""


def changed(
    made: RunView,
    *,
    targets: Sequence[dict[str, Any]] = (),
    first: dict[str, Any] | None = None,
    states: dict[int, StepState] | None = None,
    figures: dict[str, dict[str, Any]] | None = None,
    **attributes: Any,
) -> RunView:
    """A run with more `targets`, the `first` of them another, other states of its steps and other
    figures; of attributes that are mappings the keys that are given, of others the whole."""
    made.header.targets.extend(targets)
    if first is not None:
        made.header.targets[0] |= first
    for number, state in (states or {}).items():
        made.steps[number].state = state
    for name, figure in (figures or {}).items():
        owner, _, metric = name.rpartition(".")
        known = made.metrics.setdefault(owner, {})
        known[metric] = {**known.get(metric, {}), **figure}
    for name, value in attributes.items():
        was = getattr(made, name)
        if isinstance(was, Body):
            value = was.changed(**value) if value else type(was)()
        setattr(made, name, {**was, **value} if isinstance(was, dict) and value else value)
    return made


def judged(*criteria: tuple[str, str, str], word: str, outcome: str = "") -> RunView:
    """The first trial, as if its gate had said this."""
    made = no_go()
    last = made.verdicts[-1]
    last.verdict, last.outcome = word, outcome
    last.criteria = verdict("", "", *criteria)["criteria"]
    return made


def held(metric: str = "bench.tok_s", **figures: Any) -> RunView:
    made = judged((metric, "HOLD", f"{metric} does not decide"), word="HOLD", outcome="evaluate")
    return changed(made, figures={metric: {"value": 21.0, "unit": "tok/s", "n": 9, **figures}})


def ended(state: str, *rows: Row, degraded: bool = False) -> RunView:
    """A trial that never came to its gate; `rows`: kind, step and data, before its end."""
    told = trial(6.1)
    told += [(told[-1][0] + n, *row) for n, row in enumerate(rows, 1)]
    return reported.view_of(reported.ending(told, state, degraded=degraded))


def going(state: RunState, reason: str = "") -> RunView:
    """A trial that is not over."""
    begun = (reported.BEGIN + 999, "step.state", "go", {"state": "running"})
    return changed(reported.view_of([*trial(6.1), begun]), state=state, reason=reason)


def go(*, reached: bool = True) -> RunView:
    """A trial whose gate said GO; `reached`: its second gate was passed over, and not cut off."""
    rows = trial(21.34)
    at = reported.done(rows, rows[-1][0], "go", 0.1)
    rows.append((at, "verdict", "go", verdict("GO", "migrate", FAST, reported.QUICK)))
    if reached:
        rows.append((at, "step.state", "stable", {"state": "skipped"}))
    return reported.view_of(reported.ending(rows, "succeeded" if reached else "cancelled"))


def cut_over(what: str) -> RunView:
    cutover = {"service": "ik", "what": what, "who": "ann", "url": "http://127.0.0.1:8000"}
    return changed(go(), outage=True, cutover=cutover)


def no_go_for_every_reason_that_has_a_hint() -> RunView:
    names = [f"bench.{name}" for name in CURED]
    made = judged(*((name, "NO-GO", f"{name} misses") for name in names), word="NO-GO")
    made.header.targets[1]["go"] = "nonsense"
    return changed(
        made,
        figures={
            "bench.error_rate": {"value": 0.5, "unit": "ratio", "n": 9},
            "bench.hangs": {"value": 3, "unit": "count", "n": 9},
        },
        targets=[
            {"gate": "go", "metric": "bench.ttft_s", "go": "< 100 ms"},
            {"gate": "go", "metric": "bench.error_rate", "no_go": "> 40 %"},
            {"gate": "go", "metric": "bench.hangs", "go": "== 0"},
            {"gate": "go", "metric": "bench.prompt_tok_s", "go": ">= 56.12 tok/s"},
        ],
    )


def hold_without_a_figure() -> RunView:
    made = held(value=None)
    made.measured["bench"].benchmark["voids"] = []
    return made


def hold_for_want_of_a_baseline() -> RunView:
    made = changed(held(), first={"go": ">= 1.5 x baseline"})
    del made.metrics["bench.baseline"]
    return made


def go_with_a_service_still_up_and_no_outcome() -> RunView:
    made = changed(
        go(), services=dict.fromkeys(("cand", "other")), figures={"bench.tok_s": {"void": 2}}
    )
    made.verdicts[-1].outcome, made.verdicts[-1].criteria = "", []
    del made.metrics["bench.baseline-after"]
    return made


def an_override() -> RunView:
    made = judged(reported.UNSURE, word="GO", outcome="retain")
    made.verdicts[-1].overridden = "ann: seen by eye"
    return changed(made, states={7: StepState.SKIPPED})


def a_step_that_failed() -> RunView:
    last = "error loading model architecture: unknown model architecture: 'deepseek3_2'"
    failed = {"cause": "not_ready", "detail": "candidate died: container exited (1)"}
    rows = trial(6.1)
    reported.done(rows, rows[-1][0], "soak", 61.2, "failed", lines=["x", last, " "], **failed)
    return reported.view_of(reported.ending(rows, "failed"))


def steps_that_failed_for_every_cause() -> RunView:
    made = changed(a_step_that_failed(), verdicts=[])
    for step, cause in zip(made.steps * 2, ["", *CAUSES, "odd"], strict=False):
        step.state, step.cause, step.detail = StepState.FAILED, cause, f"because of {cause}"
    return changed(made, states={0: StepState.IN_DOUBT, 1: StepState.CANCELLED})


def a_playbook_without_a_gate() -> RunView:
    made = ended("succeeded")
    return changed(made, verdicts=[], steps=made.steps[3:5], header={"targets": []})


def figures_that_a_step_printed_and_llama_bench() -> RunView:
    card = {"sm_mhz": {"min": 2300.0, "max": 2300.4}, "power_w": {}, "memory_mhz": 3}
    bench = {
        "protocol": {"runs": 5, "max_tokens": 256, "max_runs": 9, "warmup": 1},
        "voids": ["odd", {"reason": "odd"}],
        "cold": {"ttft_s": 3.0},
        "context": {"swapped_in": 5 * GIB, "server_major_faults": 0, "cards": {reported.BIG: card}},
    }
    return changed(
        no_go(),
        targets=[{"gate": "go", "metric": "say.size", "go": "< 10GB"}],
        figures={
            "say.size": {"value": 8e9, "unit": "B", "void": 1},
            "say.layers": {"value": None},
            "tg.tg_tok_s": reported.figures(30.0, 0.0),
            "tg.runs": {"value": 5},
        },
        measured={"tg": StepMeasurement(bench)},
    )


def a_soak_of_which_nothing_was_kept() -> RunView:
    made = soaked()
    for scope, known in made.measured.items():
        made.measured[scope] = replace(known, soak={}, benchmark={})
    return made


def a_soak_that_ended_early_by_a_crash() -> RunView:
    early = {"value": None, "why": "it ended early: not done within 60 s; no card"}
    made = soaked(
        early="not done within 60 s",
        gone={"t": 1.0},
        last_error="reset by peer",
        late=1,
        missed=2,
        flags=["1 of 342 requests was sent twice"],
        restarts=[5.0, {"t": 9, "what": "SIGKILL"}],
        gaps=[[3, 1], "x", [7, 8]],
    )
    figures = {"vram_peak": early, "odd": {"value": 5}, "rss_peak": {"value": None, "why": ""}}
    figures = {f"soak.{name}": figure for name, figure in figures.items()}
    return changed(made, figures=figures, states={6: StepState.FAILED})


LINT = {
    "place": "book.yaml:10:47",
    "rule": "split-mode-graph-moe",
    "severity": "error",
    "what": "--split-mode graph | HF_TOKEN=abc",
    "lessons": ["F-024"],
    "override": "override: a patched build",
}
ASKED: tuple[Row, ...] = (
    ("verb", "go", {"verb": "retry", "who": "bo",
                    "args": {"inputs": {"ctx": 8192, "bar": ">= 5 tok/s"}}}),
    ("verb", "go", {"verb": "abort", "who": "ann", "why": "the power goes at noon"}),
)  # fmt: skip
TIGHT = ("TIGHT", "HOLD", "TIGHT: less than a tenth of the 5090 is left")
FEW = ("bench.tok_s", "HOLD", "bench.tok_s: 2 valid samples; 3 needed")
DOUBT = "bench.tok_s 21.34 tok/s misses >= 1.5 x baseline (60 tok/s)"
NO_CARDS = {
    "machine": {"cards_why": "no NVIDIA driver", "ram": GIB}, "baseline": {}, "digest": "",
    "objective": "", "version": "", "lessons": ["F-001", "S-2"],
}  # fmt: skip

STORIES: dict[str, Story] = {
    "a_run_of_which_nothing_is_known": RunView,
    # judged
    "a_relative_threshold_and_one_on_the_baseline": lambda: changed(
        no_go(),
        first={"go": ">= 1.5 x baseline", "no_go": "< 8 tok/s"},
        targets=[
            {"gate": "go", "metric": "bench.baseline.prompt_tok_s", "go": ">= 90 tok/s"},
            {"gate": "go", "metric": "bench.tok_s", "go": "nonsense"},
        ],
    ),
    "no_go_for_every_reason_that_has_a_hint": no_go_for_every_reason_that_has_a_hint,
    "hold_for_too_few_samples_and_for_a_card_nobody_read": lambda: changed(
        judged(FEW, reported.UNSURE, word="HOLD", outcome="evaluate"),
        figures={"bench.tok_s": {"n": 2}},
    ),
    "hold_for_void_runs": lambda: held(value=None, n=0, void=4),
    "hold_without_a_figure": hold_without_a_figure,
    "hold_for_a_step_that_did_not_succeed": lambda: changed(
        held("soak.tok_s", n=0), states={6: StepState.CANCELLED}
    ),
    "hold_for_a_short_soak": lambda: changed(
        held("soak.errors", n=5),
        targets=[{"gate": "go", "metric": "soak.errors", "min_samples": 10}],
    ),
    "hold_for_want_of_a_baseline": hold_for_want_of_a_baseline,
    "hold_because_the_samples_do_not_decide": held,
    "hold_of_a_look": lambda: ended("succeeded", ("verdict", "fit", verdict("HOLD", "", TIGHT))),
    "go": go,
    "go_with_a_gate_that_was_not_reached": lambda: go(reached=False),
    "go_with_a_service_still_up_and_no_outcome": go_with_a_service_still_up_and_no_outcome,
    "go_and_the_run_failed_after_it": lambda: changed(
        go(), state=RunState.ROLLED_BACK, states={7: StepState.IN_DOUBT}
    ),
    "go_and_clients_stay_at_the_candidate": lambda: cut_over("stays"),
    "go_and_the_candidate_is_promoted": lambda: cut_over("promoted"),
    "go_against_a_baseline_that_has_changed": lambda: changed(
        go(),
        doubts=[GateDoubt(gate="go", verdict="NO-GO", words=DOUBT)],
        figures={AGAIN: {"value": 40.0}},
    ),
    "a_baseline_that_drifted": lambda: changed(no_go(), figures={AGAIN: {"value": 11.5}}),
    "an_override": an_override,
    # not judged
    "a_step_that_failed": a_step_that_failed,
    "steps_that_failed_for_every_cause": steps_that_failed_for_every_cause,
    "an_abort_by_the_operator": lambda: ended("cancelled", *ASKED),
    "a_cancelled_run": lambda: changed(
        ended("cancelled"), verdicts=[], reason="expired", inputs={}
    ),
    "a_playbook_without_a_gate": a_playbook_without_a_gate,
    "a_run_that_stands_still": lambda: going(RunState.PAUSED, "step_failed"),
    "a_run_that_goes_on": lambda: going(RunState.RUNNING),
    "the_baseline_does_not_serve": lambda: changed(no_go(), outage=True, down_since=1.79e9),
    "a_rollback_that_failed": lambda: changed(ended("rollback_failed"), outage=True, serving={}),
    "the_baseline_is_slow": lambda: ended("failed", degraded=True),
    "the_baseline_is_slow_and_nobody_knows_how_slow": lambda: changed(
        no_go(), serving={"tok_s": None, "reference": None, "degraded": True}, restored_s=None
    ),
    "the_baseline_was_never_touched": lambda: changed(no_go(), serving={}, down_s=0.0),
    "figures_that_a_step_printed_and_llama_bench": figures_that_a_step_printed_and_llama_bench,
    "a_machine_without_cards": lambda: changed(no_go(), header=NO_CARDS, peaks={}),
    "nobody_noted_the_machine": lambda: changed(
        no_go(),
        header={"machine": {}, "baseline": {}},
        peaks={
            "gpu": {"odd": {"used": 5 * GIB}},
            "host": {"swap_used": 3 * GIB, "swap_in": 2.0**20},
        },
    ),
    "a_soak_in_which_nothing_happened": lambda: soaked(
        errors={}, hangs=[], restarts=[], gaps=[], critical=[]
    ),
    "a_soak_that_ended_early_by_a_crash": a_soak_that_ended_early_by_a_crash,
    "a_soak_of_which_nothing_was_kept": a_soak_of_which_nothing_was_kept,
    "a_rehearsal": lambda: changed(
        go(), header={"rehearsal": {"fault": "", "notes": ["image a → omni-rehearsal/a:1"]}}
    ),
    "a_rehearsal_with_a_fault": lambda: changed(
        judged(reported.SLOW, word="NO-GO"), header={"rehearsal": {"fault": "slow"}}
    ),
    "lint_was_gone_past": lambda: changed(
        no_go(), header={"lint": [LINT, {"rule": "x", "override": ""}]}
    ),
}


def whole(made: RunView, place: Path) -> str:
    """The report with all that lies beside the journal."""
    return markdown(made, evidence(reported.run_dir(place, made), made), "report")


def changes(before: str, after: str) -> str:
    """The lines of a text that are not in another."""
    rows = difflib.unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm="")
    return "\n".join(row for row in rows if not row.startswith(("---", "+++", "@@")))


NUMBER = re.compile(r"(?<=[\" ,])-?[\d.]+(?=[\" ,])")
USUAL = (' fill="none"', ' stroke-linejoin="round"', 'x="#" y="#" ')
"""What (nearly) every element has is not worth showing."""


def drawn(svg: str) -> list[str]:
    """A picture, one line for elements that differ in nothing but numbers: these are added up."""
    found: list[tuple[str, int, list[float]]] = []
    for line in svg.split("\n"):
        head, close, text = line.partition(">")
        numbers, shape = [float(one) for one in NUMBER.findall(head)], NUMBER.sub("#", head)
        if len(pairs := re.findall(r"(-?[\d.]+),(-?[\d.]+)", head)) > 2:
            numbers = [sum(float(x) for x, _ in pairs), sum(float(y) for _, y in pairs)]
            shape = re.sub(r'points="[^"]*"', f'points="{len(pairs)}"', shape)
        for usual in USUAL:
            shape = shape.replace(usual, "")
        shape += close + text.removesuffix("</text>")
        if found and found[-1][0] == shape:
            _, count, sums = found[-1]
            numbers = [a + b for a, b in zip(sums, numbers, strict=True)]
            found[-1] = (shape, count + 1, numbers)
        else:
            found.append((shape, 1, numbers))
    return [
        f"{n if n > 1 else ''}{shape} {' '.join(f'{x:.6g}' for x in sums)}"
        for shape, n, sums in found
    ]


def attempts() -> list[tuple[RunView, str]]:
    found = [(reported.no_go(), "rolled_back"), (reported.soaked(), "rolled_back")]
    found += [(STORIES[name](), "failed") for name in (
        "go", "a_step_that_failed", "the_baseline_is_slow", "an_override",
        "a_baseline_that_drifted",
        "go_against_a_baseline_that_has_changed", "go_and_clients_stay_at_the_candidate",
        "an_abort_by_the_operator", "the_baseline_does_not_serve", "a_rehearsal",
    )]  # fmt: skip
    for number, (made, _) in enumerate(found):
        made.run_id, made.created = f"r-{number:04}", made.created + number * 86_400
        made.inputs = {"split": "layer" if number % 2 else "graph", "port": 8001}
    return found[::-1]
