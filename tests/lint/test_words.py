"""What lint says of each fault, word for word.

What was said stands in __snapshots__; `make golden` writes it anew.
"""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.checks.lint.run import NO_KIND, lint
from console.checks.lint.yaml_tree import NotYaml, parse
from console.cli import main
from console.config.playbook.load import load_playbook
from console.runner.prepare.admission import LintRefused, check
from tests.lint.faults import (
    CASES,
    COMMENTS,
    DOCKERFILES,
    EQUAL,
    NO_TEXT,
    NOT_YAML,
    NOTHING,
    UNEQUAL,
    C,
    D,
    S,
    found,
)

KILL = "pkill -f sglang\n"
SCRIPTS = ("echo\nif true; then\n  echo a\n", 'echo a\necho "b\nls\n', "echo $(a\n")
BOOK = """\
schema: omni.playbook/v1
name: trial
title: A trial
phases:
  - title: one
    steps:
      - {id: bench, timeout: 1h, run: [cmake, -DGGML_CUDA_NO_VMM=ON]}
      - {id: image, build: {context: ., tag: "own:phase1"}}
"""


def test_each_fault(snapshot: SnapshotAssertion) -> None:
    """On the machine it is about, on one of which nothing is known, and on another."""
    told = {}
    for case in CASES:
        for facts in (UNEQUAL, NOTHING, EQUAL):
            rows = [f"{one.text} | {one.fix}" for one in found(case.file, case.wrong, facts)]
            told.setdefault(case.name, []).append("\n".join(rows))
    once = {name: list(dict.fromkeys(rows)) for name, rows in told.items()}
    assert once == snapshot


def test_what_no_program_can_read(snapshot: SnapshotAssertion) -> None:
    texts = [(D, text) for text in DOCKERFILES] + [(S, text) for text in SCRIPTS]
    assert [[one.text for one in found(name, text, NOTHING)] for name, text in texts] == snapshot


def test_what_is_no_yaml(snapshot: SnapshotAssertion) -> None:
    told = []
    for text in NOT_YAML:
        with pytest.raises(NotYaml) as caught:
            parse(text)
        told.append(str(caught.value))
    assert told == snapshot


def test_brackets_without_end_are_no_yaml() -> None:
    # libyaml may refuse these itself, in words that differ between its releases
    with pytest.raises(NotYaml):
        parse("[" * 5000)


def test_comments_that_put_nothing_aside(snapshot: SnapshotAssertion) -> None:
    good = "# omni: ignore pkill-f-as-rollback D-003 one server on this box"
    texts = [f"{comment}\n{KILL}" for comment in COMMENTS] + [f"{good}\necho\n", f"{good}\n{KILL}"]
    assert [[one.text for one in found(S, text)] for text in texts] == snapshot


def test_files_that_are_not_looked_at(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    for number, data in enumerate(NO_TEXT):
        (tmp_path / f"{number}.Dockerfile").write_bytes(data)
    for name, text in (
        ("notes", "words\n"),
        (C, "scrape_configs: []\n"),
        ("x.yml", "a:\n\tb: c\n"),
    ):
        (tmp_path / name).write_text(text)
    paths = [*sorted(tmp_path.iterdir()), tmp_path / "gone.sh"]
    refused = [f"{one.file}: {one.what} {one.hint}" for one in lint(paths, UNEQUAL).refused]
    assert [text.replace(str(tmp_path), "HERE") for text in refused] == snapshot
    assert any(NO_KIND in text for text in refused)


def test_a_run_that_lint_refuses(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "book.yaml").write_text(BOOK)
    (tmp_path / D).write_text("FROM x\nRUN nvidia-smi\nFOO\n")
    with pytest.raises(LintRefused) as caught:
        check(load_playbook(tmp_path / "book.yaml"), UNEQUAL, {})
    text = "\n".join(caught.value.lines())
    assert text.replace(str(tmp_path), "HERE") == snapshot


@pytest.mark.parametrize("form", [[], ["--json"], ["--sarif"], ["--json", "--sarif"]])
def test_the_command(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion,
) -> None:  # fmt: skip
    monkeypatch.delenv("OMNI_SITE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    fault, suppressed = (
        "cmake -DGGML_CUDA_NO_VMM=ON\n",
        "# omni: ignore ggml-cuda-no-vmm F-003 measured\n",
    )
    text = f"{fault}docker build -t mine .\n{KILL}{suppressed}{fault}"
    (tmp_path / "x.sh").write_text(text)
    codes = [main(["lint", *form, str(tmp_path / "x.sh"), str(tmp_path / "gone.sh")])]
    codes.append(main(["lint", *form]))
    out, err = capsys.readouterr()
    shown = out.replace(str(tmp_path), "HERE") if form != ["--sarif"] else "one document"
    assert [codes, shown, err.replace(str(tmp_path), "HERE")] == snapshot
