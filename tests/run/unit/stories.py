"""Runs with every kind of end: what their reports say is compared with what they said before.

`STORIES` are told by how they differ from the first trial of `reported`, which missed its target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from console.run.report_next import CAUSES, TRY
from console.run.state import RunState, StepState
from console.run.view import RunView
from tests.run.unit import reported
from tests.run.unit.reported import BIG, GIB, QUICK, SLOW, UNSURE, done, ending, trial, verdict

Story = Callable[[], RunView]
STORIES: dict[str, Story] = {}
FAST = ("bench.tok_s", "GO", "bench.tok_s 21.34 tok/s meets >= 20 tok/s (9 valid samples)")


def story(tell: Story) -> Story:
    STORIES[tell.__name__] = tell
    return tell


def judged(*criteria: tuple[str, str, str], word: str, outcome: str = "") -> RunView:
    """The first trial, as if its gate had said this."""
    made = reported.no_go()
    last = made.verdicts[-1]
    last.verdict, last.outcome = word, outcome
    last.criteria = verdict("", "", *criteria)["criteria"]
    return made


def ended(state: str, *rows: tuple[str, str, dict[str, Any]], degraded: bool = False) -> RunView:
    """A trial that never came to its gate; `rows`: kind, step and data, before its end."""
    told = trial(6.1)
    told += [(told[-1][0] + n, *row) for n, row in enumerate(rows, 1)]
    return reported.view_of(ending(told, state, degraded=degraded))


def going(state: RunState, reason: str = "") -> RunView:
    """A trial that is not over."""
    made = reported.view_of([*trial(6.1), (reported.BEGIN + 999, "step.state", "go",
                                           {"state": "running"})])  # fmt: skip
    made.state, made.reason = state, reason
    return made


# -- judged ----------------------------------------------------------------------------------------


@story
def a_relative_threshold_and_one_on_the_baseline() -> RunView:
    made = reported.no_go()
    made.header["targets"][0] |= {"go": ">= 1.5 x baseline", "no_go": "< 8 tok/s"}
    made.header["targets"].append({"gate": "go", "metric": "bench.baseline.prompt_tok_s",
                                   "go": ">= 90 tok/s"})  # fmt: skip
    made.header["targets"].append({"gate": "go", "metric": "bench.tok_s", "go": "nonsense"})
    return made


@story
def no_go_for_every_reason_that_has_a_hint() -> RunView:
    names = [f"bench.{name}" for name in (*TRY, "errors", "decode_tok_s", "odd")]
    made = judged(*((name, "NO-GO", f"{name} misses") for name in names), word="NO-GO")
    made.metrics["bench"] |= {"error_rate": {"value": 0.5, "unit": "ratio", "n": 9},
                              "hangs": {"value": 3, "unit": "count", "n": 9}}  # fmt: skip
    made.header["targets"] += [
        {"gate": "go", "metric": "bench.ttft_s", "go": "< 100 ms"},
        {"gate": "go", "metric": "bench.error_rate", "no_go": "> 40 %"},
        {"gate": "go", "metric": "bench.hangs", "go": "== 0"},
        {"gate": "go", "metric": "bench.prompt_tok_s", "go": ">= 56.12 tok/s"},
    ]
    made.header["targets"][1]["go"] = "nonsense"
    return made


def held(metric: str = "bench.tok_s", **figures: Any) -> RunView:
    made = judged((metric, "HOLD", f"{metric} does not decide"), word="HOLD", outcome="evaluate")
    owner, _, name = metric.partition(".")
    made.metrics.setdefault(owner, {})[name] = {"value": 21.0, "unit": "tok/s", "n": 9, **figures}
    return made


@story
def hold_for_too_few_samples_and_for_a_card_nobody_read() -> RunView:
    few = ("bench.tok_s", "HOLD", "bench.tok_s: 2 valid samples of the 3 needed")
    made = judged(few, UNSURE, word="HOLD", outcome="evaluate")
    made.metrics["bench"]["tok_s"]["n"] = 2
    return made


@story
def hold_for_void_runs() -> RunView:
    return held(value=None, n=0, void=4)


@story
def hold_without_a_figure() -> RunView:
    made = held(value=None)
    made.benchmarks["bench"]["voids"] = []
    return made


@story
def hold_for_a_step_that_did_not_succeed() -> RunView:
    made = held("soak.tok_s", n=0)
    made.steps[6].state = StepState.CANCELLED
    return made


@story
def hold_for_a_short_soak() -> RunView:
    made = held("soak.errors", n=5)
    made.header["targets"].append({"gate": "go", "metric": "soak.errors", "min_samples": 10})
    return made


@story
def hold_for_want_of_a_baseline() -> RunView:
    made = held()
    del made.metrics["bench.baseline"]
    made.header["targets"][0]["go"] = ">= 1.5 x baseline"
    return made


@story
def hold_because_the_samples_do_not_decide() -> RunView:
    return held()


@story
def hold_of_a_look() -> RunView:
    tight = ("TIGHT", "HOLD", "TIGHT: less than a tenth of the 5090 is left")
    return ended("succeeded", ("verdict", "fit", verdict("HOLD", "", tight)))


def go_rows(*more: tuple[str, str, dict[str, Any]]) -> reported.Rows:
    rows = trial(21.34)
    at = done(rows, rows[-1][0], "go", 0.1)
    rows.append((at, "verdict", "go", verdict("GO", "migrate", FAST, QUICK)))
    rows.append((at, "step.state", "stable", {"state": "skipped"}))
    return rows + [(at + n, *row) for n, row in enumerate(more, 1)]


@story
def go() -> RunView:
    return reported.view_of(ending(go_rows(), "succeeded"))


@story
def go_with_a_gate_that_was_not_reached() -> RunView:
    rows = [row for row in go_rows() if row[2] != "stable"]
    return reported.view_of(ending(rows, "cancelled"))


@story
def go_with_a_service_still_up_and_no_outcome() -> RunView:
    made = go()
    made.services, made.verdicts[-1].outcome = {"cand": {}, "other": {}}, ""
    made.verdicts[-1].criteria = []
    made.metrics["bench"]["tok_s"]["void"] = 2
    del made.metrics["bench.baseline-after"]
    return made


@story
def go_and_the_run_failed_after_it() -> RunView:
    made = go()
    made.state, made.steps[7].state = RunState.ROLLED_BACK, StepState.IN_DOUBT
    return made


def cut_over(what: str) -> RunView:
    made = go()
    made.outage = True
    made.cutover = {"service": "ik", "what": what, "who": "ann", "url": "http://127.0.0.1:8000"}
    return made


@story
def go_and_clients_stay_at_the_candidate() -> RunView:
    return cut_over("stays")


@story
def go_and_the_candidate_is_promoted() -> RunView:
    return cut_over("promoted")


@story
def go_against_a_baseline_that_has_changed() -> RunView:
    made = go()
    words = "bench.tok_s 21.34 tok/s misses >= 1.5 x baseline (60 tok/s)"
    made.doubts = [{"gate": "go", "verdict": "NO-GO", "words": words}]
    made.metrics["bench.baseline-after"]["tok_s"]["value"] = 40.0
    return made


@story
def a_baseline_that_drifted() -> RunView:
    made = reported.no_go()
    made.metrics["bench.baseline-after"]["tok_s"]["value"] = 11.5
    return made


@story
def an_override() -> RunView:
    made = judged(UNSURE, word="GO", outcome="retain")
    made.verdicts[-1].overridden = "ann: seen by eye"
    made.steps[7].state = StepState.SKIPPED
    return made


# -- not judged ------------------------------------------------------------------------------------


@story
def a_step_that_failed() -> RunView:
    last = "error loading model architecture: unknown model architecture: 'deepseek3_2'"
    rows = trial(6.1)
    done(rows, rows[-1][0], "soak", 61.2, "failed", cause="not_ready", lines=["x", last, " "],
         detail="candidate died: container exited (1)")  # fmt: skip
    return reported.view_of(ending(rows, "failed"))


@story
def steps_that_failed_for_every_cause() -> RunView:
    made = a_step_that_failed()
    for step, cause in zip(made.steps * 2, ["", *CAUSES, "odd"], strict=False):
        step.state, step.cause, step.detail = StepState.FAILED, cause, f"because of {cause}"
    made.steps[0].state, made.steps[1].state = StepState.IN_DOUBT, StepState.CANCELLED
    made.verdicts = []
    return made


@story
def an_abort_by_the_operator() -> RunView:
    asked = {"verb": "abort", "who": "ann", "why": "the power goes at noon"}
    tried = {"verb": "retry", "who": "bo", "args": {"inputs": {"ctx": 8192, "bar": ">= 5 tok/s"}}}
    return ended("cancelled", ("verb", "go", tried), ("verb", "go", asked))


@story
def a_cancelled_run() -> RunView:
    made = ended("cancelled")
    made.verdicts, made.reason, made.inputs = [], "expired", {}
    return made


@story
def a_playbook_without_a_gate() -> RunView:
    made = ended("succeeded")
    made.verdicts, made.steps, made.header["targets"] = [], made.steps[3:5], []
    return made


@story
def a_run_that_stands_still() -> RunView:
    return going(RunState.PAUSED, "step_failed")


@story
def a_run_that_goes_on() -> RunView:
    return going(RunState.RUNNING)


@story
def the_baseline_does_not_serve() -> RunView:
    made = reported.no_go()
    made.outage, made.down_since = True, 1.79e9
    return made


@story
def a_rollback_that_failed() -> RunView:
    made = ended("rollback_failed")
    made.outage, made.serving = True, {}
    return made


@story
def the_baseline_is_slow() -> RunView:
    return ended("failed", degraded=True)


@story
def the_baseline_is_slow_and_nobody_knows_how_slow() -> RunView:
    made = reported.no_go()
    made.serving, made.restored_s = {"degraded": True}, None
    return made


@story
def the_baseline_was_never_touched() -> RunView:
    made = reported.no_go()
    made.serving, made.down_s = {}, 0.0
    return made


@story
def figures_that_a_step_printed_and_llama_bench() -> RunView:
    made = reported.no_go()
    made.metrics["say"] = {"size": {"value": 8e9, "unit": "B", "void": 1},
                           "layers": {"value": None}}  # fmt: skip
    made.header["targets"].append({"gate": "go", "metric": "say.size", "go": "< 10GB"})
    made.metrics["tg"] = {"tg_tok_s": reported.figures(30.0, 0.0), "runs": {"value": 5}}
    made.benchmarks["tg"] = {
        "protocol": {"runs": 5, "max_tokens": 256, "max_runs": 9, "warmup": 1},
        "voids": ["odd", {"reason": "odd"}], "cold": {"ttft_s": 3.0},
        "context": {"swapped_in": 5 * GIB, "server_major_faults": 0, "cards": {
            BIG: {"sm_mhz": {"min": 2300.0, "max": 2300.4}, "power_w": {}, "memory_mhz": 3}}},
    }  # fmt: skip
    return made


@story
def a_machine_without_cards() -> RunView:
    made = reported.no_go()
    made.header |= {
        "machine": {"cards_why": "no NVIDIA driver", "ram": GIB},
        "baseline": {},
        "digest": "",
        "objective": "",
        "version": "",
        "lessons": ["F-001", "S-2"],
    }
    made.peaks = {}
    return made


@story
def nobody_noted_the_machine() -> RunView:
    made = reported.no_go()
    made.header |= {"machine": None, "baseline": None}
    made.peaks["gpu"] = {"odd": {"used": 5 * GIB}}
    made.peaks["host"] = {"swap_used": 3 * GIB, "swap_in": 2.0**20}
    return made


@story
def a_soak_in_which_nothing_happened() -> RunView:
    return reported.soaked(errors={}, hangs=[], restarts=[], gaps=[], critical=[])


@story
def a_soak_that_ended_early_by_a_crash() -> RunView:
    made = reported.soaked(
        early="not done within 60 s", gone={"t": 1.0}, last_error="reset by peer", late=1, missed=2,
        flags=["1 of 342 requests was sent twice"], restarts=[5.0, {"t": 9, "what": "SIGKILL"}],
        gaps=[[3, 1], "x", [7, 8]],
    )  # fmt: skip
    made.metrics["soak"] |= {
        "vram_peak": {"value": None, "why": "it ended early: not done within 60 s; no card"},
        "odd": {"value": 5}, "rss_peak": {"value": None, "why": ""},
    }  # fmt: skip
    made.steps[6].state = StepState.FAILED
    return made


@story
def a_soak_of_which_nothing_was_kept() -> RunView:
    made = reported.soaked()
    made.soaks, made.benchmarks = {}, {}
    return made


@story
def a_rehearsal() -> RunView:
    made = go()
    made.header["rehearsal"] = {"fault": "", "notes": ["image a → omni-rehearsal/a:1"]}
    return made


@story
def a_rehearsal_with_a_fault() -> RunView:
    made = judged(SLOW, word="NO-GO")
    made.header["rehearsal"] = {"fault": "slow"}
    return made


@story
def lint_was_gone_past() -> RunView:
    made = reported.no_go()
    row = {"place": "book.yaml:10:47", "rule": "split-mode-graph-moe", "severity": "error",
           "what": "--split-mode graph | HF_TOKEN=abc", "lessons": ["F-024"],
           "override": "override: a patched build"}  # fmt: skip
    made.header["lint"] = [row, "torn", {"rule": "x", "override": ""}]
    return made


STORIES["a_run_of_which_nothing_is_known"] = RunView
