"""What is said of each fault, of what nothing reads, and where a reason puts a finding aside."""

import pytest

from console.checks.lint.rule import rules
from console.checks.lint.run import BROKEN
from tests.lint.faults import CASES, NOTHING, R1, SGLANG, C, found, said, stack


def test_the_fault_is_found_once_and_the_same_done_right_is_not() -> None:
    wrong = {}
    for at, case in enumerate(CASES):
        found = [
            [one for one in said(case.file, text) if one[0] == case.rule]
            for text in (case.wrong, case.right)
        ]
        if (len(found[0]), found[1]) != (1, []):
            wrong[f"{case.rule}-{at}"] = found
    assert wrong == {}


def test_every_rule_has_a_fault() -> None:
    assert set(rules()) == {case.rule for case in CASES}


@pytest.mark.parametrize(
    ("text", "rule"),
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
def test_an_option_is_known_however_the_engine_takes_it(text: str, rule: str) -> None:
    assert rule in [one[0] for one in said("x.sh", text)]


def test_what_an_engine_does_not_take_is_no_option_of_it() -> None:
    text = f"{SGLANG} --model x --tp_size 2\n"  # argparse takes no underscores
    assert said("x.sh", text) == []


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
