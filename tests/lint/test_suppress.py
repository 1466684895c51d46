"""A finding is put aside only with its lesson and a reason, and only where it stands."""

from __future__ import annotations

import pytest

from tests.lint.facts import found, said

GOOD = "# omni: ignore pkill-f-as-rollback D-003 one server on this box"
KILL = "pkill -f sglang"


@pytest.mark.parametrize(
    "text", [f"{KILL}  {GOOD}\n", f"{GOOD}\n{KILL}\n", f"{GOOD}\n# more words\npkill -f \\\n  a\n"]
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
    text = f"echo '{GOOD}'\n{KILL}\n"
    assert said("x.sh", text) == [("pkill-f-as-rollback", "warning", 2, 1)]


def test_in_a_script_of_a_playbook_the_shell_s_comment_counts() -> None:
    text = (
        "schema: omni.playbook/v1\nphases:\n  - steps:\n      - id: a\n        script: |\n"
        f"          {GOOD}\n          {KILL}\n"
    )
    assert said("book.yaml", text) == []
