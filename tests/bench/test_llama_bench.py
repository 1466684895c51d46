"""What llama-bench and llama-sweep-bench print, whole, cut off, mixed with logs, or not theirs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.llama_bench import Form, read_figures

LOG = "ggml_cuda_init: found 2 CUDA devices:\n  Device 0: NVIDIA, compute capability 12.0\n"
TG = [19.8, 20.1, 20.3, 20.2, 20.1]
PP = [118.0, 120.5, 121.0, 120.0, 120.5]


def entry(prompt: int, gen: int, samples: list[Any], **more: Any) -> dict[str, Any]:
    """One entry as llama-bench prints it, in its order."""
    numbers = [one for one in samples if isinstance(one, int | float)]
    average = sum(numbers) / len(numbers) if numbers else 0.0
    return {
        "build_commit": "d82b7a7", "build_number": 11549, "cpu_info": "AMD Ryzen",
        "gpu_info": "NVIDIA RTX PRO 6000", "backends": "CUDA",
        "model_filename": "/models/Q3_K_M-00001-of-00007.gguf", "model_type": "deepseek2 671B Q3_K",
        "n_batch": 512, "n_threads": 5, "n_gpu_layers": 19, "flash_attn": True,
        "tensor_split": "75.00/25.00", "n_prompt": prompt, "n_gen": gen, "n_depth": 0,
        "test_time": "2026-11-20T10:00:00Z", "avg_ns": 1, "stddev_ns": 0, "avg_ts": average,
        "stddev_ts": 0.2, "samples_ns": [1] * len(samples), "samples_ts": samples, **more,
    }  # fmt: skip


def array(*entries: dict[str, Any]) -> str:
    """`-o json`: an array that is only closed at the very end."""
    parts = []
    for one in entries:
        fields = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in one.items())
        parts.append("  {\n" + fields + "\n  }")
    return "[\n" + ",\n".join(parts) + "\n]\n"


def lines(*entries: dict[str, Any]) -> str:
    """`-o jsonl`."""
    return "".join(json.dumps(one) + "\n" for one in entries)


ENTRIES = (entry(512, 0, PP), entry(0, 128, TG))


@pytest.mark.parametrize(
    "text",
    [
        array(*ENTRIES), lines(*ENTRIES), LOG + array(*ENTRIES) + LOG,
        json.dumps(ENTRIES, indent=2), json.dumps(ENTRIES), LOG + json.dumps(ENTRIES) + "\n" + LOG,
        "[" + json.dumps(ENTRIES[0]) + ",\n" + json.dumps(ENTRIES[1]) + "]",
        lines(*ENTRIES).replace("\n", "\r\n"),
    ],
)  # fmt: skip
def test_both_rates_with_their_samples(text: str) -> None:
    found = read_figures(text, "llama-bench")
    tg, pp = found.metrics["tg_tok_s"], found.metrics["pp_tok_s"]
    assert (tg["value"], tg["n"], tg["unit"]) == (pytest.approx(20.1), 5, "tok/s")
    assert (tg["samples"], tg["headline"], tg["test"]) == (TG, "mean", "tg128")
    assert (pp["value"], pp["n"], pp["test"]) == (pytest.approx(120), 5, "pp512")
    assert tg["std"] == pytest.approx(0.187, abs=0.001)
    assert (found.build, found.model) == ("11549-d82b7a7", "deepseek2 671B Q3_K")
    assert found.flags == []


def test_log_lines_between_the_lines_of_an_entry_are_passed_over() -> None:
    rows = array(*ENTRIES).splitlines()
    mixed = "\n".join(line + "\nllama_kv_cache: [0] \"size\" = {1}, 'x'" for line in rows)
    assert read_figures(mixed, "llama-bench").metrics["tg_tok_s"]["n"] == 5


@pytest.mark.parametrize("cut", [3, 40, 400])
def test_json_that_was_cut_off_counts_as_far_as_it_is_whole(cut: int) -> None:
    """The array has no end until the last test is over: a run that was killed left it open."""
    found = read_figures(array(*ENTRIES)[:-cut], "llama-bench")
    assert found.metrics["pp_tok_s"]["value"] == pytest.approx(120)
    assert "cut off" in found.flags[0]
    whole = found.metrics["tg_tok_s"]["value"] is not None
    assert whole == (cut == 3)
    if not whole:
        assert found.metrics["tg_tok_s"] == {"value": None, "unit": "tok/s", "n": 0}
        assert "tg_tok_s" in found.flags[1]


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_one_compact_line_that_was_cut_off_counts_as_far_as_it_is_whole(cut: int) -> None:
    found = read_figures(json.dumps([*ENTRIES, entry(0, 64, TG)])[:-cut], "llama-bench")
    assert found.metrics["tg_tok_s"]["samples"] == TG
    assert "cut off" in found.flags[0]


def test_a_line_that_was_cut_off_is_left_out() -> None:
    found = read_figures(lines(*ENTRIES)[:-30], "llama-bench")
    assert found.metrics["tg_tok_s"]["value"] is None
    assert "cut off: 1 complete" in found.flags[0]


@pytest.mark.parametrize(
    "bad",
    [
        {"samples_ts": [float("nan")] * 5}, {"samples_ts": [-1.0] * 5}, {"samples_ts": []},
        {"samples_ts": ["20"] * 5}, {"samples_ts": [1e300] * 5}, {"samples_ts": [20.0, None]},
        {"samples_ts": [True] * 5}, {"avg_ts": None}, {"avg_ts": float("inf")}, {"avg_ts": 40.0},
        {"n_gen": -128}, {"n_gen": 128.5}, {"n_gen": True}, {"n_gen": "128"}, {"n_gen": 0},
        {"n_depth": None}, {"n_gen": 10**40},
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_believed_is_left_out(bad: dict[str, Any]) -> None:
    text = lines(ENTRIES[0], {**ENTRIES[1], **bad})
    found = read_figures(text, "llama-bench")
    assert found.metrics["tg_tok_s"]["value"] is None
    assert len(found.flags) == 2, "what was left out, and that a figure is missing"
    assert found.metrics["pp_tok_s"]["value"] == pytest.approx(120)


TABLE = """\
| model                  |       size |  params | backend | ngl |            test |           t/s |
| ---------------------- | ---------: | ------: | ------- | --: | --------------: | ------------: |
| deepseek2 671B Q3_K    | 298.00 GiB | 671.0 B | CUDA    |  19 |           pp512 | 118.40 ± 1.20 |
| deepseek2 671B Q3_K    | 298.00 GiB | 671.0 B | CUDA    |  19 |           tg128 |  20.05 ± 0.03 |
| deepseek2 671B Q3_K    | 298.00 GiB | 671.0 B | CUDA    |  19 |  tg128 @ d4096  |  11.00 ± 0.03 |

build: d82b7a7 (11549)
"""


def test_the_table_as_a_fallback() -> None:
    found = read_figures(LOG + TABLE, "llama-bench")
    tg = found.metrics["tg_tok_s"]
    assert (tg["value"], tg["std"], tg["n"], tg["test"]) == (20.05, 0.03, 1, "tg128")
    assert "samples" not in tg
    assert found.metrics["pp_tok_s"]["value"] == 118.4
    assert (len(found.flags), "tg128 @ d4096" in found.flags[1]) == (2, True)


MORE = TABLE.replace(
    "\n\nbuild",
    "\n| deepseek2 671B Q3_K    | 298.00 GiB | 671.0 B | CUDA | 19 | pp512+tg128 | 60.30 ± 0.10 |"
    "\n| deepseek2 671B Q3_K    | 298.00 GiB | 671.0 B | CUDA | 19 | tg64@pp8192 |  9.20 ± 0.02 |"
    "\n\nbuild",
)


def test_of_a_table_every_test_the_model_and_the_build_are_kept() -> None:
    found = read_figures(LOG + MORE, "llama-bench")
    assert (found.model, found.build) == ("deepseek2 671B Q3_K", "11549-d82b7a7")
    assert [(one.kind, one.name) for one in found.entries] == [
        ("pp", "pp512"), ("tg", "tg128"), ("tg", "tg128 @ d4096"), ("both", "pp512+tg128"),
        ("tg", "tg64@pp8192"),
    ]  # fmt: skip
    assert found.metrics["tg_tok_s"]["value"] == 20.05
    beside = [one for one in found.flags if one.startswith("also measured")]
    assert [one.split(": ")[1] for one in beside] == ["tg128 @ d4096", "tg64@pp8192", "pp512+tg128"]


def test_a_table_of_only_what_is_generated_after_a_prompt() -> None:
    text = "\n".join(one for one in MORE.splitlines() if "pp512" not in one and "tg128" not in one)
    found = read_figures(text, "llama-bench")
    tg = found.metrics["tg_tok_s"]
    assert (tg["value"], tg["test"]) == (9.2, "tg64@pp8192")


def test_a_table_s_settings_are_named() -> None:
    other = MORE.replace("|  19 |           tg128", "|  20 |           tg128", 1)
    found = read_figures(other, "llama-bench")
    assert any("tg128 @ d4096 (ngl 19)" in one for one in found.flags)


def test_ik_s_json_says_which_test_it_was() -> None:
    after = entry(8192, 64, TG, test="tg64@pp8192")
    both = entry(512, 128, PP, test="pp512+tg128")
    found = read_figures(lines(*ENTRIES, after, both), "llama-bench")
    assert [(one.kind, one.name) for one in found.entries][2:] == [
        ("tg", "tg64@pp8192"), ("both", "pp512+tg128"),
    ]  # fmt: skip


SWEEP = """\
main: n_kv_max = 8704, n_batch = 2048, n_ubatch = 512, flash_attn = 1, n_gpu_layers = 99

|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
======================================== tg_start for n_kv = 0
|   512 |    128 |      0 |    1.100 |   465.51 |    2.311 |    55.38 |
|   512 |    128 |    512 |    1.183 |   432.97 |    1.895 |    67.55 |
|   512 |    128 |   1024 |    1.305 |   392.38 |    2.071 |    61.81 |
"""
WIDER = SWEEP.replace("S_TG t/s |", "S_TG t/s |    RSS HWM | VRAM delta |").replace(
    "55.38 |", "55.38 |     1234.5 |        n/a |"
)
SWEEP_JSON = (
    '{"n_kv_max": 8704, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 1, "n_gpu_layers": 99, '
    '"n_threads": 5, "n_threads_batch": 5, "pp": 512, "tg": 128, "n_kv": 0, "t_pp": 1.1, '
    '"speed_pp": 465.454545, "t_tg": 2.311, "speed_tg": 55.387278 }\n'
)


@pytest.mark.parametrize("text", [SWEEP, WIDER, LOG + SWEEP_JSON])
def test_a_sweep_gives_its_first_row(text: str) -> None:
    found = read_figures(text, "sweep-bench")
    tg, pp = found.metrics["tg_tok_s"], found.metrics["pp_tok_s"]
    assert (tg["value"], tg["n"]) == (pytest.approx(55.38, abs=0.01), 1)
    assert pp["value"] == pytest.approx(465.5, abs=0.1)
    assert (tg["test"].split()[0], pp["test"].split()[0]) == ("tg128", "pp512")


def test_a_long_sweep_is_told_in_part() -> None:
    row = "|   512 |    128 | {:6d} |    1.100 |   465.51 |    2.311 |    55.38 |\n"
    rows = "".join(row.format(512 * depth) for depth in range(64))
    flags = read_figures(SWEEP.split("=====")[0] + rows, "sweep-bench").flags
    assert (len(flags), "106" in flags[-1]) == (21, True)


@pytest.mark.parametrize("bad", ["nan", "-5.00", "inf", "0.00", "", "1e5", "55,38"])
def test_a_cell_that_is_no_rate_is_no_figure(bad: str) -> None:
    text = "\n".join(SWEEP.splitlines()[:6]).replace("55.38", bad)
    found = read_figures(text, "sweep-bench")
    assert found.metrics["tg_tok_s"]["value"] is None
    assert found.metrics["pp_tok_s"]["value"] == 465.51


@pytest.mark.parametrize("form", ["llama-bench", "sweep-bench"])
@pytest.mark.parametrize(
    "text", ["", "error: failed to load model", "[\n]\n", "{}", "null", "<html>", "| a | b |", LOG]
)
def test_output_without_a_result_says_so(text: str, form: Form) -> None:
    with pytest.raises(ValueError, match=form):
        read_figures(text, form)


@given(
    st.text(max_size=300) | st.lists(st.sampled_from(array(*ENTRIES).splitlines())).map("\n".join)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    for form in ("llama-bench", "sweep-bench"):
        try:
            found = read_figures(text, form)  # type: ignore[arg-type]
        except ValueError:
            continue
        for metric in found.metrics.values():
            assert metric["value"] is None or metric["value"] > 0


def test_hostile_names_are_harmless() -> None:
    text = lines({**ENTRIES[1], "model_type": "\x1b[2Jx\n|", "build_commit": "\x07"}, ENTRIES[1])
    found = read_figures(text, "llama-bench")
    told = "".join([found.model, found.build, *found.flags])
    assert "\x1b" not in told
    assert "\x07" not in told
