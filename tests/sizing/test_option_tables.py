"""The tables of options against the engines' own lists; what is not understood is named.

`data/options` has each engine's options as its help or source lists them, with the version in the
name of the file. A newer list beside an older one shows what a release has added.
"""

import re
from pathlib import Path

import pytest

from console.common import redact
from console.common.options.command_line import given, own_words, value_of
from console.common.options.table import GRAMMARS, Effect, table
from console.models.sizing.flags import llama, sglang, vllm
from console.models.sizing.flags.reading import named

LISTS = Path(__file__).parent / "data" / "options"
BESIDE = {
    "--kt-mmap-experts-dir", "--kt-skip-gpu-expert-cpu-copy",
    "--mmap", "--no-mmap", "--mlock", "-dio", "--direct-io", "-ndio", "--no-direct-io", "-fmoe",
    "--fused-moe", "-ooae", "--offload-only-active-experts", "--tp", "--dp", "--speculative-algo",
    "-cpent", "--checkpoint-every-n-tokens",
}  # fmt: skip
"""Of open pull requests, of builds before, and beginnings that many take for a name."""
ANY_VALUE = ("str", "list", "opt", "two", "json", "object", "map", "path", "template")
CHOOSES = re.compile(
    "backend|mode|format|connector|method|impl|algo|strategy|policy|plugin|loader|template|numa"
)
FREE = {
    "a name, and words that the server gives or takes": """
        --alias --served-model-name --api-key --admin-api-key --hf-token --tags --weight-version
        --fingerprint-value --response-role --otlp-service-name --forward-pass-metrics-worker-id
        --ssl-keyfile-password --reasoning-budget-message --reverse-prompt --allowed-media-domains
        --tokenizer-metrics-custom-labels-header --tokenizer-metrics-allowed-custom-labels""",
    "a host, an address of it, or a part of one": """
        --host --master-addr --data-parallel-address --dist-init-addr --uds --root-path
        --fastapi-root-path --api-prefix --otlp-traces-endpoint --allowed-headers --allowed-methods
        --allowed-origins --cors-headers --cors-methods --cors-origins
        --disable-access-log-for-endpoints --uvicorn-access-log-exclude-prefixes""",
    "a version of the repository": "--revision --code-revision --tokenizer-revision",
    "where something is written, in a directory that is made": """
        --download-dir --log-file --log-prompts-dir --crash-dump-folder --file-storage-path
        --export-metrics-to-file-dir --debug-tensor-dump-output-folder --spec-trace-dir
        --log-requests-target --slot-save-path --sql-save-file --draft-output-file --output-file""",
    "buckets and labels of metrics": """
        --custom-histogram-buckets --bucket-e2e-request-latency --bucket-inter-token-latency
        --bucket-time-to-first-token --prefill-delayer-forward-passes-buckets
        --prefill-delayer-wait-seconds-buckets --extra-metric-labels
        --show-hidden-metrics-for-version""",
    "what a request has that says nothing, as JSON or words": """
        --default-chat-template-kwargs --chat-template-kwargs --override-generation-config
        --preferred-sampling-params --limit-mm-data-per-request --reasoning-effort-map
        --reasoning-effort --completion-template --constrained-json-whitespace-pattern --samplers
        --sampling-seq --dry-sequence-breaker --json-schema""",
    "its bad values are judged by its kind, by beside.txt, or by what it opens": """
        --structured-outputs-config --chat-template --api-key-file --mcp-servers-json
        --webui-config""",
    "it is passed over, with a warning or without one": """
        --defrag-thold --fused-delta-net --help --video-ffmpeg-dir --tools-runtime --webui
        --ctx-checkpoints-eviction --allowlist-keyword --allowlist-pieces --minilog
        --sqlite-zstd-ext-file""",
    "builds since refuse it, and the words of before are others'": """
        --draft-min --draft-p-min --spec-ngram-min-hits --spec-ngram-size-m --spec-ngram-size-n
        --suffix-corpus --suffix-max-depth --suffix-pattern-len""",
    "of other tools than the server": """
        --audio --cfg-negative-prompt --cfg-negative-prompt-file --chunk-separator
        --embd-output-format --embd-separator --in-file --in-prefix --in-suffix
        --kl-divergence-base --negative-file -npl -npp -ntg --output-tensor-name --positive-file
        --prompt --prompt-cache --spec-replace --method --output-format""",
    "every word of its closed set is of the engine itself, and needs nothing else": """
        --numa --reasoning-format --log-format --chat-template-content-format --fingerprint-mode
        --jit-monitor-mode --logprobs-mode --mm-hasher-algorithm --scheduling-policy
        --expert-placement-strategy --cuda-graph-backend-prefill --speculative-attention-mode
        --expert-balancedness-report-mode --grammar-backend --image-processor-backend
        --kt-expert-placement-strategy --load-balance-method --log-requests-format
        --radix-eviction-policy --retraction-policy --schedule-policy --tokenizer-mode""",
}
"""Harmless options that take any value, with the reason why none of it is refused."""
APPLIERS = {
    "llama_cpp": llama._LLAMA, "ik_llama": {**llama._LLAMA, **llama._IK}, "vllm": vllm._VLLM,
    "sglang": sglang._SGLANG,
}  # fmt: skip


def listed(path: Path) -> set[str]:
    rows = path.read_text().splitlines()
    return {name for row in rows if row and row[0] != "#" for name in row.split("  ")[0].split()}


def files(engine: str) -> list[Path]:
    return [path for path in sorted(LISTS.glob("*.names")) if path.name.startswith(engine)]


@pytest.mark.parametrize("engine", GRAMMARS)
def test_every_option_of_the_engine_is_in_its_table(engine: str) -> None:
    """A list of a newer release with other options fails here: each has to be judged."""
    known = table(engine)
    for path in files(engine):
        unknown = [name for name in sorted(listed(path)) if known.option(name) is None]
        assert unknown == [], path.name


def test_what_the_fork_with_kt_kernel_lacks_is_marked() -> None:
    own, fork = listed(LISTS / "sglang-0.5.23.names"), listed(LISTS / "sglang_kt-0.7.2.names")
    for option in table("sglang").options:
        there = own.intersection(option.spellings)
        lacks = bool(there) and not fork.intersection(option.spellings)
        assert bool(option.lacks) is lacks, option.name


def test_an_option_that_the_fork_lacks_is_no_go_ahead() -> None:
    """`unrecognized arguments: --language-model-only` of sglang-kt 0.7.2."""
    words = ["--language-model-only", "--http2-max-concurrent-streams", "8"]
    kt = ["--kt-weight-path", "/w", "--kt-method", "FP8"]
    assert sglang.sglang_plan(words).problems == ()
    named = " ".join(sglang.sglang_plan([*words, *kt]).problems)
    assert "--language-model-only: sglang-kt 0.7.2" in named
    assert "--http2-max-concurrent-streams: sglang-kt 0.7.2" in named
    assert sglang.sglang_plan([*kt, "--cuda-graph-max-bs", "8"]).problems == ()


@pytest.mark.parametrize("engine", GRAMMARS)
def test_the_table_invents_nothing(engine: str) -> None:
    names = set().union(*map(listed, files(engine)))
    spellings = {one for option in table(engine).options for one in option.spellings}
    assert spellings - names - BESIDE == set()


@pytest.mark.parametrize("engine", GRAMMARS)
def test_what_the_table_says_is_read_is_read(engine: str) -> None:
    options = table(engine)
    known = named(options, APPLIERS[engine])
    lacking = [o.name for o in options.options if o.effect is Effect.READ and o.name not in known]
    assert lacking == []


@pytest.mark.parametrize("engine", GRAMMARS)
def test_a_harmless_option_is_so_for_every_value(engine: str) -> None:
    """An option that names a backend, a mode, a format, a package or a file may be refused for its
    value (--moe-backend was passed over): it has values that are safe, or stands in `FREE`."""
    harmless = [one for one in table(engine).options if one.effect is Effect.HARMLESS]
    free = {one.name for one in harmless if one.kind in ANY_VALUE and not one.safe}
    closed = {
        one.name for one in harmless
        if one.choices and not one.safe and CHOOSES.search(one.name)
    }  # fmt: skip
    listed = {name for names in FREE.values() for name in names.split()}
    assert (free | closed) - listed == set()


@pytest.mark.parametrize("engine", GRAMMARS)
def test_safe_values_are_some_of_those_that_are_taken(engine: str) -> None:
    for option in table(engine).options:
        assert set(option.safe) <= set(option.choices or option.safe), option.name
        assert option.effect is Effect.HARMLESS or not option.safe, option.name


def test_no_free_option_is_gone() -> None:
    names = {option.name for engine in GRAMMARS for option in table(engine).options}
    assert {name for words in FREE.values() for name in words.split()} <= names


@pytest.mark.parametrize("engine", GRAMMARS)
def test_a_spelling_belongs_to_one_option(engine: str) -> None:
    seen: dict[str, str] = {}
    for option in table(engine).options:
        for spelling in option.spellings:
            assert seen.setdefault(table(engine).normal(spelling), option.name) == option.name


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["llama-server", "-c", "8"], ["-c", "8"]),
        (["numactl", "-i", "all", "/opt/llama.cpp/llama-server", "-c", "8"], ["-c", "8"]),
        (["python3", "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", "--x"], ["--x"]),
        (["/usr/bin/python3.12", "-u", "/srv/launch_server.py", "--x"], ["--x"]),
        (["vllm", "serve", "org/model", "--x"], ["org/model", "--x"]),
        (["sh", "-c", "exec llama-server -c 8"], ["-c", "8"]),
        (["llama-server", "--ctx-size 8"], ["--ctx-size", "8"]),
        (["--hf-overrides", '{"a": 1}'], ["--hf-overrides", '{"a": 1}']),
    ],
)
def test_the_engines_own_words(argv: list[str], words: list[str]) -> None:
    assert own_words(argv) == words


@pytest.mark.parametrize(
    "script", ["llama-server -c $CTX", "a && llama-server", 'llama-server "$@"', "x | y"]
)
def test_a_script_that_is_more_than_a_command_is_named(script: str) -> None:
    plan = llama.llama_plan(["bash", "-c", script])
    assert "a shell's script is no option of llama.cpp" in plan.problems[0]


def read(engine: str, words: str) -> list[tuple[str, str | None]]:
    return [(one.name, one.value) for one in given(words.split(), table(engine))]


def test_each_engine_reads_its_words_its_own_way() -> None:
    assert read("llama_cpp", "--ctx_size 9") == [("--ctx-size", "9")]
    assert read("llama_cpp", "--ctx-size=9") == [("--ctx-size=9", None)], "it takes no `=`"
    assert read("vllm", "--tensor_parallel_size=2") == [("--tensor-parallel-size", "2")]
    assert read("sglang", "--tp_size 2") == [("--tp_size", None)], "argparse knows no underscores"
    assert read("sglang", "--mem-frac 0.5") == [("--mem-fraction-static", "0.5")]
    assert read("sglang", "--pp 2") == [("--pp", None)], "two options begin so"
    assert read("vllm", "-O3 -tp 2") == [("--optimization-level", "3"),
                                         ("--tensor-parallel-size", "2")]  # fmt: skip
    assert read("vllm", "--compilation-config.mode 3")[0][0] == "--compilation-config"


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("llama_cpp", "--no-such-option"),
        ("llama_cpp", "-c 16k"),
        ("llama_cpp", "-ctk q3_0"),
        ("llama_cpp", "-ngl=99"),
        ("llama_cpp", "--lora a.gguf"),
        ("ik_llama", "-sm row"),
        ("vllm", "--no-such-option"),
        ("vllm", "--enable-lora"),
        ("vllm", "--hf-overrides {}"),
        ("vllm", "--max-model-len 16q"),
        ("sglang", "--tp_size 2"),
        ("sglang", "--tp two"),
        ("sglang", "--enable-lora"),
        ("sglang", "--context-length 16K"),
        ("vllm", "--kv-cache-dtype int3"),
        ("sglang", "--no-such"),
    ],
)
def test_what_is_not_understood_is_named(engine: str, words: str) -> None:
    plans = {"llama_cpp": llama.llama_plan, "ik_llama": llama.ik_plan, "vllm": vllm.vllm_plan,
             "sglang": sglang.sglang_plan}  # fmt: skip
    plan = plans[engine](words.split())
    option = words.split()[0]
    told = [*plan.problems, *plan.uncounted, *getattr(plan, "refused", ())]
    last = table(engine).option(option)
    assert any((last.name if last else option) in one for one in told), told


def test_the_value_in_the_end() -> None:
    llama, vllm = table("llama_cpp"), table("vllm")
    env = {"LLAMA_ARG_CTX_SIZE": "1"}
    assert value_of(["llama-server"], "-c", llama, env) == "1"
    assert value_of(["llama-server", "--ctx_size", "2", "-c", "3"], "-c", llama, env) == "3"
    assert value_of(["llama-server", "--ctx-size=8192"], "-c", llama) is None  # it is refused
    assert value_of(["vllm", "serve", "m", "--max_model_len=4"], "--max-model-len", vllm) == "4"
    assert value_of(["vllm", "serve", "m"], "--no-such-option", vllm) is None


@pytest.mark.parametrize("engine", GRAMMARS)
def test_every_secret_of_an_engine_is_hidden_however_it_is_written(engine: str) -> None:
    options = table(engine)
    secrets = [
        name for option in options.options for name in option.spellings
        if re.search(r"(?:api-key|(?<!first-)token|password)$", name)
        and option.kind in ("str", "list")
    ]  # fmt: skip
    for name in secrets:
        for form in {name, name.replace("-", "_").replace("__", "--", 1)}:
            assert "sk-s3cr3t" not in " ".join(redact.argv([form, "sk-s3cr3t"])), form
            assert "sk-s3cr3t" not in " ".join(redact.argv([f"{form}=sk-s3cr3t"])), form


def test_harmless_options_are_passed_over() -> None:
    words = "-m a.gguf --host 0.0.0.0 --port 1 --api-key x --jinja -t 8"
    plan = llama.llama_plan(words.split())
    assert (plan.problems, plan.uncounted) == ((), ())
    words = (
        "serve m --host 0.0.0.0 --port 1 --served-model-name a b --api-key x "
        "--tool-call-parser hermes"
    )
    made = vllm.vllm_plan(words.split())
    assert (made.problems, made.uncounted) == ((), ())


def test_vllms_own_options() -> None:
    words = "serve m -tp 4 -pp=2 -dp 2 --max_model_len 32K --gpu-memory-utilization 0.5 -ep"
    plan = vllm.vllm_plan([*words.split(), "--kv-cache-dtype", "fp8", "--max-num-seqs", "8"])
    assert (plan.ranks, plan.stages, plan.replicas, plan.whole_experts) == (4, 2, 2, True)
    assert (plan.ctx, plan.fraction, plan.type_kv, plan.seqs) == (32768, 0.5, "fp8", 8)
    assert vllm.vllm_plan(["--max-model-len", "32k"]).ctx == 32000
    assert vllm.vllm_plan(["--max-model-len", "auto"]).ctx == -1


@pytest.mark.parametrize(
    "words", [["--api-key=kJ8s7dh2Ks9d"], ["--no-such-api-key", "kJ8s7dh2Ks9d"]]
)
def test_no_secret_is_named_with_an_option(words: list[str]) -> None:
    for read_plan in (llama.llama_plan, vllm.vllm_plan, sglang.sglang_plan):
        assert "kJ8s7dh2Ks9d" not in str(read_plan(words))
    told = sglang.sglang_plan(["--enable-lora", "--lora-paths", "https://me:kJ8s7dh2Ks9d@h/a"])
    assert "kJ8s7dh2Ks9d" not in str(told)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("""--max-model-len 8192 --limit-mm-per-prompt '{"image": 0}'""",
         ["--max-model-len", "8192", "--limit-mm-per-prompt", '{"image": 0}']),
        ("""--limit-mm-per-prompt={"image": 0} -tp 2""",
         ['--limit-mm-per-prompt={"image": 0}', "-tp", "2"]),
        ("""--x {"a": {"b": "}"}} -tp 2""", ["--x", '{"a": {"b": "}"}}', "-tp", "2"]),
        ('''--x "{\\"a\\": 1}" --y''', ["--x", '{"a": 1}', "--y"]),
        ("""--x { "a" --y 3""", ["--x", "{", '"a"', "--y", "3"]),
        ("--x " + "{" * 40_000, ["--x", "{" * 40_000]),
    ],
    ids=["quoted", "joined", "nested", "escaped", "without an end", "far too long"],
)  # fmt: skip
def test_a_line_in_one_word_is_split_beside_its_objects(line: str, words: list[str]) -> None:
    """recipes.vllm.ai gives such lines: `--limit-mm-per-prompt '{"image":0}'` beside others."""
    assert own_words([line]) == words
    if "max-model-len" in line:
        plan = vllm.vllm_plan([line])
        assert (plan.ctx, plan.limited) == (8192, {"image"})
        assert (plan.refused, plan.problems, plan.uncounted) == ((), (), ())
