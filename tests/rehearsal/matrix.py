"""How every rehearsal of the shipped playbooks has to end, and why."""

from __future__ import annotations

from dataclasses import dataclass

LAZARUS, PHASE2 = "operation-lazarus", "ik-llama-phase2"
EVALUATION, RESURRECTION = "kt-sglang-evaluation", "kt-sglang-resurrection"
BF16 = ("--input", "source={bf16}", "--input", "input_type=bf16")


@dataclass(frozen=True, slots=True)
class Case:
    """`more`: arguments, with {NAME} for a checkpoint of `tests.rehearsal.checkpoint`; `why`: words
    that are in what the run says of its end; `large`: on a site where memory and CPU hold."""

    playbook: str
    fault: str
    state: str
    decision: str | None
    why: str = ""
    more: tuple[str, ...] = ()
    large: bool = False


CASES = (
    Case(LAZARUS, "", "succeeded", "go"),
    Case(LAZARUS, "no-sm120", "rolled_back", None, "sm120"),
    Case(LAZARUS, "no-sched-ext", "succeeded", "no_go", "sched_ext"),
    Case(LAZARUS, "cuda-error", "rolled_back", None, "CUDA error"),
    Case(LAZARUS, "slow", "rolled_back", "no_go", "< 10 tok/s"),
    Case(LAZARUS, "grey", "rolled_back", "hold", "bench.tok_s"),
    Case(LAZARUS, "vram", "rolled_back", None, "VRAM used"),
    Case(LAZARUS, "ram", "rolled_back", None, "RAM available"),
    Case(LAZARUS, "crash", "rolled_back", None, "stability"),
    Case(LAZARUS, "never-ready", "rolled_back", None, "not ready"),
    Case(PHASE2, "", "succeeded", "go", "", ("--input", "source={q4_k_m}",
                                            "--input", "gpu_layers=16")),
    Case(PHASE2, "", "succeeded", "hold", "serves this very configuration",
         ("--input", "source={q4_k_m}")),
    Case(EVALUATION, "", "succeeded", "go", "", BF16, True),
    Case(EVALUATION, "grey", "rolled_back", "hold", "bench.tok_s", BF16, True),
    Case(EVALUATION, "slow", "rolled_back", "no_go", "< 8 tok/s", BF16, True),
    Case(RESURRECTION, "", "succeeded", "no_go", "segmentation fault",
         ("--input", "source={fp8}")),
    Case(RESURRECTION, "", "succeeded", "go", "",
         (*BF16, "--input", "gpu_experts=8"), True),
)  # fmt: skip
