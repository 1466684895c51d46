"""What no builder and no shell takes is said where it stands; nothing is said of what they take."""

from __future__ import annotations

import pytest

from console.checks.lint.run import BROKEN
from tests.lint.facts import NOTHING, found


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
