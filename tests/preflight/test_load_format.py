"""What --load-format of vLLM and SGLang reads in a repository, and what they refuse."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from console.checks.preflight import Level, load_format
from console.checks.preflight.checkpoint import not_known
from console.models.hub.checkpoint import read
from console.models.hub.listing import Listing, RemoteFile
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import LoaderPlan

GIB = 1 << 30
SAFE = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
PLANS: Mapping[str, Callable[[Sequence[str]], LoaderPlan]] = {
    "vllm": vllm_plan, "sglang": sglang_plan,
}  # fmt: skip


def levels(engine: str, words: str, *names: str) -> list[Level]:
    files = tuple(RemoteFile(name, GIB) for name in (*names, "config.json"))
    listing = Listing("org/model", "0" * 40, "http://127.0.0.1:1", files)
    chosen = read(listing, (), (), config={"torch_dtype": "bfloat16"}).choose()
    found = list(load_format.findings(PLANS[engine](words.split()), chosen, listing))
    assert all(one.level is not Level.UNKNOWN or not_known([one]) for one in found)
    return [one.level for one in found]


@pytest.mark.parametrize("engine", PLANS)
@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("auto", None),
        ("safetensors", None),
        ("gguf", Level.FAIL),
        ("pt", Level.FAIL),
        ("npcache", Level.FAIL),
        ("mistral", Level.FAIL),
        ("sharded_state", Level.FAIL),
        ("bitsandbytes", Level.UNKNOWN),
        ("fastsafetensors", Level.WARN),
        ("instanttensor", Level.UNKNOWN),
        ("layered", Level.UNKNOWN),
        ("tensorizer", Level.UNKNOWN),
        ("dummy", Level.WARN),
    ],
)
def test_a_repository_of_safetensors(engine: str, name: str, level: Level | None) -> None:
    if engine == "sglang" and name == "tensorizer":
        return  # no word of its closed set
    expected = [] if level is None else [level]
    if (engine, name) == ("sglang", "fastsafetensors"):
        expected += [Level.UNKNOWN]  # its own package does not bring it
    assert levels(engine, f"--load-format {name}", *SAFE) == expected


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_loader_that_no_package_brings_is_named(engine: str) -> None:
    assert levels(engine, "--load-format runai_streamer", *SAFE) == [Level.WARN, Level.UNKNOWN]


def test_mistrals_own_configuration_has_to_be_there() -> None:
    words = "--config-format mistral"
    assert levels("vllm", words, *SAFE) == [Level.FAIL]
    assert levels("vllm", words, *SAFE, "params.json") == []
    assert levels("vllm", "--config-format hf", *SAFE) == []


def test_nothing_is_said_without_the_option() -> None:
    assert levels("vllm", "", *SAFE) == []


def test_vllm_takes_the_name_in_any_case() -> None:
    assert levels("vllm", "--load-format PT", *SAFE) == [Level.FAIL]
    assert levels("vllm", "--load-format SafeTensors", *SAFE) == []


def test_what_another_format_would_load_is_not_what_is_judged() -> None:
    assert levels("vllm", "--load-format npcache", *SAFE, "pytorch_model.bin") == [Level.UNKNOWN]
    consolidated = (*SAFE, "consolidated.safetensors")
    assert levels("vllm", "--load-format mistral", *consolidated) == [Level.UNKNOWN]
    assert levels("vllm", "--load-format mistral", "consolidated.safetensors") == []


def test_a_repository_without_safetensors() -> None:
    assert levels("sglang", "--load-format safetensors", "pytorch_model.bin") == [Level.FAIL]
    assert levels("sglang", "--load-format npcache", "pytorch_model.bin") == []


def test_files_of_another_directory_are_not_read() -> None:
    assert levels("vllm", "--load-format pt", *SAFE, "original/consolidated.00.pt") == [Level.FAIL]


def test_a_pattern_of_ones_own_is_not_refused() -> None:
    words = '--load-format sharded_state --model-loader-extra-config {"pattern":"x-{rank}"}'
    assert levels("vllm", words, *SAFE) == [Level.UNKNOWN]
    assert "--model-loader-extra-config" in vllm_plan(words.split()).uncounted[0]
