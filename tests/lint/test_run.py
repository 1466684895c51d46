"""Which files are looked at, what they are taken for, and what is said of those that cannot be."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from console.checks.lint import files, run
from console.checks.lint.run import NO_KIND, Outcome, lint
from console.checks.lint.unit import Kind
from tests.lint.faults import UNEQUAL

KILL = "pkill -f sglang\n"
IMAGE = "services:\n  a: {image: mem0/mem0-api-server}\n"


def look(*paths: Path) -> Outcome:
    return lint(paths, UNEQUAL)


def rules(outcome: Outcome) -> list[tuple[str, str]]:
    return [(Path(one.file).name, one.rule) for one in outcome.findings]


@pytest.fixture
def yard(tmp_path: Path) -> Path:
    for name, text in {
        "a/Dockerfile": "FROM x\nRUN nvidia-smi\n",
        "a/gpu.Dockerfile": "FROM x\nRUN nvidia-smi\n",
        "a/Dockerfile.md": "# words\n",
        "a/run.sh": KILL,
        "a/notes.txt": KILL,
        "a/stack.yaml": IMAGE,
        "a/values.yml": "{% if x %}\na: {{ b\n",
        "a/broken.yml": "services:\n\ta: b\n",
        "a/k8s.yaml": "kind: Pod\n---\nkind: Pod\n",
        "node_modules/x/run.sh": KILL,
        ".git/run.sh": KILL,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_directory_is_walked_and_each_file_is_known(yard: Path) -> None:
    outcome = look(yard)
    assert rules(outcome) == [
        ("Dockerfile", "build-time-gpu-validation"),
        ("gpu.Dockerfile", "build-time-gpu-validation"),
        ("run.sh", "pkill-f-as-rollback"),
        ("stack.yaml", "single-platform-image"),
    ]
    assert outcome.looked == 4
    assert [Path(one.file).name for one in outcome.refused] == ["broken.yml"]
    path = yard / "a" / "run.sh"
    assert rules(look(path, path)) == [("run.sh", "pkill-f-as-rollback")], "once"


def test_links_are_not_followed(yard: Path) -> None:
    os.symlink(yard, yard / "a" / "up")
    os.symlink(yard / "a" / "run.sh", yard / "again.sh")
    assert look(yard).looked == 4


def test_a_named_script_is_known_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "start"
    path.write_text("#!/usr/bin/env bash\n" + KILL)
    assert rules(look(path)) == [("start", "pkill-f-as-rollback")]
    assert look(tmp_path).looked == 0


def test_a_pipe_a_missing_file_and_an_unknown_one_are_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / "notes").write_text("words\n")
    outcome = look(tmp_path / "pipe.sh", tmp_path / "gone.sh", tmp_path / "notes")
    assert [Path(one.file).name for one in outcome.refused] == ["pipe.sh", "gone.sh", "notes"]
    assert outcome.refused[-1].what == NO_KIND


@pytest.mark.parametrize(
    "text", ["scrape_configs: []\n", "volumes: {}\n", "- a\n", "schema: other/v1\n",
             "phases: {build: {commands: [x]}}\n"],
)  # fmt: skip
def test_yaml_of_another_tool_is_said_once_where_it_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    (one,) = look(path).refused
    assert (one.what, "omni.playbook/v1" in one.hint) == (NO_KIND, True)
    assert look(tmp_path).refused == look(path).strict == []


def test_a_playbook_without_its_schema_is_still_one(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("phases: [{title: a}]\n")
    assert look(path).strict == [(path, "")]
    path.write_text("schema: omni.site/v1\nname: [\n")
    assert look(path).strict == [(path, "omni.site/v1")]


def test_many_files_by_many_processes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(run.MANY + 10):
        (tmp_path / f"{number}.sh").write_text(KILL * (number % 3) + "echo '\n" * (number % 2))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with_two = look(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert with_two == look(tmp_path)
    assert with_two.looked == run.MANY + 10


def test_work_goes_on_alone_where_a_worker_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    work, numbers = partial(_killed_elsewhere, os.getpid()), list(range(run.MANY * 3))
    assert list(run.each(work, numbers)) == numbers


def _killed_elsewhere(home: int, number: int) -> int:
    if number == run.MANY and os.getpid() != home:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_too_many_files_are_said(yard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 2)
    assert any("2 files" in one.what for one in look(yard).refused)
    assert look(yard).looked <= 2


def test_names() -> None:
    names = {
        "Dockerfile": Kind.DOCKERFILE, "Dockerfile.cuda": Kind.DOCKERFILE,
        "x.dockerfile": Kind.DOCKERFILE, "Containerfile": Kind.DOCKERFILE,
        "Dockerfile.md": None, "Dockerfile.j2": None, "a.bash": Kind.SHELL, "a.py": None,
    }  # fmt: skip
    assert {name: files.kind_by_name(Path(name)) for name in names} == names


def test_a_service_s_own_dockerfile_says_whether_curl_is_there(tmp_path: Path) -> None:
    (tmp_path / "stack.yaml").write_text(
        "services:\n  a: {build: ., healthcheck: {test: [CMD, curl, x]}}\n"
    )
    (tmp_path / "Dockerfile").write_text("FROM debian:12\nRUN apt-get install -y curl\n")
    assert rules(look(tmp_path / "stack.yaml")) == []
    (tmp_path / "Dockerfile").write_text("FROM debian:12\n")
    assert rules(look(tmp_path / "stack.yaml")) == [("stack.yaml", "healthcheck-curl")]


HOSTILE = [
    "services:\n  a: {image: [1], build: {context: {}}, command: {a: b}, volumes: {x: 1}}",
    "services:\n  d: {image: x, extends: {service: e}}\n  e: {image: x, extends: {service: d}}",
    "services: &s\n  x: {image: y, environment: *s, command: &c [a, *c]}",
    "schema: omni.playbook/v1\nphases: [[{steps: x}], {steps: [1, {run: {a: b}}]}]\nfinally: 1",
    "schema: omni.playbook/v1\ninputs: [1]\nservices: {a: [1], b: {container: 3, process: [x]}}",
]


def test_values_of_another_shape_are_no_crash(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert look(path).looked == 1
