"""What came with a release: a verdict that needs it says so, and an older release is refused it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.options import since
from console.common.options.since import Newcomer, arrivals, newcomers
from console.common.options.table import table
from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.builds import NEWER, contested
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import Build
from console.models.sizing.model_facts import ModelFacts
from tests.sizing import shapes
from tests.sizing.test_backends import PLAIN

GIB = 1 << 30
ROOMY = Machine(
    cards=(Card("A", total=80 * GIB, free=80 * GIB, compute=(9, 0)),), ram_available=512 * GIB
)
OLD, NEW = "vllm/vllm-openai:v0.9.2", "vllm/vllm-openai:v0.33.0"
CODER = "--max-model-len 4096 --enable-auto-tool-choice --tool-call-parser qwen3_coder"


def by_vllm(words: str, image: str = "", facts: ModelFacts = PLAIN) -> Assessment:
    return assess(facts, vllm_plan(words.split(), image=image), ROOMY, advised=False)


def by_sglang(words: str, image: str = "", facts: ModelFacts = PLAIN) -> Assessment:
    return assess(facts, sglang_plan(words.split(), image), ROOMY, advised=False)


def test_a_value_that_came_with_a_release() -> None:
    """Qwen3-Coder#461: the parser of its own came with vLLM 0.10."""
    unknown = by_vllm(f"--gpu-memory-utilization 0.9 {CODER}")
    assert unknown.verdict is Verdict.GO
    assert "holds from vLLM 0.10 on (--tool-call-parser qwen3_coder)" in unknown.because
    old = by_vllm(CODER, OLD)
    assert old.verdict is Verdict.NO_GO
    assert "vLLM 0.9 has no --tool-call-parser qwen3_coder" in old.because
    new = by_vllm(CODER, NEW)
    assert (new.verdict, new.because) == (Verdict.GO, "everything fits")


def test_an_option_that_came_with_a_release() -> None:
    words = "--gpu-memory-utilization 0.9 --max-model-len 4096 --shutdown-timeout 60"
    row = next(iter(newcomers(vllm_options(words), table("vllm"))))
    assert row.since > row.lacks
    assert "holds from vLLM" in by_vllm(words).because
    assert "has no --shutdown-timeout" in by_vllm(words, OLD).because
    assert by_vllm(words, OLD).verdict is Verdict.NO_GO
    assert by_vllm(words, NEW).verdict is Verdict.GO


def vllm_options(words: str):  # type: ignore[no-untyped-def]
    from console.common.options.command_line import given

    return list(given(words.split(), table("vllm")))


def test_a_class_that_an_older_release_does_not_list_is_unknown() -> None:
    """transformers' own code may load it there."""
    facts = replace(PLAIN, classes=("Glm4MoeForCausalLM",))
    words = "--gpu-memory-utilization 0.9 --max-model-len 4096"
    assert "holds from vLLM 0.10 on (Glm4MoeForCausalLM)" in by_vllm(words, "", facts).because
    old = by_vllm(words, OLD, facts)
    assert (old.verdict, "whether vLLM 0.9 has Glm4MoeForCausalLM" in old.because) == (
        Verdict.UNKNOWN, True,
    )  # fmt: skip
    assert by_vllm(words, NEW, facts).verdict is Verdict.GO


def test_sglang_and_its_nightly_images() -> None:
    words = "--context-length 4096 --tool-call-parser glm47"
    assert "holds from SGLang 0.5.7 on" in by_sglang(words).because
    assert by_sglang(words, "lmsysorg/sglang:v0.5.5").verdict is Verdict.NO_GO
    nightly = by_sglang(words, "lmsysorg/sglang:nightly-dev-20251209")
    assert nightly.verdict is Verdict.UNKNOWN
    assert "0.5.6 or later" in nightly.because
    assert by_sglang(words, "lmsysorg/sglang:v0.5.23").because == "everything fits"
    of_kt = by_sglang(f"{words} --kt-weight-path /w --kt-method FP8")
    assert "holds from" not in of_kt.because  # its fork has releases of its own


@pytest.mark.parametrize(
    ("release", "answer"),
    [((0, 9), False), ((0, 10), None), ((0, 11), True), ((0, 10, 1), False), ((0, 10, 2), True)],
)
def test_numbers_that_a_release_lacks(release: tuple[int, ...], answer: bool | None) -> None:
    assert Newcomer("x", (0, 10, 2), (0, 10, 1)).is_in(release) is answer


def test_a_release_without_sources_is_not_known() -> None:
    newcomer = Newcomer("x", (0, 16, 0), (0, 14, 0))
    assert [newcomer.is_in((0, minor)) for minor in (14, 15, 16)] == [False, None, True]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "ik_llama", "llama_cpp"])
def test_the_tables_name_options_and_values_that_there_are(engine: str) -> None:
    options = table(engine)
    folder = Path(since.__file__).parent
    for line in (folder / f"since_{engine}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        names = line.split()[3:] if "llama" in engine else [line.split()[2].rstrip(":")]
        values = [] if "llama" in engine else line.split()[3:]
        for name in names:
            option = options.option(name)
            assert option is not None, line
            assert set(values) <= set(option.choices), line


IK = "-c 4096 -ngl 0 -ctk q8_0"


def by_ik(words: str, header: str = "llama", **known: object) -> Assessment:
    plan = ik_plan(f"{IK} {words}".split(), takes=known.pop("takes", None))  # type: ignore[arg-type]
    facts = known.pop("facts", None) or from_gguf(shapes.llama_70b())
    return assess(facts, replace(plan, **known), Machine(ram_available=768 << 30), advised=False)  # type: ignore[arg-type]


def test_an_option_of_ik_llama_that_came_with_a_build() -> None:
    unknown = by_ik("-khad")
    assert unknown.verdict is Verdict.GO
    assert "holds for ik_llama.cpp of 2025-12-04 or later" in unknown.because
    old = by_ik("-khad", commits=3928)
    assert (old.verdict, "older than 4041" in old.because) == (Verdict.NO_GO, True)
    assert "holds" not in by_ik("-khad", commits=4840).because
    assert "holds" not in by_ik("-khad", takes={NEWER: True}).because


def test_all_newer_options_are_asked_about_in_one_start() -> None:
    words = [
        "-khad",
        "-rtr",
        "--spec-autotune",
        "--suffix-corpus",
        "/x",
        "--device",
        "CUDA0",
        "-ger",
    ]
    assert contested("ik_llama", words)[NEWER] == ("-khad", "-rtr", "--spec-autotune", "-ger")


def test_rotated_keys_of_heads_that_are_no_power_of_two() -> None:
    """ik_llama.cpp#1878: -khad ended build 4542 for MiMo-V2, whose keys have 192 numbers."""
    plain = from_gguf(shapes.llama_70b())
    facts = replace(plain, attention=replace(plain.attention, key=192))
    assert "2026-05-27" in by_ik("-khad", facts=facts).because
    assert by_ik("-khad", facts=facts, commits=4542).verdict is Verdict.NO_GO
    assert by_ik("-khad", facts=facts, commits=4547).verdict is Verdict.GO
    assert by_ik("-khad -ctk f16", facts=facts, commits=4542).verdict is Verdict.GO


def test_every_arrival_has_a_source() -> None:
    for arrival in arrivals("ik_llama").values():
        assert re.fullmatch(r"ik_llama\.cpp#\d+|[0-9a-f]{7,}", arrival.source), arrival


@pytest.mark.parametrize("words", ["--served-model-name a:b", "--model-path /models/a:b"])
def test_a_colon_in_the_name_is_refused_since_sglang_0_5_6(words: str) -> None:
    """sglang#12912 of November 2025."""
    line = f"--context-length 4096 {words}"
    old, first = ("lmsysorg/sglang:v0.5.5", "lmsysorg/sglang:v0.5.6")
    assert sglang_plan(line.split(), old).refused == ()
    assert sglang_plan(line.split(), first).refused != ()
    assert sglang_plan(line.split()).refused != ()
    assert sglang_plan(line.split(), "lmsysorg/sglang:nightly-dev-20251120").refused != ()


def test_an_option_of_llama_cpp_that_came_with_a_build() -> None:
    """llama.cpp#20834: --load-mode is "invalid argument" before."""
    facts = from_gguf(shapes.llama_70b())
    machine = Machine(ram_available=768 << 30)
    plan = llama_plan(["-c", "4096", "-ngl", "0", "--load-mode", "none"])
    unknown = assess(facts, plan, machine, advised=False)
    assert (unknown.verdict, "llama.cpp of 2026-07-24 or later" in unknown.because) == (
        Verdict.GO, True,
    )  # fmt: skip
    for build, verdict in ((9000, Verdict.UNKNOWN), (10229, Verdict.GO)):
        known = replace(plan, build=Build(build))
        assert assess(facts, known, machine, advised=False).verdict is verdict
    served = replace(plan, build=Build(serves=True))
    assert "holds" not in assess(facts, served, machine, advised=False).because
