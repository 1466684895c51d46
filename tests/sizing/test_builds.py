"""Options that some builds of a server take and others refuse."""

import pytest

from console.host.sample import Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.builds import NEWER, contested
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.loader_plan import LlamaPlan
from tests.sizing import shapes

ROOMY = Machine(ram_available=768 << 30)
LLAMA = from_gguf(shapes.llama_70b())


def verdict(plan: LlamaPlan) -> tuple[Verdict, str]:
    found = assess(LLAMA, plan, ROOMY, advised=False)
    return found.verdict, found.because


@pytest.mark.parametrize(
    ("words", "option", "instead"),
    [
        ("--no-mmap", "--no-mmap", "--load-mode none"),
        ("--mmap", "--mmap", "--load-mode mmap"),
        ("--mlock", "--mlock", "--load-mode mlock"),
        ("-dio", "--direct-io", "--load-mode dio"),
        ("--no-direct-io", "--no-direct-io", ""),
        ("-fa", "--flash-attn", "--flash-attn on"),
        ("-fa -t 8", "--flash-attn", "--flash-attn on"),
        ("--log-colors", "--log-colors", "--log-colors auto"),
        ("-cpent 3", "--checkpoint-every-n-tokens", "--checkpoint-min-step"),
    ],
)
def test_what_newer_builds_refuse_depends_on_the_build(
    words: str, option: str, instead: str
) -> None:
    line = ["-c", "4096", *words.split()]
    level, why = verdict(llama_plan(line))
    assert level is Verdict.UNKNOWN
    assert (option in why, instead in why) == (True, True), why
    assert verdict(llama_plan(line, takes={option: True}))[0] is Verdict.GO
    level, why = verdict(llama_plan(line, takes={option: False}))
    assert (level, option in why) == (Verdict.NO_GO, True), why


def test_everyday_lines_of_ik_llama() -> None:
    words = [
        "-c",
        "4096",
        "-ctk",
        "q8_0",
        "-mla",
        "3",
        "-amb",
        "512",
        "-rtr",
        "-fmoe",
        "--no-mmap",
        "--mlock",
    ]
    level, why = verdict(ik_plan(words))
    assert (level, "--fused-moe" in why, "mmap" in why) == (Verdict.UNKNOWN, True, False), why
    assert verdict(ik_plan(words, takes={"--fused-moe": True}))[0] is Verdict.GO
    assert verdict(ik_plan(words, takes={"--fused-moe": False}))[0] is Verdict.NO_GO


def test_a_variable_that_a_build_does_not_know_is_passed_over() -> None:
    env = {"LLAMA_ARG_NO_MMAP": "1"}
    plan = llama_plan(["-c", "4096"], env)
    assert "LLAMA_ARG_NO_MMAP" in plan.unsettled[0]
    gone = llama_plan(["-c", "4096"], env, takes={"--no-mmap": False})
    assert (gone.mmap, gone.unsettled, gone.refused) == (True, (), ())
    assert llama_plan(["-c", "4096"], env, takes={"--no-mmap": True}).mmap is False


def test_what_a_build_is_asked_about() -> None:
    words = ["-c", "4096", "--no-mmap", "-fa", "--draft", "16", "--mlock"]
    assert contested("llama_cpp", words) == {
        "--no-mmap": ("--no-mmap",), "--flash-attn": ("-fa",), "--draft-max": ("--draft", "16"),
        "--mlock": ("--mlock",),
    }  # fmt: skip
    assert contested("llama_cpp", ["-c", "4096", "-fa", "on", "--no-host"]) == {}
    newer = contested("llama_cpp", ["-c", "4096", "-fa", "on", "--load-mode", "none"])
    assert newer == {NEWER: ("--load-mode", "none")}
    assert contested("ik_llama", ["-fmoe", "--no-mmap"]) == {"--fused-moe": ("-fmoe",)}


@pytest.mark.parametrize(
    "words",
    [
        "--draft-model /x.gguf",  # atomantic/PortOS#4653: "has never existed in any build"
        "--draft_model /x.gguf", "--n-gpu-layers=99", "-ngl=99", "--ctx-size=8192", "-c=8192",
        "--cache_type_k=q8_0",
    ],
)  # fmt: skip
def test_what_no_build_takes_is_refused(words: str) -> None:
    """llama.cpp compares whole words: "error: invalid argument: --n-gpu-layers=99"."""
    for reader in (llama_plan, ik_plan):
        level, why = verdict(reader(["-c", "4096", *words.split()]))
        assert (level, "no build" in why) == (Verdict.NO_GO, True), why


@pytest.mark.parametrize("words", ["--newer 3", "--newer=3", "-newer"])
def test_what_a_newer_build_may_have_is_not_known(words: str) -> None:
    assert verdict(llama_plan(["-c", "4096", *words.split()]))[0] is Verdict.UNKNOWN


def test_a_refused_option_keeps_its_secret() -> None:
    (told,) = llama_plan(["-c", "4096", "--api-key=hunter2"]).refused
    assert "hunter2" not in told
