"""The report: read alone it lets another engineer decide, whatever text the journal holds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.run.directory import RunDir
from console.run.report import as_json, evidence, markdown, write_copy, write_report
from console.run.state import StepState
from console.run.view import RunView
from tests.run.unit import reported
from tests.run.unit.hostile import BAD, check_harmless, tables, view


def test_hostile_text_neither_acts_on_a_terminal_nor_breaks_a_table() -> None:
    text = markdown(view(BAD))
    check_harmless(text)
    assert "\n## Injected" not in text
    assert "\n| a | b |" not in text
    assert len(tables(text)) == len(tables(markdown(view())))
    assert text.count("\n## ") == markdown(view()).count("\n## ")


@given(st.text(st.one_of(st.characters(), st.sampled_from("|\\`\x1b\n\r#<*](")), max_size=40))
def test_any_text_keeps_the_report_in_shape(text: str) -> None:
    check_harmless(markdown(view(text)))


def section(text: str, title: str) -> str:
    """What stands under a heading, down to the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.M | re.S)
    assert found is not None, title
    return found[2]


def test_the_first_lines_say_what_was_decided_and_why() -> None:
    title, _, first, *_ = markdown(reported.no_go()).splitlines()
    assert title == "# Replace llama.cpp with ik_llama.cpp"
    assert first == (
        "**NO-GO (retain).** Gate go: bench.tok_s 6.1 tok/s misses >= 20 tok/s by 13.9 tok/s "
        "(9 valid samples); the baseline: 10.75 tok/s."
    )
    text = markdown(reported.no_go())
    for row in (
        "| Decision | **NO-GO (retain)** |", "| State | rolled_back (go: gate) |",
        "| Objective | 10.75 → 20 tok/s with one hour of stability |", "| Input port | `8001` |",
        "| Baseline down | 12 min 42 s |",
        "| Baseline drift | -0.6 % (10.75 tok/s before, 10.69 tok/s after; bench) |",
        "| Took | 21 min 30 s; planned 15 min 19 s for 4 of 10 steps, which took 12 min 36 s |",
    ):  # fmt: skip
        assert f"{row}\n" in text


def test_figures_stand_beside_the_baseline_and_their_targets() -> None:
    figures = section(markdown(reported.no_go()), "Figures of `bench`")
    assert (
        "| `tok_s` | 6.1 tok/s | 10.75 tok/s | 10.69 tok/s | -43.3 % | GO >= 20 tok/s | 9 |"
        in figures
    )
    assert "| `ttft_s` | 812 ms | 1.91 s | 1.93 s | -57.5 % | GO < 2s | 9 |" in figures
    assert "| `tok_s` | candidate | 6.10 ± 0.09 tok/s | 6.1 tok/s |" in figures
    assert "ttfo_s" not in figures, "a figure that nobody has is no row"
    assert "| 4 streams | candidate | 31.2 tok/s |" in figures
    assert "**1 run void**: short output, 12 of 256 tokens" in figures
    assert "| NVIDIA RTX PRO 6000 | candidate | 1800 – 2400 | – | 410 – 598 (limit 600) " in figures


def test_the_gates_stand_with_thresholds_verdict_and_words() -> None:
    gates = section(markdown(reported.no_go()), "Gates")
    assert "| `go` → retain | `bench.tok_s` | >= 20 tok/s | – | **NO-GO** | bench.tok_s 6" in gates
    assert "|  | `gpu.peak_used (sum)` | <= 117GB | – | **HOLD** |" in gates


def test_a_relative_threshold_says_what_it_comes_to() -> None:
    made = reported.no_go()
    made.header["targets"][0]["go"] = ">= 1.5 x baseline"
    assert "GO >= 1.5 x baseline (16.12 tok/s)" in markdown(made)


def test_a_threshold_on_the_baseline_itself_stands_with_the_figure() -> None:
    made = reported.no_go()
    made.header["targets"].append({"gate": "go", "metric": "bench.baseline.prompt_tok_s",
                                   "go": ">= 90 tok/s"})  # fmt: skip
    figures = section(markdown(made), "Figures of `bench`")
    assert "| -43.3 % | baseline: GO >= 90 tok/s | 9 |" in figures


def test_memory_is_held_against_what_was_predicted(tmp_path: Path) -> None:
    made = reported.no_go()
    run = reported.run_dir(tmp_path, made)
    memory = section(markdown(made, evidence(run, made)), "Memory")
    assert "| VRAM of NVIDIA RTX PRO 6000 Blackwell | 91.0 GiB (97.71 GB) | 96.0 GiB |" in memory
    assert "| at least 26.0 GiB (27.92 GB) | 32.0 GiB | 66 °C at most; not sure: not" in memory
    assert "| VRAM of NVIDIA RTX PRO 6000 Blackwell | 88.0 GiB | 89.6 GiB | +1.6 GiB |" in memory
    assert "The prediction held." in memory
    made.envelopes["fit"]["points"][1]["vram"]["NVIDIA GeForce RTX 5090"] = 10 * reported.GIB
    found = evidence(run, made)
    words = "VRAM of NVIDIA GeForce RTX 5090 25.2 GiB, predicted at most 10.0 GiB"
    assert f"**Above the prediction**: {words}." in markdown(made, found)
    assert f"Figure: {words}." in markdown(made, found)


def test_a_soak_says_everything_that_went_wrong_and_what_did_not() -> None:
    soak = section(markdown(reported.soaked()), "Soak `soak`")
    for words in (
        "| `errors` | 3 | GO == 0 | 342 | requests that failed |",
        "| `rss_growth` | 4.2 GiB | GO < 20GiB | 700 |", "- 2 requests failed: transport",
        "- 1 request failed: timeout", "- restart after 40 min 50 s: another process",
        "- hang after 38 min 20 s: no token for 61 s; it cost 2 requests; answered again after "
        "1 min 40 s",
        "- not observed from 25 min 00 s to 28 min 00 s",
        "    CUDA error: out of memory in ggml_cuda_pool | x",
    ):  # fmt: skip
        assert f"{words}" in soak
    quiet = reported.soaked(errors={}, hangs=[], restarts=[], gaps=[], critical=[])
    assert "- none: errors, restarts, hangs, gaps in observation, critical log lines\n" in section(
        markdown(quiet), "Soak `soak`"
    )
    early = markdown(reported.soaked(early="not done within 60 s"))
    assert "**It ended early**: not done within 60 s. Its figures are to be read, not" in early
    assert early.count("not done within 60 s") < 4  # and not once more in each row


def test_what_ran_and_on_which_machine_and_no_key_in_it() -> None:
    text = markdown(reported.no_go())
    host = section(text, "Host")
    assert "| Card | NVIDIA GeForce RTX 5090, 32.0 GiB `GPU-bfbb9aa1` |" in host
    assert "| CPU | AMD Ryzen Threadripper PRO 9995WX, 96 cores, 192 threads, 1 NUMA" in host
    assert "| Kernel | 6.8.0-90-generic |" in host
    assert "--split-mode graph --api-key ***** --n-gpu-layers 999" in section(text, "What ran")
    assert "sk-123456" not in text
    assert "sk-123456" not in json.dumps(as_json(reported.no_go()))


def next_of(made: RunView) -> str:
    return section(markdown(made), "What to do next")


def test_after_no_go_it_says_what_missed_by_how_much_and_what_to_try() -> None:
    found = next_of(reported.no_go())
    assert "- NO-GO: stay with the baseline (`retain`).\n" in found
    assert "misses >= 20 tok/s by 13.9 tok/s (9 valid samples): 69.5 % below what is" in found
    assert "- To try for bench.tok_s: " in found
    assert "something else than split=graph, port=8001" in found


def test_after_hold_it_says_which_data_is_missing_and_how_to_get_it() -> None:
    made = reported.no_go()
    few = ("bench.tok_s", "HOLD", "bench.tok_s: 2 valid samples of the 3 needed")
    made.verdicts[-1].verdict, made.verdicts[-1].outcome = "HOLD", "evaluate"
    made.verdicts[-1].criteria = reported.verdict("", "", few, reported.UNSURE)["criteria"]
    made.metrics["bench"]["tok_s"]["n"] = 2
    found = next_of(made)
    assert "- HOLD (`evaluate`): the data does not decide." in found
    assert "2 valid samples of the 3 needed: raise `runs` of bench" in found
    assert "not read for 14 s: the machine has to be read all through the run" in found
    made.metrics["bench"]["tok_s"] = {"value": None, "unit": "tok/s", "n": 0}
    assert "remove what made runs void (short output, 12 of 256 tokens)" in next_of(made)
    made.metrics["bench"]["tok_s"] = {"value": 21.0, "unit": "tok/s", "n": 9}
    del made.metrics["bench.baseline"]
    made.header["targets"][0]["go"] = ">= 1.5 x baseline"
    assert "`against: baseline`, and it must serve" in next_of(made)


def test_a_look_that_holds_says_where_its_arithmetic_is() -> None:
    rows = reported.trial(6.1)
    tight = ("TIGHT", "HOLD", "TIGHT: less than a tenth of the 5090 is left")
    rows.append((rows[-1][0], "verdict", "fit", reported.verdict("HOLD", "", tight)))
    made = reported.view_of(reported.ending(rows, "succeeded"))
    assert markdown(made).splitlines()[2].startswith("**HOLD.** Checkpoint fit: TIGHT: less than")
    assert "is left: the whole of it is in `omni-console logs fit --run 1a2b`." in next_of(made)


def test_after_go_it_says_that_nothing_was_switched_and_what_is_not_shown() -> None:
    rows = reported.trial(21.34)
    at = reported.done(rows, rows[-1][0], "go", 0.1)
    fast = ("bench.tok_s", "GO", "bench.tok_s 21.34 tok/s meets >= 20 tok/s (9 valid samples)")
    rows.append((at, "verdict", "go", reported.verdict("GO", "migrate", fast, reported.QUICK)))
    cut = reported.view_of(reported.ending(list(rows), "cancelled"))
    assert "**No decision.** Gate stable was not reached" in markdown(cut)
    assert "| Decision | **none**; not judged: `stable` |" in markdown(cut)
    assert as_json(cut)["decision"] is None, "whoever reads only this must not take it for a GO"
    assert "switched nothing over" not in markdown(cut)
    rows.append((at, "step.state", "stable", {"state": "skipped"}))
    made = reported.view_of(reported.ending(rows, "succeeded"))
    text = markdown(made)
    assert "**GO (migrate).** Gate go: bench.tok_s 21.34 tok/s meets >= 20 tok/s (9 v" in text
    assert "; and 1 more criterion met.\n" in text
    assert "- GO: the playbook calls this `migrate`. That step is the operator's" in text
    assert "no soak ran" in section(text, "What this run does not show")
    assert "Result: GO (migrate). Figure: bench.tok_s" in section(text, "Lesson candidates")


def test_after_a_failure_the_step_its_cause_and_its_last_words_stand_first() -> None:
    rows = reported.trial(6.1)
    last = "error loading model architecture: unknown model architecture: 'deepseek3_2'"
    reported.done(
        rows, rows[-1][0], "soak", 61.2, "failed", cause="not_ready", lines=["x", last],
        detail="candidate died: container exited (1)",
    )  # fmt: skip
    made = reported.view_of(reported.ending(rows, "failed"))
    text = markdown(made)
    assert text.splitlines()[2] == (
        "**No decision.** Gate go was not reached: step soak failed (not_ready): candidate died: "
        f"container exited (1); it said: {last}; before that, checkpoint fit: GO: 114.0 GiB on the "
        "cards, 12.0 GiB in RAM."
    )
    assert "`omni-console logs soak --run 1a2b` shows its output" in next_of(made)
    assert f"    {last}\n" in section(text, "What went wrong")
    said = f"Cause: not_ready: candidate died: container exited (1). It said: {last}"
    said = f"Cause: not_ready: candidate died: container exited (1). It said: {last}"
    assert f"failed after 1 min 01 s. {said}" in text


def test_an_override_marks_the_report() -> None:
    made = reported.no_go()
    last = made.verdicts[-1]
    last.verdict, last.overridden = "GO", "ann: seen by eye"
    made.steps[7].state = StepState.SKIPPED
    last.criteria = reported.verdict("", "", reported.UNSURE)["criteria"]
    text = markdown(made)
    assert "**OVERRIDDEN**: gate go, by ann: seen by eye.\n" in text
    assert "Gate go was overridden; it had found: gpu.peak_used (sum): no usable figure" in text
    assert "**OVERRIDDEN** by ann: seen by eye |\n" in text
    assert "To be added: whether that was right" in section(text, "Lesson candidates")


def test_a_baseline_that_is_down_or_slow_is_said_first() -> None:
    made = reported.no_go()
    made.outage = True
    text = markdown(made)
    assert "**The baseline is NOT SERVING**: run `omni-console rollback`.\n" in text
    assert next_of(made).splitlines()[1].startswith("- First: the baseline does not serve.")
    rows = reported.trial(6.1)
    made = reported.view_of(reported.ending(rows, "failed", degraded=True))
    slow = "it came back at 9.3 tok/s in its proof, reference 10.75 tok/s"
    assert f"**The baseline is DEGRADED**: {slow}.\n" in markdown(made)
    assert f"Result: the baseline came back DEGRADED. Figure: {slow}." in markdown(made)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_is_printed(value: float) -> None:
    assert "| `tok_s` | unknown |" in markdown(view(value=value, mean=value, std=value))


def test_the_same_number_is_printed_the_same_way_everywhere() -> None:
    """A gate's words and the tables: rounded alike, or a reader sees two numbers."""
    from console.playbook.threshold import parse_threshold
    from console.playbook.verdict import Criterion, Evidence, judge
    from console.run.report_text import figure

    for value, unit, go in (
        (10.7512, "tok/s", ">= 20 tok/s"), (0.81234, "s", "< 2s"), (1.9134, "s", "< 900 ms"),
        (116.94e9, "B", "<= 117GB"), (4.2 * 2**30, "B", "< 20GiB"), (0.00877, "ratio", "< 1 %"),
        (1997.31, "tok/s", "> 1 tok/s"), (3.0, "count", "== 0"),
    ):  # fmt: skip
        found = judge(Criterion("a.b", parse_threshold(go)), Evidence(value, unit, 9))
        assert f"a.b {figure(value, unit, go)}" in found.why


def test_an_empty_run_has_a_report() -> None:
    assert "| Decision | **none** |" in markdown(RunView())
    check_harmless(markdown(RunView()))


@pytest.mark.parametrize("made", [reported.no_go, reported.soaked, view, RunView])
def test_the_json_holds_what_the_text_says(made: Callable[[], RunView]) -> None:
    found = json.loads(json.dumps(as_json(made())))
    assert {"because", "next", "lessons", "not_shown", "targets", "machine", "peaks"} <= set(found)


@pytest.mark.parametrize(
    ("state", "code"),
    [("succeeded", 3), ("failed", 5), ("cancelled", 5), ("rolled_back", 6),
     ("rollback_failed", 7), ("paused", None), ("rolling_back", None)],
)  # fmt: skip
def test_the_exit_code_is_in_the_json(state: str, code: int | None) -> None:
    found = as_json(view(state=state))
    assert (found["state"], found["decision"], found["exit_code"]) == (state, "no_go", code)


def test_both_files_are_written_and_replaced_whole(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert write_report(run, RunView()) == run.report
    copy = tmp_path / "docs" / "deep" / "evaluation.md"
    assert write_report(run, view(BAD), copy) == copy
    assert copy.read_text("utf-8") == run.report.read_text("utf-8")
    assert json.loads(run.report_json.read_text("utf-8"))["verdicts"][0]["overridden"] == BAD
    assert run.report_json.read_text("utf-8").isascii()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["docs", "report.json", "report.md"]


def test_charts_lie_beside_the_report_and_beside_its_copy(tmp_path: Path) -> None:
    made = reported.soaked()
    run = reported.run_dir(tmp_path / "run", made)
    copy = tmp_path / "docs" / "phase 2 (b).md"
    write_report(run, made, copy)
    names = ["memory.svg", "samples-bench.svg", "soak-memory-soak.svg", "soak-soak.svg"]
    assert sorted(p.name for p in (run.path / "report").iterdir()) == names
    assert sorted(p.name for p in (copy.parent / "phase 2 (b)").iterdir()) == names
    links = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", copy.read_text("utf-8"))
    assert links == [f"phase%202%20%28b%29/{name}" for name in (
        "samples-bench.svg", "soak-soak.svg", "soak-memory-soak.svg", "memory.svg")]  # fmt: skip
    write_copy(run, made, tmp_path / "bare")
    assert (tmp_path / "bare-charts" / "memory.svg").exists()


def test_files_that_are_gone_are_said(tmp_path: Path) -> None:
    made = reported.soaked()
    run = RunDir(tmp_path)
    write_report(run, made)
    text = run.report.read_text("utf-8")
    assert "Its samples are not there any more: no chart.\n" in text
    assert "The gauges over the run are not there any more: no chart.\n" in text
    assert "Nobody looked at the machine while the load ran: not compared.\n" in text
