"""Backends for experts that are named: refused, taken or not known by weights, cards, release."""

import re
from dataclasses import replace

import pytest

from console.host.sample import Card
from console.models.sizing.assessment import Verdict
from console.models.sizing.combinations.kernels import experts_of_vllm, kernels_of_sglang, rows
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.model_facts import Experts
from console.models.sizing.serving.backends import not_known_of_backends
from console.models.sizing.serving.kernels import BLOCK, CHANNEL
from tests.sizing.test_backends import PLAIN

MOE = replace(PLAIN, experts=Experts(128, 8, 0, 768), stored="bf16")
WEIGHTS = {
    "half": MOE, "fp8": replace(MOE, stored="fp8", scaled_by=CHANNEL),
    "blocks": replace(MOE, stored="fp8", scaled_by=BLOCK), "int4": replace(MOE, stored="w4a16"),
    "mxfp4": replace(MOE, stored="mxfp4"), "nvfp4": replace(MOE, stored="nvfp4"), "dense": PLAIN,
}  # fmt: skip
A100, ADA, HOPPER, B200, CONSUMER = (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)
GO, NO_GO, UNKNOWN = Verdict.GO, Verdict.NO_GO, Verdict.UNKNOWN


def of(answers: tuple[list[str], list[str]]) -> Verdict:
    refused, unknown = answers
    return NO_GO if refused else UNKNOWN if unknown else GO


def vllm(words: str, weights: str, compute: tuple[int, int], release: tuple[int, ...] | None = None
         ) -> Verdict:  # fmt: skip
    plan = replace(vllm_plan(words.split()), release=release)
    assert not plan.problems
    verdict = of(experts_of_vllm(WEIGHTS[weights], plan, [Card("a card", compute=compute)]))
    return UNKNOWN if plan.uncounted else verdict


def sglang(words: str, weights: str, compute: tuple[int, int],
           release: tuple[int, ...] | None = None) -> Verdict:  # fmt: skip
    plan = replace(sglang_plan(words.split()), release=release)
    return of(kernels_of_sglang(WEIGHTS[weights], plan, [Card("a card", compute=compute)]))


@pytest.mark.parametrize(
    ("backend", "weights", "compute", "verdict"),
    [
        ("auto", "half", HOPPER, GO), ("triton", "half", HOPPER, GO), ("triton", "half", A100, GO),
        ("deep_gemm", "half", HOPPER, NO_GO), ("cutlass", "half", HOPPER, NO_GO),
        ("flashinfer_trtllm", "half", HOPPER, NO_GO),  # vllm#54742
        ("flashinfer_trtllm", "half", B200, UNKNOWN),
        ("flashinfer_trtllm", "half", CONSUMER, NO_GO), ("aiter", "half", HOPPER, NO_GO),
        ("flashinfer_cutlass", "half", A100, NO_GO), ("flashinfer_cutlass", "half", CONSUMER, GO),
        ("marlin", "blocks", A100, GO), ("marlin", "fp8", HOPPER, GO),
        ("auto", "blocks", A100, UNKNOWN), ("auto", "blocks", ADA, GO),  # vllm#39610
        ("triton", "blocks", A100, NO_GO), ("triton", "blocks", ADA, GO),
        ("deep_gemm", "blocks", A100, NO_GO), ("flashinfer_cutlass", "fp8", A100, NO_GO),
        ("flashinfer_trtllm", "blocks", HOPPER, NO_GO), ("triton_unfused", "fp8", HOPPER, NO_GO),
        ("deep_gemm", "fp8", HOPPER, NO_GO), ("deep_gemm", "blocks", HOPPER, UNKNOWN),
        ("flashinfer_trtllm", "int4", HOPPER, NO_GO), ("marlin", "int4", A100, GO),
        ("flashinfer_trtllm", "mxfp4", HOPPER, NO_GO), ("flashinfer_cutlass", "mxfp4", ADA, NO_GO),
        ("flashinfer_cutlass", "mxfp4", HOPPER, UNKNOWN),  # vllm#48541
        ("marlin", "mxfp4", ADA, GO), ("cutlass", "nvfp4", HOPPER, NO_GO),
        ("marlin", "nvfp4", HOPPER, GO), ("deep_gemm", "dense", A100, GO),
    ],
)  # fmt: skip
def test_a_backend_for_experts_of_vllm(
    backend: str, weights: str, compute: tuple[int, int], verdict: Verdict
) -> None:
    assert vllm(f"--moe-backend {backend}", weights, compute) is verdict
    assert vllm(f"--kernel-config.moe_backend {backend}", weights, compute) is verdict
    both = f"--kernel-config.moe_backend triton --moe-backend {backend}"
    if backend != "auto":
        assert vllm(both, weights, compute) is verdict


def test_releases_differ_in_what_they_take() -> None:
    """0.28 refuses Marlin's for weights of 16 bits, and 0.33 takes another one for them."""
    assert vllm("--moe-backend marlin", "half", HOPPER) is UNKNOWN
    assert vllm("--moe-backend marlin", "half", HOPPER, (0, 28)) is NO_GO
    assert vllm("--moe-backend marlin", "half", HOPPER, (0, 33)) is GO
    assert vllm("", "blocks", A100, (0, 33)) is GO
    assert vllm("", "half", A100) is GO


def test_what_else_is_in_a_kernel_config_is_not_known() -> None:
    words = ["--kernel-config", '{"moe_backend": "triton", "monokernel": true}']
    assert vllm_plan(words).uncounted
    assert vllm_plan(["--kernel-config", "{}"]).uncounted
    assert vllm_plan(["--kernel-config", '{"moe_backend": "triton"}']).uncounted == ()


@pytest.mark.parametrize(
    ("words", "weights", "compute", "verdict"),
    [
        ("--moe-runner-backend auto", "half", B200, GO),
        ("--moe-runner-backend triton", "half", B200, GO),
        ("--moe-runner-backend flashinfer_cutedsl", "half", B200, NO_GO),
        ("--moe-runner-backend flashinfer_cutedsl", "blocks", HOPPER, NO_GO),
        ("--moe-runner-backend flashinfer_cutedsl", "nvfp4", B200, UNKNOWN),
        ("--quantization fp8 --moe-runner-backend flashinfer_cutlass", "half", B200, NO_GO),
        ("--moe-runner-backend flashinfer_cutlass", "blocks", HOPPER, UNKNOWN),  # sglang#27951
        ("--moe-runner-backend flashinfer_mxfp4", "mxfp4", CONSUMER, UNKNOWN),  # sglang#13061
        ("--moe-runner-backend flashinfer_mxfp4", "mxfp4", A100, NO_GO),
        ("--moe-runner-backend triton_kernel", "mxfp4", HOPPER, GO),
        ("--moe-runner-backend cutlass", "blocks", A100, NO_GO),
        ("--fp8-gemm-backend triton", "blocks", HOPPER, GO),
        ("--fp8-gemm-backend flashinfer_trtllm", "blocks", HOPPER, NO_GO),
        ("--fp8-gemm-backend flashinfer_trtllm", "half", HOPPER, GO),
        ("--fp8-gemm-backend cutlass", "blocks", HOPPER, UNKNOWN),
        ("--fp8-gemm-backend flashinfer_deepgemm", "blocks", B200, NO_GO),
    ],
)  # fmt: skip
def test_a_backend_of_sglang(
    words: str, weights: str, compute: tuple[int, int], verdict: Verdict
) -> None:
    assert sglang(words, weights, compute) is verdict


@pytest.mark.parametrize(
    ("words", "weights"),
    [("--moe-runner-backend flashinfer_cutlass", "blocks"),
     ("--moe-runner-backend flashinfer_mxfp4", "mxfp4")],
)  # fmt: skip
def test_a_release_that_is_new_enough(words: str, weights: str) -> None:
    assert sglang(words, weights, CONSUMER, (0, 5, 23)) is GO
    assert sglang(words, weights, CONSUMER, (0, 5, 5)) is UNKNOWN


@pytest.mark.parametrize("name", ["intel_amx", "ascend", "aiter", "qsa", "dsv4"])
def test_a_backend_for_attention_of_others_is_named(name: str) -> None:
    """It was GO, with a note that it is not judged."""
    plan, here = sglang_plan(["--attention-backend", name]), [Card("a card", compute=HOPPER)]
    assert list(not_known_of_backends(PLAIN, plan, here))
    assert plan.notes == ()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "sglang gemm"])
def test_every_row_of_the_table_can_hold(engine: str) -> None:
    for row in rows(engine):
        assert row.state in ("works", "refused", "unknown"), row
        assert all(low <= high for low, high in row.spans), row
        assert re.search(r"0\.\d|#\d", row.words), row
