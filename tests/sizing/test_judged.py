"""Whatever an option's reader takes is judged somewhere: its value changes the plan, and somebody
reads that part of the plan.

`ALIKE` are the options whose value changes nothing, with the reason why that is harmless.
"""

import ast
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from console.common.options.table import Effect, Option, table
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import LlamaPlan, LoaderPlan, SglangPlan, VllmPlan
from console.models.sizing.model_facts import Experts
from console.models.sizing.serving.kt import by_kt
from tests.sizing.test_backends import PLAIN

Reader = Callable[[list[str]], LoaderPlan]
READERS: dict[str, Reader] = {
    "llama_cpp": lambda argv: llama_plan(["--model-draft", "d.gguf", *argv]),
    "ik_llama": lambda argv: ik_plan(["--model-draft", "d.gguf", *argv]), "vllm": vllm_plan,
    "sglang": lambda argv: sglang_plan(["--kt-weight-path", "/w", *argv]),
}  # fmt: skip
PROBES = ("1", "2", "3", "64", "0.5", "0.25", "auto", "a,b", "-1", "x=CPU", '{"method": "ngram"}',
          "{}", "none", "0,1", "1,1", "CUDA0", "fp8", "mtp:n_max=2", "32",
          "128", "y=CPU", "draft-mtp", "ngram-mod")  # fmt: skip
ALIKE = {
    (
        "sglang",
        "--speculative-num-steps",
    ): "its guesses take no layers of their own",
    ("sglang", "--speculative-num-draft-tokens"): "the same; states that it copies are UNKNOWN",
    ("sglang", "--kt-mmap-experts-dir"): "where the experts are mapped from: any directory",
    ("llama_cpp", "--rope-scaling"): "that a scaling is asked for; no tensor depends on which",
    ("llama_cpp", "--rope-scale"): "the same",
    ("llama_cpp", "--rope-freq-scale"): "the same",
    ("llama_cpp", "--yarn-orig-ctx"): "the same",
}
ALIKE |= {
    ("vllm", name): "a setting of adapters, which --enable-lora loads: with that it is UNKNOWN"
    for name in ("--lora-dtype", "--lora-target-modules", "--max-cpu-loras", "--max-lora-rank",
                 "--max-loras")
}  # fmt: skip
ALIKE |= {("ik_llama", name): why for (engine, name), why in ALIKE.items() if engine == "llama_cpp"}
UNREAD = {
    "kt_threads": "threads of the processor take no memory that is counted",
}
"""Fields of a plan that nobody reads, and why."""
SIZING = Path(__file__).parents[2] / "console" / "models" / "sizing"
PREFLIGHT = SIZING.parents[1] / "checks" / "preflight"


def options(engine: str) -> list[Option]:
    return [
        option for option in table(engine).options
        if option.effect is Effect.READ and option.kind != "flag"
    ]  # fmt: skip


def plans(engine: str, option: Option) -> set[str]:
    """What plans become of the values that an option takes."""
    # the fork with kt-kernel lacks some
    reader = sglang_plan if engine == "sglang" and option.lacks else READERS[engine]
    read = (reader([option.name, value]) for value in option.choices or PROBES)
    return {str(plan) for plan in read if not (plan.problems or getattr(plan, "refused", ()))}


@pytest.mark.parametrize("engine", READERS)
def test_each_value_of_an_option_that_is_read_changes_the_plan(engine: str) -> None:
    """kt#2076: --kt-threadpool-count was read, and its value passed over."""
    taken_alike = {
        option.name for option in options(engine) if len(plans(engine, option)) < 2
    }  # fmt: skip
    assert taken_alike == {name for of, name in ALIKE if of == engine}


@cache
def attributes() -> frozenset[str]:
    """The attributes that the judges read, by name or by getattr, without what makes plans."""
    paths = [*SIZING.rglob("*.py"), *PREFLIGHT.rglob("*.py")]
    trees = [ast.parse(path.read_text()) for path in paths if path.parent.name != "flags"]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    calls = (node for node in nodes if isinstance(node, ast.Call) and len(node.args) > 1)
    asked = {
        call.args[1].value for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "getattr"
        and isinstance(call.args[1], ast.Constant)
    }  # fmt: skip
    return frozenset(named | asked)


@pytest.mark.parametrize("plan", [LlamaPlan, SglangPlan, VllmPlan])
def test_each_field_of_a_plan_is_read_by_a_judge(plan: type) -> None:
    unread = {field.name for field in fields(plan)} - attributes()
    assert unread - UNREAD.keys() == set()


def test_the_exceptions_are_still_exceptions() -> None:
    assert not UNREAD.keys() & attributes()


KT = "--kt-weight-path /w --kt-cpuinfer 56 --kt-num-gpu-experts 8 --kt-method"


@pytest.mark.parametrize(
    ("words", "width", "told"),
    [
        (f"{KT} RAWINT4", 2048, "kt#2076"),  # two pools where nothing is said
        (f"{KT} RAWINT4 --kt-threadpool-count 2", 2048, "kt#2076"),
        (f"{KT} RAWINT4 --kt-threadpool-count 1", 2048, ""),
        (f"{KT} AMXINT4 --kt-threadpool-count 2", 2048, ""),
        (f"{KT} AMXINT4 --kt-threadpool-count 3", 2048, "NUMA node count"),
        (f"{KT} LLAMAFILE --kt-threadpool-count 3", 768, ""),
        (f"{KT} LLAMAFILE --kt-threadpool-count 4", 768, "NUMA node count"),
    ],
)
def test_thread_pools_of_kt_kernel(words: str, width: int, told: str) -> None:
    facts = replace(PLAIN, experts=Experts(384, 8, 1, width))
    refused, unknown = by_kt(facts, sglang_plan(words.split()))
    assert refused == []
    assert (told in " ".join(unknown)) if told else not unknown


@pytest.mark.parametrize(
    ("flags", "refused", "unknown"),
    [((), 0, 1), (("avx2",), 1, 0), (("avx2", "avx512f"), 1, 0),
     (("avx2", "avx512f", "avx512bw"), 0, 0)],
)  # fmt: skip
def test_the_processor_decides_on_pools_of_rawint4(
    flags: tuple[str, ...], refused: int, unknown: int
) -> None:
    """kt#2076: eight 5090 beside a processor with AVX2 alone."""
    facts = replace(PLAIN, experts=Experts(384, 8, 1, 2048))
    stops, doubts = by_kt(facts, sglang_plan(f"{KT} RAWINT4".split()), frozenset(flags))
    assert (len(stops), len(doubts)) == (refused, unknown)


@pytest.mark.parametrize("option", ["--kt-threadpool-count", "--kt-cpuinfer"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_no_pool_and_no_thread_is_named(option: str, value: str) -> None:
    plan = sglang_plan([*f"{KT} AMXINT4".split(), f"{option}={value}"])
    assert option in " ".join((*plan.problems, *plan.refused))
