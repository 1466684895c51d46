"""What is said of each fault, of what nothing reads, and where a reason puts a finding aside."""

from dataclasses import replace

import pytest

from console.checks.lint import output, rule, run
from console.checks.lint.rule import Facts, Rule, rules
from console.checks.lint.run import BROKEN
from console.checks.lint.unit import Hit, Place, Severity
from tests.lint.faults import CASES, NOTHING, R1, SGLANG, UNEQUAL, C, found, said, stack


def test_the_fault_is_found_once_and_the_same_done_right_is_not() -> None:
    wrong = {}
    for case in CASES:
        found = [
            [one for one in said(case.file, text) if one[0] == case.rule]
            for text in (case.wrong, case.right)
        ]
        if (len(found[0]), found[1]) != (1, []):
            wrong[case.name] = found
    assert wrong == {}


def test_every_rule_has_a_fault() -> None:
    assert set(rules()) == {case.rule for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)


PAGE = "https://docs.example.com/driver#limits"


@pytest.fixture
def of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only rule is one that no lesson taught, but a page of a vendor."""
    known = Rule(
        "old-driver", Severity.WARNING, (), "An old driver", "It ends there.", "a newer one",
        lambda unit, facts: [Hit(Place(1, 1), "an old driver")], page=PAGE,
    )  # fmt: skip
    for module in (rule, run, output):
        monkeypatch.setattr(module, "rules", lambda: {known.id: known})


@pytest.mark.usefixtures("of_a_page")
def test_a_rule_cites_a_page_of_a_vendor_where_no_lesson_taught_it() -> None:
    (finding,) = found("x.sh", "ls\n")
    assert finding.text == f"x.sh:1:1: warning: an old driver [old-driver {PAGE}]"
    shown = output.as_json(finding)
    assert (shown["lessons"], shown["page"]) == ([], PAGE)
    (described,) = [one for one in output.sarif("1", [finding], [], [])["runs"][0]["tool"]
                    ["driver"]["rules"] if one["id"] == "old-driver"]  # fmt: skip
    assert described["helpUri"] == PAGE
    assert f"An old driver (warning; {PAGE})." in output.document()
    put_aside = f"ls  # omni: ignore old-driver {PAGE} one card, and it is new\n"
    assert [one.suppressed for one in found("x.sh", put_aside)] == [
        f"{PAGE}: one card, and it is new"
    ]
    texts = [one.text for one in found("x.sh", "ls  # omni: ignore old-driver F-001 why not\n")]
    assert any(f"name its page ({PAGE})" in text for text in texts)


def test_a_rule_that_cites_nothing_is_none() -> None:
    with pytest.raises(ValueError, match="neither a lesson nor"):
        rule.rule("cites-nothing", Severity.INFO, title="x", why="x", fix="x")(lambda *_: [])
    assert "cites-nothing" not in rules()


def test_a_rule_of_lessons_has_no_page_in_what_programs_read() -> None:
    (finding,) = [one for one in found("x.sh", "pkill -f sglang\n") if one.lessons]
    assert "page" not in output.as_json(finding)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"llama-server --split_mode graph --model {R1}\n", "split-mode-graph-moe"),
        (f"LLAMA_ARG_MODEL={R1} llama-server -sm graph\n", "split-mode-graph-moe"),
        (f"LLAMA_ARG_SPLIT_MODE=graph llama-server -m {R1}\n", "split-mode-graph-moe"),
        ("LLAMA_ARG_SPLIT_MODE=row llama-server -m x.gguf\n", "tensor-parallel-asymmetric-cards"),
        ("vllm serve x --tensor_parallel_size 2\n", "tensor-parallel-asymmetric-cards"),
        ("vllm serve x -tp=2\n", "tensor-parallel-asymmetric-cards"),
        ("vllm serve x --kv_cache_dtype=fp8\n", "fp8-kv-on-sm120"),
        (f"{SGLANG} --kt-meth AMXINT8\n", "amx-method-without-amx"),
        (f"{SGLANG} --model /m/x.gguf\n", "gguf-into-kt-kernel"),
    ],
)
def test_an_option_is_known_however_the_engine_takes_it(text: str, named: str) -> None:
    assert named in [one[0] for one in said("x.sh", text)]


H200 = Facts((143771 << 20,) * 8, ((9, 0),) * 8, 512 << 30)
LARGER = "checkpoint-larger-than-memory"


@pytest.mark.parametrize(
    ("text", "facts", "severities"),
    [
        ("{sglang} --tp 8 --trust-remote-code", H200, []),
        ("vllm serve {v3} --tensor-parallel-size 8 --max-model-len 32768", H200, []),
        ("vllm serve {v3} -tp 8 --cpu-offload-gb 10", H200, []),
        ("{sglang} --tp 8 --cpu-offload-gb 20", H200, ["error"]),
        ("{sglang} --tp 4", H200, ["error"]),
        ("{sglang} --tp $TP", H200, ["info"]),
        ("vllm serve {v3} --cpu-offload-gb 90 -tp 8", H200, ["error"]),
        ("{sglang} --kt-method AMXINT4 --kt-weight-path /w --kt-num-gpu-experts 1", H200, []),
        ("{sglang} --kt-method FP8 --kt-weight-path /w --kt-num-gpu-experts 1", H200, ["error"]),
        ("{sglang} --tp 8", replace(H200, memory=()), ["info"]),
        ("{sglang} --tp 8", replace(H200, ram_bytes=None), ["info"]),
        ("{sglang} --cpu-offload-gb 600", replace(H200, memory=()), ["error"]),
        ("{sglang} --tp 2", UNEQUAL, ["error"]),
    ],
)
def test_whether_a_checkpoint_fits_is_judged_as_the_preflight_does(
    text: str, facts: Facts, severities: list[str]
) -> None:
    """The public recipes for 8 x H200 were an error with less RAM than the checkpoint is large."""
    name = "deepseek-ai/DeepSeek-V3"
    line = text.format(sglang=f"{SGLANG} --model {name}", v3=name)
    assert [one[1] for one in said("x.sh", f"{line}\n", facts) if one[0] == LARGER] == severities


def test_vllm_omni_has_options_of_its_own() -> None:
    """vllm-project/vllm-omni, its deployment of Qwen3-Omni: `vllm serve --omni`."""
    text = "vllm serve Qwen/Qwen3-Omni-30B-A3B-Instruct --omni --deploy-config /x/d.yaml\n"
    assert said("x.sh", text) == []
    assert said("x.sh", text.replace("--omni ", "")) != []


def test_what_an_engine_does_not_take_is_no_option_of_it() -> None:
    text = f"{SGLANG} --model x --tp_size 2\n"  # argparse takes no underscores
    assert [one[:2] for one in said("x.sh", text)] == [("engine-refuses-option", "warning")]


OFFICIAL = "ghcr.io/ggml-org/llama.cpp"


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("vllm serve x --max-model-len 80x\n", ["error"]),
        ("vllm serve x --tensor-parallel-size\n", ["error"]),
        ("vllm serve x --dtype bf17\n", ["warning"]),
        ("vllm bench serve --max-model-len 80x --dataset-name random\n", []),
        (f"{SGLANG} --model x --mem-fraction-static high\n", ["error"]),
        ("llama-server -m x.gguf -c all\n", ["error"]),
        ("llama-server -m x.gguf -c 16k\n", ["warning"]),
        ("llama-server -m x.gguf -fa\n", ["info"]),
        ("/opt/ik_llama.cpp/llama-server -m x.gguf --cpu-moe-frob\n", ["warning"]),
        ("/opt/ik_llama.cpp/llama-server -m x.gguf -rtr -mla 3 -fmoe\n", ["info"]),
        (f"docker run {OFFICIAL}:server-cuda -m x.gguf -ngl many\n", ["error"]),
        (f"docker run {OFFICIAL}@sha256:00 -m x.gguf -ngl many\n", []),
        (f"docker run {OFFICIAL}:full --server -m x.gguf -ngl many\n", []),
        ("docker run own/llama-swap:1 --listen :8080 --config all\n", []),
        ('llama-server -m x.gguf "${ARGS[@]}" $MORE -c ${CTX:-8k} --port "$(port)"\n', []),
        ("llama-server -m x.gguf --grammar-file x --device CUDA0 --json-schema '{\"a\":1}'\n", []),
        ("llama-cli -m x.gguf -c all\n", []),
    ],
)
def test_a_command_line_is_judged_as_its_engine_reads_it(text: str, severity: list[str]) -> None:
    found = [one for one in said("x.sh", text, NOTHING) if one[0] == "engine-refuses-option"]
    assert [one[1] for one in found] == severity


def test_an_input_of_several_words_is_several_words() -> None:
    text = (
        "schema: omni.playbook/v1\ninputs:\n  more: {type: words, default: MORE}\nservices:\n"
        "  one:\n    process: {argv: [llama-server, -m, x.gguf, '${{ inputs.more }}']}\n"
    )
    for more, severities in (("''", []), ("'-c 8192 -ngl 9'", []), ("'-c all'", ["error"])):
        found = said("book.yaml", text.replace("MORE", more), NOTHING)
        assert [one[1] for one in found] == severities


def test_entrypoint_and_command_of_a_service_are_one_argv() -> None:
    text = stack("image: own/engine:1\nentrypoint: python3 -m sglang.launch_server\ncommand: >\n"
                 "  --attention-backend triton --fp8-gemm-backend triton\n  --tp 2")  # fmt: skip
    assert said(C, text) == [("tensor-parallel-asymmetric-cards", "error", 7, 7)]


def test_what_is_carried_over_ssh_is_looked_at() -> None:
    text = f"ssh -o BatchMode=yes box 'nohup timeout 60 {SGLANG} --tp 2 &'\n"
    assert [one[0] for one in said("x.sh", text)] == ["tensor-parallel-asymmetric-cards"]


def broken(name: str, text: str) -> list[tuple[int, int, str]]:
    return [
        (one.line, one.column, one.what)
        for one in found(name, text, NOTHING)
        if one.rule == BROKEN and str(one.severity) == "error"
    ]


GOOD = """\
# syntax=docker/dockerfile:1
ARG V=1
from x:${V} as one
RUN [ -f /x ] && [[ "$a" = b ]] || echo $((1<<V))
RUN\\
  [ "$a" = b ]
RUN cat <<EOF > /x && true
it's not shell
EOF
RUN python3 <<-'A'
\tprint("[")
\tA
CMD ["a", \\
  "b"]
ENTRYPOINT
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ONBUILD RUN x
HEALTHCHECK --interval=5s CMD [ -f /x ]
HEALTHCHECK NONE
EXPOSE 80
LABEL a="b"
"""


def test_of_a_good_dockerfile_nothing() -> None:
    assert broken("Dockerfile", GOOD) == []


def test_what_only_a_grammar_does_not_know_is_not_said() -> None:
    for text in ("", "echo ${{ inputs.x }}\n", "cat <<EOF\nabc\n"):
        assert broken("x.sh", text) == []


def test_nothing_of_a_text_is_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = tmp_path_factory.mktemp("x") / "made"
    assert broken("x.sh", f"touch {made}\necho $(touch {made})\nif\n") != []
    assert not made.exists()


def test_of_a_playbook_s_script() -> None:
    text = "schema: omni.playbook/v1\nphases:\n  - steps:\n      - id: a\n        script: |\n"
    (one,) = broken("book.yaml", text + "          echo 'a\n")
    assert one[0] == 6


REASON = "# omni: ignore pkill-f-as-rollback D-003 one server on this box"
KILL = "pkill -f sglang"


@pytest.mark.parametrize(
    "text",
    [f"{KILL}  {REASON}\n", f"{REASON}\n{KILL}\n", f"{REASON}\n# more words\npkill -f \\\n  a\n"],
)
def test_on_the_line_or_above_it(text: str) -> None:
    (one,) = found("x.sh", text)
    assert one.suppressed == "D-003: one server on this box"
    assert said("x.sh", text) == []


def test_in_a_dockerfile_it_covers_the_instruction() -> None:
    ignore = "# omni: ignore ggml-cuda-no-vmm F-003 one card only"
    text = f"FROM x\n{ignore}\nRUN a \\\n  && cmake \\\n  -DGGML_CUDA_NO_VMM=ON\n"
    assert said("Dockerfile", text) == []
    assert [one[2] for one in said("Dockerfile", text + "RUN make GGML_CUDA_NO_VMM=1\n")] == [6]


@pytest.mark.parametrize(
    "service",
    [
        "    command: [llama-server, -sm, graph]  {}\n",
        "    {}\n    command:\n      - llama-server\n      - -sm\n      - graph\n",
    ],
)
def test_in_yaml_it_covers_the_value(service: str) -> None:
    comment = "# omni: ignore split-mode-graph-moe F-024 a dense model"
    text = "services:\n  one:\n    image: x\n" + service.format(comment)
    assert [one.rule for one in found("stack.yaml", text) if one.suppressed] == [
        "split-mode-graph-moe"
    ]


def test_a_comment_in_a_text_is_no_comment() -> None:
    text = f"echo '{REASON}'\n{KILL}\n"
    assert said("x.sh", text) == [("pkill-f-as-rollback", "warning", 2, 1)]


def test_in_a_script_of_a_playbook_the_shell_s_comment_counts() -> None:
    text = (
        "schema: omni.playbook/v1\nphases:\n  - steps:\n      - id: a\n        script: |\n"
        f"          {REASON}\n          {KILL}\n"
    )
    assert said("book.yaml", text) == []


@pytest.mark.parametrize(
    ("model", "severity"),
    [
        ("GLM-4.6-IQ4_KS.gguf", None), ("Qwen3-235B-A22B.gguf", None), ("gpt-oss-120b.gguf", None),
        ("DeepSeek-R1-Distill-Llama-70B.gguf", None), ("Qwen3.5-397B-A17B.gguf", None),
        ("DeepSeek-R1-0528-Qwen3-8B.gguf", None), ("MiniMax-M2-IQ4_KS.gguf", None),
        ("DeepSeek-V3-0324-IQ2.gguf", "info"), ("Kimi-K2-Instruct.gguf", "info"),
        ("my-own.gguf", "info"), ("$MODEL", "info"), ("Kimi-Linear-48B-A3B.gguf", "info"),
        ("Qwen2.5-72B.gguf", "warning"), ("DeepSeek-R1-Distill-Qwen-32B.gguf", "warning"),
        ("Llama-4-Maverick-17B-128E.gguf", "warning"), ("DeepSeek-V3.2.gguf", "warning"),
        ("Qwen3-VL-235B-A22B.gguf", "warning"), ("gemma-3-27b.gguf", "warning"),
    ],
)  # fmt: skip
def test_split_mode_graph_is_judged_by_the_engine_s_list(model: str, severity: str | None) -> None:
    told = [one[1] for one in said("x.sh", f"llama-server --split_mode graph -m {model}\n")]
    assert told == ([severity] if severity else [])


def test_a_finding_says_that_its_lesson_is_due_for_a_review() -> None:
    (one,) = found("x.sh", "llama-server -sm graph -m Qwen2.5-72B.gguf\n", NOTHING)
    assert one.overdue == ("2026-04-27 (F-024)",)
    assert one.text.endswith(" [split-mode-graph-moe F-024 F-002]; to be reviewed since "
                             "2026-04-27 (F-024)")  # fmt: skip
    (other,) = found("x.sh", "cmake -DGGML_CUDA_NO_VMM=ON\n", NOTHING)
    assert (other.overdue, other.text[-1]) == ((), "]")


def test_curl_that_the_service_installs_itself_is_there() -> None:
    command = 'command: [sh, -c, "apt-get update && apt-get install -y curl && exec serve"]\n'
    check = "healthcheck: {test: [CMD, curl, -f, 'http://127.0.0.1'], interval: 5s}\n"
    for image in ("debian:12", "own/engine:1"):
        text = stack(f"image: {image}\n{command}{check}")
        assert [one for one in said(C, text) if one[0] == "healthcheck-curl"] == []
    bare = stack(f"image: debian:12\n{check}")
    assert [one[0] for one in said(C, bare)] == ["healthcheck-curl"]


@pytest.mark.parametrize(
    "options",
    [
        "--depth 1 --recursive --shallow-submodules",
        "--depth 1 --recurse-submodules",
        "--shallow-submodules",
    ],
)
def test_shallow_submodules_are_no_error(options: str) -> None:
    text = f"FROM x\nRUN git clone {options} https://github.com/ikawrakow/ik_llama.cpp\n"
    assert "error" not in [one[1] for one in said("Dockerfile", text)]
