"""`omni-console lint` as it is typed: exit codes, what is printed, the document of rules."""

import json
from pathlib import Path

import pytest

from console.checks.lint.rule import facts_of
from console.checks.lint.run import lint
from console.cli import main
from console.common.errors import Exit
from console.config.site.site import load_site
from tests.test_architecture import HEAVY, ROOT, loaded

SITE = ROOT / "playbooks" / "sites" / "omni.yaml"


@pytest.fixture(autouse=True)
def _no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNI_SITE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "x.sh"
    path.write_text("cmake -DGGML_CUDA_NO_VMM=ON\ndocker build -t mine .\n")
    return path


def test_info_alone_ends_well(script: Path) -> None:
    script.write_text("docker build -t mine .\n")
    assert main(["lint", str(script)]) == Exit.OK


def test_sarif_names_rule_level_place_and_suppression(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comment = "# omni: ignore ggml-cuda-no-vmm F-003 measured\n"
    script.write_text(comment + script.read_text() + "# omni: ignore\necho 'a\n")
    main(["lint", "--sarif", str(script), str(script.parent / "gone.sh")])
    said = json.loads(capsys.readouterr().out)
    (run,) = said["runs"]
    names = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert said["version"] == "2.1.0"
    assert [names[one["ruleIndex"]] for one in run["results"]] == [
        one["ruleId"] for one in run["results"]
    ]
    first, second, bare, broken, unread = run["results"]
    assert (bare["ruleId"], broken["ruleId"]) == ("suppression-without-reason", "text-not-readable")
    assert first["suppressions"] == [{"kind": "inSource", "justification": "F-003: measured"}]
    assert (second["ruleId"], second["level"]) == ("generic-image-tag", "note")
    region = second["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 3, "startColumn": 14}
    assert "region" not in unread["locations"][0]["physicalLocation"]


def test_the_site_s_machine_is_what_rules_judge_by(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("vllm serve m --tensor-parallel-size 2\n")
    assert main(["lint", str(script)]) == Exit.OK
    assert main(["lint", "--site", str(SITE), str(script)]) == Exit.LINT
    assert "tensor-parallel-asymmetric-cards" in capsys.readouterr().out


def test_format_and_faults_of_a_playbook_come_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "book.yaml"
    path.write_text(
        "schema: omni.playbook/v1\nname: x\ntitle: x\nextra: 1\nphases:\n  - title: a\n"
        "    steps:\n      - id: a\n        script: pkill -f sglang\n"
    )
    assert main(["lint", str(path)]) == Exit.LINT
    out = capsys.readouterr().out
    assert ":4:1: " in out
    assert ":9:17: error: " in out


def test_hostile_words_are_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sh"
    path.write_text("pkill -f '\x1b]0;title\x07\x1b[31mred'\n")
    main(["lint", str(path)])
    assert "\x1b" not in capsys.readouterr().out


def test_what_ships_has_no_findings() -> None:
    assert main(["lint", str(ROOT / "playbooks")]) == Exit.OK
    found = lint([ROOT / "playbooks"], facts_of(load_site(SITE))).findings
    assert [one for one in found if not one.suppressed] == []
    assert sorted((Path(one.file).name, one.rule) for one in found) == [
        ("ik-llama-phase2.yaml", "split-mode-graph-moe"),
        ("omni-stack.yaml", "amx-method-without-amx"),
        ("omni-stack.yaml", "ktransformers-without-sched-ext"),
    ]


def test_the_document_is_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--rules"]) == Exit.OK
    assert capsys.readouterr().out == (ROOT / "docs" / "reference" / "lint.md").read_text("utf-8")


def test_a_dockerfile_needs_none_of_the_heavy_libraries(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM x\nRUN true\n")
    (modules,) = loaded(f"from console.cli import main; assert main(['lint', {str(path)!r}]) == 0")
    assert "tree_sitter" in modules
    assert modules & HEAVY == set()
