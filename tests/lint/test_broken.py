"""What no builder and no shell takes is said where it stands; nothing is said of what they take."""

from __future__ import annotations

import pytest

from console.lint.run import BROKEN
from tests.lint.facts import NOTHING, found


def broken(name: str, text: str) -> list[tuple[int, int, str]]:
    return [
        (one.line, one.column, one.what)
        for one in found(name, text, NOTHING)
        if one.rule == BROKEN and str(one.severity) == "error"
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no FROM"),
        ("# words\nARG A=1\n", 1, "no FROM"),
        ("FROM\n", 1, "FROM without anything"),
        ("FROM a b\n", 1, "FROM wants IMAGE"),
        ("FROM x\nFOO bar\nBAR foo\n", 2, "FOO is no instruction"),
        ("FROM x\n{{ if a }}\n  FOO bar\n", 3, "FOO is no instruction"),
        ("RUN x\nFROM x\n", 1, "RUN before any FROM"),
        ("FROM x\nCMD [\n", 2, "CMD with a list"),
        ("FROM x\nCMD ['a', 'b']\n", 2, "CMD with a list"),
        ('FROM x\nENTRYPOINT [ "a", b ]\n', 2, "ENTRYPOINT with a list"),
        ('FROM x\nHEALTHCHECK CMD ["a"\n', 2, "HEALTHCHECK with a list"),
        ("FROM x\nSHELL bash -c\n", 2, "SHELL wants a list"),
        ("FROM x\nRUN <<EOF\na\n", 2, "RUN with a here-document that does not end"),
        ("FROM x\nRUN a \\\n && echo 'b\n", 3, "no shell can read this"),
    ],
)
def test_of_a_dockerfile(text: str, line: int, words: str) -> None:
    (one,) = broken("Dockerfile", text)
    assert one[0] == line
    assert one[2].startswith(words)


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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("echo\nif true; then\n  echo a\n", (3, 8)),
        ('echo a\necho "b\nls\n', (2, 6)),
        ("echo $(a\n", (1, 8)),
    ],
)
def test_of_a_script(text: str, place: tuple[int, int]) -> None:
    (one,) = broken("x.sh", text)
    assert one[:2] == place
    assert "unexpected" in one[2]


@pytest.mark.parametrize("text", ["", "echo ${{ inputs.x }}\n", "cat <<EOF\nabc\n"])
def test_what_only_a_grammar_does_not_know_is_not_said(text: str) -> None:
    assert broken("x.sh", text) == []


def test_nothing_of_a_text_is_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = tmp_path_factory.mktemp("x") / "made"
    assert broken("x.sh", f"touch {made}\necho $(touch {made})\nif\n") != []
    assert not made.exists()


def test_of_a_playbook_s_script() -> None:
    text = "schema: omni.playbook/v1\nphases:\n  - steps:\n      - id: a\n        script: |\n"
    (one,) = broken("book.yaml", text + "          echo 'a\n")
    assert one[0] == 6
