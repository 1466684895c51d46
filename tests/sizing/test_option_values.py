"""Values that engines refuse at their start, each with what llama-server b11669 answered to it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from console.common.options.table import GRAMMARS, table
from console.common.options.values import Opened, opened
from console.host.sample import Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import LlamaPlan, SglangPlan, VllmPlan
from tests.sizing import shapes

ANSWERS = json.loads((Path(__file__).parent / "data" / "option_values.json").read_text("utf-8"))
BY_MACHINE = {
    "--host nosuch.invalid",
    "--host 10.9.9.9",
    "--host 127.0.0.1,::1",
    "--threads 99999",
    "--top-k 99999999999",
}
"""Refused by the machine on which it was tried, its names, addresses and memory; and a number that
nobody means."""
ROOMY = Machine(ram_available=768 << 30)
LLAMA = from_gguf(shapes.llama_70b())
KINDS = {
    "flag", "str", "human", "opt", "list", "two", "int", "float", "json", "object", "floats",
    "mask", "range", "bias", "host", "grammar", "template", "device", "file", "dir", "path", "some",
    "jinja", "repo", "layers", "map", "name",
}  # fmt: skip


def verdict(words: list[str]) -> Verdict:
    more = [] if "-c" in words or "--ctx-size" in words else ["-c", "512"]
    return assess(LLAMA, llama_plan([*words, *more]), ROOMY, advised=False).verdict


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: " ".join(row["words"]))
def test_no_go_is_said_of_what_the_server_refuses_and_none_of_what_it_takes(
    row: dict[str, object],
) -> None:
    words = row["words"]
    assert isinstance(words, list)
    if row["up"]:
        assert verdict(words) is not Verdict.NO_GO
    elif not list(opened("llama_cpp", words)) and " ".join(words) not in BY_MACHINE:
        assert verdict(words) in (Verdict.NO_GO, Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("plan", "words", "expected"),
    [
        (ik_plan, "-mla 9", "a whole number from 0 to 3"),
        (llama_plan, "-c 99999999999", "a whole number from 0 to 2147483648"),
        (llama_plan, "-ub 99999999999", "a whole number up to 2147483648"),
        (vllm_plan, "-tp 5000", "a whole number from 1 to 1024"),
        (vllm_plan, "--max-num-batched-tokens 0", "1 or more"),
        (sglang_plan, "--kt-num-gpu-experts 70000", "a whole number from 0 to 65536"),
    ],
)  # fmt: skip
def test_a_whole_number_out_of_range_is_told_the_range(
    plan: Callable[[list[str]], LlamaPlan | SglangPlan | VllmPlan], words: str, expected: str
) -> None:
    found = plan(words.split())
    assert [one.partition("expected ")[2] for one in found.problems] == [expected]


@pytest.mark.parametrize("words", ["--port $PORT", "-c ${CTX}", "--threads $(nproc)", "-np %N%"])
def test_a_variable_is_no_value_that_is_refused(words: str) -> None:
    assert verdict(words.split()) is Verdict.UNKNOWN
    assert verdict(["--api-key", "$KEY", "--alias", "%NAME%"]) is Verdict.GO


@pytest.mark.parametrize("engine", GRAMMARS)
def test_every_kind_of_value_is_one_that_is_known(engine: str) -> None:
    kinds = {option.kind for option in table(engine).options if not option.choices}
    assert {kind.partition("(")[0].partition("{")[0] for kind in kinds} <= KINDS


def test_what_a_server_opens_at_its_start() -> None:
    words = (
        "llama-server -m a.gguf --chat-template-file t.jinja --slot-save-path /slots --lora a,b "
        "--ssl-key-file k --path $HOME/x --api-key-file {{secret}}"
    )
    assert list(opened("llama_cpp", words.split())) == [
        Opened("--chat-template-file", "t.jinja", "file"),
        Opened("--slot-save-path", "/slots", "dir"),
        Opened("--lora", "a", "file"), Opened("--lora", "b", "file"),
    ]  # fmt: skip
    both = ["--ssl-key-file", "k", "--ssl-cert-file", "c"]
    assert [one.path for one in opened("llama_cpp", both)] == ["k", "c"]
    env = {"LLAMA_ARG_SLOT_SAVE_PATH": "/x"}
    assert list(opened("llama_cpp", [], env)) == [Opened("--slot-save-path", "/x", "dir")]
    assert [one.option for one in opened("vllm", ["--ssl-keyfile=k"])] == ["--ssl-keyfile"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (ik_plan, "--mirostat x"), (ik_plan, "--json-schema {"), (ik_plan, "--temp"),
        (vllm_plan, "serve m --seed x"), (vllm_plan, "serve m --default-chat-template-kwargs {"),
        (vllm_plan, "serve m --override-generation-config x"), (vllm_plan, "serve m --seed"),
        (sglang_plan, "--random-seed x"), (sglang_plan, "--watchdog-timeout x"),
    ],
)  # fmt: skip
def test_bad_values_of_the_other_engines_are_named(plan: object, words: str) -> None:
    assert callable(plan)
    made = plan(words.split())
    name = next(word for word in words.split() if word.startswith("--"))
    assert any(name in told for told in (*made.problems, *getattr(made, "refused", ())))


@pytest.mark.parametrize(
    ("engine", "words", "wanted"),
    [
        ("vllm", "--chat-template /no/t.jinja", Opened("--chat-template", "/no/t.jinja", "file")),
        ("sglang", "--chat-template=/no/t.json", Opened("--chat-template", "/no/t.json", "file")),
        ("sglang", "--tokenizer-path /no/t", Opened("--tokenizer-path", "/no/t", "dir")),
        ("vllm", "--tokenizer /no/t", Opened("--tokenizer", "/no/t", "dir")),
    ],
)
def test_a_template_or_tokenizer_by_its_whole_path(engine: str, words: str, wanted: Opened) -> None:
    assert list(opened(engine, words.split())) == [wanted]


@pytest.mark.parametrize(
    "words",
    ["--chat-template {{messages}}", "--chat-template chatml", "--tokenizer-path org/name"],
)
def test_what_is_no_whole_path_is_not_opened(words: str) -> None:
    assert list(opened("sglang", words.split())) == []
    assert not sglang_plan(words.split()).problems


@pytest.mark.parametrize(
    ("plan", "words", "good"),
    [
        (vllm_plan, "--tool-call-parser", "hermes"), (sglang_plan, "--device", "cuda"),
        (vllm_plan, "--reasoning-parser", "deepseek_r1"), (sglang_plan, "--log-level", "info"),
        (vllm_plan, "--attention-backend", "FLASHINFER"),
        (vllm_plan, "--attention-backend", "flash_attn"),
        (sglang_plan, "--chat-template", "chatml"), (sglang_plan, "--tool-call-parser", "qwen25"),
    ],
)  # fmt: skip
def test_a_name_that_the_engine_does_not_have_is_named(plan: object, words: str, good: str) -> None:
    assert callable(plan)
    assert not plan(["serve", "m", words, good][2 if plan is sglang_plan else 0 :]).problems
    assert any(words in told for told in plan([words, "bogus"]).problems)
