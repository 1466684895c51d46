"""What engines refuse of values, and of options beside each other, whatever the model.

`data/refusals` names the options that the engines' own checks speak of, by release. A third column
is the option without which an engine does not look at it, and which is no GO by itself or is read.
"""

import re
from pathlib import Path

import pytest

from console.common.options.beside import rows
from console.common.options.table import Effect, Option, table
from console.models.sizing.flags import llama, sglang, vllm

LISTS = Path(__file__).parent / "data" / "refusals"
PLANS = {"sglang": sglang.sglang_plan, "vllm": vllm.vllm_plan, "ik_llama": llama.ik_plan}
BOUNDED = re.compile(r"\{|name$|map$|file$|(?:int|float|human|list)\(")


def judged(engine: str) -> set[str]:
    """The options that a row of the table names."""
    return {
        option.name for row in rows(engine) for name in re.findall(r"--[a-z0-9-]+", str(row.terms))
        if (option := table(engine).option(name)) is not None
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(LISTS.glob("*.txt")), ids=lambda path: path.stem)
def test_what_an_engines_checks_speak_of_is_not_passed_over(path: Path) -> None:
    engine = path.name.partition("-")[0]
    named, unjudged = judged(engine), []
    for row in path.read_text().splitlines():
        if row.startswith(("#", "@")):
            continue
        name, _, *beside = row.split("  ")
        option = table(engine).option(name)
        assert option is not None, name
        partner = table(engine).option(beside[0]) if beside else None
        if not (_is_judged(option) or option.name in named or (partner and _is_judged(partner))):
            unjudged.append(name)
    assert unjudged == []


def _is_judged(option: Option) -> bool:
    bounded = BOUNDED.match(option.kind) is not None
    return option.effect is not Effect.HARMLESS or bounded or bool(option.safe)


def test_no_module_of_an_engines_checks_is_left_out() -> None:
    """The list said "of arg_groups", and had two of its modules."""
    rows = [
        row.split("  ") for row in (LISTS / "sglang-0.5.23.txt").read_text().splitlines()
        if not row.startswith("#")
    ]  # fmt: skip
    modules = {row[0].removeprefix("@ "): row[2:] == ["alone"] for row in rows if row[0][0] == "@"}
    named = {row[1] for row in rows if row[0][0] != "@"}
    assert named == {module for module, alone in modules.items() if not alone}
    hooks = {"moe_hook.py", "attention_hook.py", "speculative_hook.py", "parallel_hook.py",
             "kv_cache_hook.py", "lora_hook.py", "mamba_hook.py", "overrides.py"}  # fmt: skip
    assert hooks <= named


@pytest.mark.parametrize(
    ("engine", "refused", "taken"),
    [
        ("sglang", "--served-model-name llama3.1:8b", "--served-model-name s3://b/x"),
        ("sglang", "--model-path /m/llama3.1:8b", "--model-path /m/x:8b --served-model-name x"),
        ("sglang", "--enable-priority-scheduling --schedule-policy lpm",
         "--enable-priority-scheduling --schedule-policy lof"),
        ("sglang", "--retraction-policy priority",
         "--retraction-policy priority --enable-priority-scheduling"),
        ("sglang", "--export-metrics-to-file",
         "--export-metrics-to-file --export-metrics-to-file-dir /d"),
        ("sglang", "--schedule-conservativeness -1", "--schedule-conservativeness 0"),
        ("sglang", "--tokenizer-worker-num 0", "--tokenizer-worker-num 1"),
        ("sglang", "--enable-tokenizer-batch-encode --enable-dynamic-batch-tokenizer",
         "--enable-tokenizer-batch-encode"),
        ("sglang", "--gc-threshold 1 2 3 4", "--gc-threshold 1 2 3"),
        ("sglang", "--default-chat-template-kwargs [1]", '--default-chat-template-kwargs {"a":1}'),
        ("sglang", "--grpc-port 5 --api-key x", "--grpc-port 5 --api-key x --smg-grpc-mode"),
        ("sglang", "--grpc-port 30000", "--grpc-port 30000 --port 30001"),
        ("sglang", '--limit-mm-data-per-request {"image":1,"picture":2}',
         '--limit-mm-data-per-request {"image":1,"video":2}'),
        ("sglang", '--preferred-sampling-params {"watermark":1}',
         '--preferred-sampling-params {"top_p":0.9}'),
        ("vllm", "--headless --api-server-count 2", "--headless --api-server-count 0"),
        ("vllm", "--grpc-port 50051", "--grpc"),
        ("vllm", "--enable-per-request-metrics --disable-log-stats",
         "--enable-per-request-metrics --disable-log-stats --no-enable-per-request-metrics"),
        ("vllm", "--stream-interval 0", "--stream-interval 1"),
        ("vllm", "--max-logprobs -2", "--max-logprobs -1"),
        ("vllm", "--kv-cache-metrics-sample 0", "--kv-cache-metrics-sample 1"),
        ("vllm", "--watermark 1", "--watermark 0"),
        ("vllm", "--max-num-queued-tokens -3", "--max-num-queued-tokens 2k"),
        ("vllm", '--structured-outputs-config {"backend":"nosuch"}',
         '--structured-outputs-config {"backend":"guidance"}'),
        ("vllm", "--structured-outputs-config.backend nosuch",
         "--structured-outputs-config.backend auto"),
        ("ik_llama", "-gan 3 -gaw 512", "-gan 4 -gaw 512"),
        ("ik_llama", "-gan 3", "-gaw 7"),
    ],
)  # fmt: skip
def test_what_is_refused_and_what_is_taken(engine: str, refused: str, taken: str) -> None:
    plan = PLANS[engine]
    assert len(plan(refused.split()).refused) == 1
    assert plan(taken.split()).refused == ()


def test_a_variable_may_be_what_an_option_needs() -> None:
    words = ["--grpc-port", "50051"]
    assert vllm.vllm_plan(words, {"VLLM_USE_RUST_FRONTEND": "1"}).refused == ()
    assert vllm.vllm_plan(words, {"VLLM_USE_RUST_FRONTEND": "0"}).refused


def test_no_secret_is_shown_with_what_it_is_beside() -> None:
    told = sglang.sglang_plan(["--grpc-port", "5", "--api-key", "kJ8s7dh2Ks9d"]).refused
    assert told == ("--grpc-port beside --api-key",)


def test_every_row_can_hold() -> None:
    for engine in ("sglang", "vllm", "ik_llama"):
        for row in rows(engine):
            for name in re.findall(r"--[a-z0-9-]+", str(row.terms)):
                assert table(engine).option(name) is not None, row
