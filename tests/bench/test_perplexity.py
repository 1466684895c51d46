"""What llama-perplexity prints and seals, by the stored output and head of a real build."""

import struct
from pathlib import Path

import pytest

from console.bench.perplexity import (
    Sealed,
    arguments,
    logits_bytes,
    read_figures,
    read_sealed,
    scored,
    seconds,
)
from console.bench.statistics import wilson
from console.models.gguf.header import Header, Tensor, Value

SAID = (Path(__file__).parent / "kl_divergence.txt").read_text("utf-8").splitlines()
TOKENS = scored(4, 256)


def test_the_figures_are_those_that_it_prints_last() -> None:
    found = read_figures(SAID, TOKENS)
    printed = {name: (one["value"], one["error"]) for name, one in found.items()}
    assert printed == {
        "mean_kld": (0.508817, 0.00889),
        "top1_agreement": (pytest.approx(0.25394), pytest.approx(0.01933)),
        "ppl": (208349.509486, 197297.070871),
        "ppl_ratio": (778.490599, 569.82172),
    }
    assert {one["n"] for one in found.values()} == {4 * 127}
    kld = found["mean_kld"]
    assert (kld["low"], kld["high"]) == pytest.approx((0.508817 - 0.017424, 0.508817 + 0.017424))
    # an interval of an amount does not reach below zero
    assert found["ppl"]["low"] == 0.0


def test_what_the_engine_of_a_container_puts_before_a_line_is_no_part_of_it() -> None:
    """stderr's last words without an end of line come between the lines of stdout."""
    glued = [f"0.08 I perplexity: 7.9 seconds per pass - ETA {line}" for line in SAID]
    assert read_figures(glued, TOKENS) == read_figures(SAID, TOKENS)


def test_a_model_that_agrees_with_itself_is_not_below_zero_and_its_agreement_is_no_point() -> None:
    lines = [
        "Mean PPL(Q)                   :   5.000000 ±   0.100000",
        "Mean PPL(Q)/PPL(base)         :   1.000000 ±   0.000000",
        "Mean    KLD:  -0.000003 ±   0.000001",
        "Same top p: 100.000 ± 0.000 %",
    ]
    found = read_figures(lines, 127)
    assert [found["mean_kld"][key] for key in ("value", "low", "high")] == [0.0, 0.0, 0.0]
    agreement = found["top1_agreement"]
    assert agreement["value"] == agreement["high"] == 1.0
    assert agreement["low"] == pytest.approx(127 / (127 + 1.96**2))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "llama-perplexity printed no mean_kld"),
        (["perplexity: you need at least 1024 tokens to evaluate"], "at least 1024 tokens"),
        (["kl_divergence: inconsistent vocabulary (260 vs 300)", *SAID], "inconsistent vocabulary"),
        (["kl_divergence: failed reading log-probs for chunk 3", *SAID[:-1]], "for chunk 3"),
        ([*SAID[:-1], "Same top p: nan ± nan %"], "printed no top1_agreement"),
        (["llama_model_load: error loading model", "x"], "error loading model"),
    ],
)
def test_what_has_compared_nothing_has_no_figures(lines: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_figures(lines, TOKENS)


def test_the_size_of_a_sealed_file_is_known_before_it_is_written(tmp_path: Path) -> None:
    # of a real build: 260 words, four chunks of 256 tokens
    assert logits_bytes(260, 4, 256) == 272_340
    path = tmp_path / "x.logits"
    assert read_sealed(path) is None
    head = struct.pack("<8sIii", b"_logits_", 256, 260, 4)
    path.write_bytes(head.ljust(272_340, b"\0"))
    assert read_sealed(path) == Sealed(260, 4, 256)
    path.write_bytes(head.ljust(272_339, b"\0"))
    assert read_sealed(path) is None
    path.write_bytes(b"else".ljust(272_340, b"\0"))
    assert read_sealed(path) is None


def test_the_batch_is_a_multiple_of_the_context_or_smaller() -> None:
    assert arguments(8, 512) == ["-c", "512", "--chunks", "8"]
    assert arguments(8, 4096) == ["-c", "4096", "--chunks", "8"]
    assert arguments(8, 300) == ["-c", "300", "-b", "300", "--chunks", "8"]


def test_the_time_counts_the_experts_that_a_token_uses() -> None:
    def of(name: str) -> float:
        kv: dict[str, Value] = {
            "general.architecture": "x",
            "x.expert_count": 8,
            "x.expert_used_count": 2,
        }
        tensor = Tensor(name, (1 << 20, 1000), 0, "F32", None)
        return seconds(Header(3, "little", 32, 1, kv, (tensor,), 100), 8, 512, 2)

    assert of("blk.0.ffn_up_exps.weight") == pytest.approx(of("blk.0.ffn_up.weight") / 4)
    assert of("token_embd.weight") == 0.0


def test_a_share_lies_in_its_interval() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-3)
    assert all(low <= hits / 7 <= high for hits in range(8) for low, high in [wilson(hits, 7)])
