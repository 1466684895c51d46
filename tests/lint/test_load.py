"""What a run is told before it starts: errors stop it, an override is kept with its reason."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import Exit, UsageError
from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import Playbook
from console.config.site.site import load_site
from console.runner.prepare.admission import (
    LintRefused,
    blocker_findings,
    check,
    overrides_of,
    records,
)
from console.runner.prepare.plan import make_plan
from tests.lint.faults import NOTHING, UNEQUAL

BOOK = """\
schema: omni.playbook/v1
name: trial
title: A trial
inputs:
  mode: {type: string, default: "OFF"}
  folder: {type: string, default: image}
phases:
  - title: one
    steps:
      - {id: bench, timeout: 1h, run: [cmake, "-DGGML_CUDA_NO_VMM=${{ inputs.mode }}"]}
      - {id: image, build: {context: "${{ inputs.folder }}", tag: "own:phase1"}}
"""
SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: omni-baseline, url: "http://127.0.0.1:1"}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "book.yaml").write_text(BOOK)
    (tmp_path / "site.yaml").write_text(SITE)
    return tmp_path


def load(place: Path, **inputs: str) -> Playbook:
    return load_playbook(place / "book.yaml", inputs)


def test_what_is_gone_past_is_kept_with_its_reason(place: Path) -> None:
    assert check(load(place), UNEQUAL, {}) == []
    with pytest.raises(LintRefused) as caught:
        check(load(place, mode="ON"), NOTHING, {})
    assert caught.value.exit_code is Exit.LINT
    given = overrides_of(["ggml-cuda-no-vmm=a patched build = fine"])
    (one,) = records(check(load(place, mode="ON"), NOTHING, given))
    assert one["rule"] == "ggml-cuda-no-vmm"
    assert one["override"] == "override: a patched build = fine"
    assert one["place"].endswith("book.yaml:10:47")
    (place / "image").mkdir()
    (place / "image" / "Dockerfile").write_text("FROM x\nFOO bar\n")
    (two,) = check(load(place), NOTHING, overrides_of(["text-not-readable=a frontend of ours"]))
    assert two.suppressed == "override: a frontend of ours"


@pytest.mark.parametrize(
    ("step", "file"),
    [
        ("run: [./do.sh]", "do.sh"),
        ("run: [sudo, bash, -e, do.sh, x]", "do.sh"),
        ("run: [./do], cwd: sub", "sub/do"),
        ("script: 'cd sub && . ./do.sh'", "sub/do.sh"),
        ("run: [docker, compose, -f, c.yaml, up, -d]", "c.yaml"),
        ("run: [docker, compose, up]", "compose.yaml"),
        ("run: [docker, build, -t, 'a:1', sub]", "sub/Dockerfile"),
        ("build: {context: sub, dockerfile: x.Dockerfile, tag: 'a:1'}", "sub/x.Dockerfile"),
    ],
)
def test_what_its_steps_run_is_read_too(place: Path, step: str, file: str) -> None:
    last = "      - {id: image, build"
    text = BOOK[: BOOK.index(last)] + f"      - {{id: more, timeout: 1h, {step}}}\n"
    (place / "book.yaml").write_text(text)
    (place / "sub").mkdir()
    fault = "#!/bin/sh\ncmake -DGGML_CUDA_NO_VMM=ON\n"
    if "ocker" in file:
        fault = "FROM x\nRUN nvidia-smi\n"
    elif file.endswith("yaml"):
        fault = "services:\n  a: {image: mem0/mem0-api-server}\n"
    (place / file).write_text(fault)
    with pytest.raises(LintRefused) as caught:
        check(load(place), NOTHING, {})
    assert [one.file for one in caught.value.errors] == [str(place / file)]


def test_an_override_needs_a_rule_and_a_reason() -> None:
    for pair in ("no-such-rule=why", "ggml-cuda-no-vmm", "pkill-f-as-rollback= "):
        with pytest.raises(UsageError):
            overrides_of([pair])


def test_a_known_blocker_is_gone_past_with_a_reason(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    book = place / "book.yaml"
    text = BOOK.replace("inputs:", "lessons: [F-003, F-025]\ninputs:", 1)
    book.write_text(text.replace("[cmake", "[dynamo, cmake"))
    argv = ["run", str(book), "--site", str(place / "site.yaml")]
    assert main(argv) == Exit.LINT
    said = capsys.readouterr().err
    assert "book.yaml:4:18: error: F-025" in said
    assert "--override known-blocker=WHY" in said
    playbook, site = load(place), load_site(place / "site.yaml")
    (one,) = check(
        playbook, NOTHING, overrides_of(["known-blocker=a new release"]),
        blocker_findings(make_plan(playbook, site)),
    )  # fmt: skip
    assert (one.lessons, one.suppressed) == (("F-025",), "override: a new release")


def test_a_plan_tells_it_first(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10000")  # in a terminal long lines are folded
    argv = ["plan", str(place / "book.yaml"), "--site", str(place / "site.yaml")]
    assert main([*argv, "--input", "mode=ON"]) == Exit.OK
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("  lint ")]
    assert "book.yaml:10:47: error: " in line
    assert line.endswith(" --override ggml-cuda-no-vmm=WHY")
    assert main([*argv, "--input", "mode=ON", "--json"]) == Exit.OK
    (one,) = json.loads(capsys.readouterr().out)["lint"]
    assert (one["rule"], one["severity"], one["override"]) == ("ggml-cuda-no-vmm", "error", "")
    assert main(argv) == Exit.OK
    assert "  lint " not in capsys.readouterr().out


def test_run_refuses_and_leaves_no_trace(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["run", str(place / "book.yaml"), "--site", str(place / "site.yaml"), "--input"]
    assert main([*argv, "mode=ON"]) == Exit.LINT
    assert "ggml-cuda-no-vmm" in capsys.readouterr().err
    assert not (place / "state").exists()


def test_begin_tells_what_was_gone_past(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from console.frontends.cli import run
    from console.host.systemd import Detachment
    from console.journal.run_dir import RunDir

    launched: list[RunDir] = []

    def launch(made: RunDir) -> Detachment:
        launched.append(made)
        return Detachment(unit=False)

    monkeypatch.setattr("console.runner.launch.launch", launch)
    args = Namespace(
        detach=True, step=False, yes=False, json=False, lease=None,
        override=["ggml-cuda-no-vmm=a patched build"],
    )  # fmt: skip
    made = run.start(load_site(place / "site.yaml"), load(place, mode="ON"), {}, args)
    assert launched == [made]
    assert [one["override"] for one in made.meta().lint] == ["override: a patched build"]
