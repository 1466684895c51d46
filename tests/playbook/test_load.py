"""Loading a playbook: every problem in one pass, with its place; lessons, and old service names."""

from pathlib import Path

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import InvalidFile, UsageError
from console.config.playbook.load import load_playbook, rename
from console.config.yaml import parse
from tests.playbook.conftest import Book, steps_text

NOTE = steps_text("{id: a, note: hi}")


@pytest.mark.parametrize(
    "step",
    [
        "{id: a, note: hi, environment: {conda: /e}}",
        "{id: a, run: [x], where: {image: 'i:1'}, environment: {conda: /e}}",
        "{id: a, check: {file: x}, environment: {file: /e}}",
        "{id: a, host: {gpus: true}, environment: {conda: /e}}",
    ],
)
def test_an_environment_belongs_to_a_command_on_this_machine(book: Book, step: str) -> None:
    (said,) = book.step_problems(step)
    assert said.startswith("environment belongs to run, script, check output")


SERVER = "service: baseline"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{id: a, contract: {}}", "exactly one of service or url"),
        (f"{{id: a, contract: {{{SERVER}, url: 'http://a:1'}}}}", "exactly one of service or url"),
        ("{id: a, contract: {service: nobody}}", "unknown service 'nobody'"),
        (f"{{id: a, contract: {{{SERVER}, suite: [x], repeat: 3}}}}", "belong to cases"),
        (f"{{id: a, contract: {{{SERVER}}}, env: {{A: b}}}}", "where, env and cwd belong to"),
        (
            f"{{id: a, contract: {{{SERVER}}}, outputs: {{n: {{pattern: '(a)'}}}}}}",
            "outputs belong",
        ),
    ],
)
def test_what_a_contract_step_may_say(book: Book, step: str, said: str) -> None:
    assert any(said in one for one in book.step_problems(step))


@pytest.mark.parametrize(
    ("asked", "metric", "fine"),
    [
        (SERVER, "a.tools_changed, go: '== 0'", True),
        (SERVER, "a.answers_differ, go: '<= 5 %'", True),
        (SERVER, "a.answers_differ, go: '<= 200 %'", False),
        (SERVER, "a.tool_changed, go: '== 0'", False),
        (f"{SERVER}, suite: [x]", "a.tools_changed, go: '== 0'", False),
        (f"{SERVER}, suite: [x], cases: own.yaml", "a.tools_changed, go: '== 0'", True),
    ],
)
def test_what_a_gate_can_ask_of_a_contract(book: Book, asked: str, metric: str, fine: bool) -> None:
    steps = f"{{id: a, contract: {{{asked}}}}}", f"{{id: g, gate: [{{metric: {metric}}}]}}"
    if fine:
        book.steps(*steps)
    else:
        [said] = book.step_problems(*steps)
        assert "nothing before this gate measures" in said or "ratio" in said or "%" in said


def test_an_empty_environment_is_none(book: Book) -> None:
    """An input may leave it open: conda: '' is nowhere refused."""
    assert book.steps("{id: a, note: hi, environment: {conda: ''}}")


def test_the_smallest_playbook(book: Book) -> None:
    loaded = book.load(NOTE)
    assert (loaded.name, loaded.base) == ("x", book.path.parent)
    assert [(phase, s.id, s.kind) for phase, s in loaded.steps()] == [("p", "a", "note")]


def test_the_digest_is_that_of_the_text(book: Book) -> None:
    first, second = book.load(NOTE), book.load(NOTE + "# another\n")
    assert first.digest == book.load(NOTE).digest != second.digest
    assert len(first.digest) == 64


def test_a_gate_on_a_broken_step_is_not_reported_on_top_of_it(book: Book) -> None:
    broken = "{id: b, benchmark: {service: cand, runs: none}}"
    (said,) = book.step_problems(broken, "{id: g, gate: [{metric: b.tok_s, go: '>= 2'}]}")
    assert "'runs' is 'none'" in said


def test_a_service_of_the_site_cannot_be_taken(book: Book) -> None:
    (said,) = book.problems(
        "services: {cand: {process: {argv: [x]}, url: 'http://a:1'}}\n" + NOTE,
        site_services=frozenset({"cand"}),
    )
    assert said.startswith("4:12: service 'cand'")


def test_services_of_the_site_can_be_used(book: Book) -> None:
    loaded = book.steps("{id: a, service: {start: other}}", site_services=frozenset({"other"}))
    assert next(loaded.steps())[1].service.target == "other"


def test_what_finally_may_do(book: Book) -> None:
    for kind in ("run: [x]", "script: x", "note: x", "report: {}"):
        loaded = book.load(NOTE + f"finally: [{{id: z, {kind}}}]\n")
        assert [s.id for s in loaded.model.finally_] == ["z"]


def test_what_a_cutover_may_do(book: Book) -> None:
    up, back = "{id: up, service: {start: cand}}", "{id: cut, cutover: {to: cand}}"
    for steps in (
        (up, back), (up, "{id: cut, cutover: {to: cand, then: stay}}", "{id: n, note: x}"),
        (up, back, "{id: up2, service: {start: cand}}", "{id: cut2, cutover: {to: cand}}"),
        (up, "{id: c, cutover: {to: cand, port: 8000, listen: 0.0.0.0, watch: 1h, every: 5s}}"),
    ):  # fmt: skip
        assert book.steps(*steps)


def test_what_cannot_be_used_says_where_the_format_is(book: Book) -> None:
    with pytest.raises(InvalidFile) as caught:
        book.load("", head="")
    assert "docs/reference/playbooks.md" in caught.value.hint


def test_planning_refuses_everything_else(book: Book) -> None:
    assert "unknown key" in book.problems(NOTE + "nope: 1\n", planning=True)[0]


def test_an_unknown_input_on_the_command_line(book: Book) -> None:
    with pytest.raises(UsageError, match="'prot'") as caught:
        book.load("inputs: {port: {type: int, default: 1}}\n" + NOTE, {"prot": "1"})
    assert "port" in caught.value.detail


WITH_LESSONS = """\
schema: omni.playbook/v1
name: x
title: x
lessons: {lessons}
phases: [{{title: t, steps: [{{id: n, note: hi}}]}}]
"""


def lessons_book(place: Path, lessons: str) -> Path:
    path = place / "x.yaml"
    path.write_text(WITH_LESSONS.format(lessons=lessons))
    return path


def test_ids_of_the_registry_load(tmp_path: Path) -> None:
    loaded = load_playbook(lessons_book(tmp_path, "[F-002, S-013, P-001, D-004]"))
    assert loaded.model.lessons == ["F-002", "S-013", "P-001", "D-004"]


def test_ones_own_counts_and_a_runs_copy_outlives_it(tmp_path: Path) -> None:
    paths.lessons_dir().mkdir(parents=True)
    mine = paths.lessons_dir() / "F-028.yaml"
    mine.touch()
    path = lessons_book(tmp_path, "[F-028]")
    assert load_playbook(path).model.lessons == ["F-028"]
    mine.unlink()
    with pytest.raises(InvalidFile):
        load_playbook(path)
    assert load_playbook(path, pinned=True).model.lessons == ["F-028"]


ALIASES = "{old-engine: new-engine, deepseek-v32: deepseek-r1}"
SITE = f"""\
schema: omni.site/v1
name: ws
baseline: {{container: deepseek-r1, url: "http://127.0.0.1:8000"}}
gpus: [{{uuid: GPU-a}}, {{uuid: GPU-b}}]
services: {{new-engine: {{process: {{argv: [cat]}}, url: "http://127.0.0.1:8004"}}}}
aliases: {ALIASES}
"""
BOOK = """\
schema: omni.playbook/v1
name: older
title: An older plan
services:
  mine:
    compose: {file: stack.yaml, service: deepseek-v32}
    url: http://127.0.0.1:8005
guards: [{log: old-engine, matches: CUDA error}]
phases:
  - title: Trial
    steps:
      - {id: up, service: {start: old-engine}}
      - {id: bench, benchmark: {service: old-engine, runs: 3}}
      - {id: also, service: {start: mine}}
"""


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text(SITE)
    path = tmp_path / "older.yaml"
    path.write_text(BOOK)
    return path


def test_lint_knows_the_old_name(older: Path) -> None:
    assert main(["lint", str(older)]) == 0


def test_a_name_that_the_playbook_declares_is_its_own() -> None:
    data = parse(BOOK.replace("  mine:", "  old-engine:"), "", "").data
    aliases = {"old-engine": "new-engine", "deepseek-v32": "deepseek-r1"}
    (note,) = rename(data, aliases, {"new-engine"})
    assert note.split()[0] == "deepseek-v32"
    assert data["phases"][0]["steps"][0]["service"] == {"start": "old-engine"}


@pytest.mark.parametrize("name", ["deepseek-v32", "deepseek-r1", "baseline"])
def test_the_baseline_goes_by_its_container_and_its_old_names(
    older: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    older.write_text(BOOK.replace("service: old-engine, runs", f"service: {name}, runs"))
    assert main(["lint", str(older)]) == 0
    capsys.readouterr()
    assert main(["plan", str(older)]) == 0
    assert "against baseline" in capsys.readouterr().out


def test_an_alias_may_lead_to_the_baseline_itself(older: Path) -> None:
    site = older.with_name("site.yaml")
    site.write_text(SITE.replace("deepseek-v32: deepseek-r1", "deepseek-v32: baseline"))
    older.write_text(BOOK.replace("service: old-engine, runs", "service: deepseek-v32, runs"))
    assert (main(["lint", str(older)]), main(["plan", str(older)])) == (0, 0)


@pytest.mark.parametrize("alias", ["old-engine: gone", "older-engine: new-engine"])
def test_a_name_that_leads_nowhere_is_refused_as_it_was_written(
    older: Path, capsys: pytest.CaptureFixture[str], alias: str
) -> None:
    older.with_name("site.yaml").write_text(SITE.replace("old-engine: new-engine", alias))
    for command in ("plan", "lint"):
        assert main([command, str(older)]) == {"plan": 2, "lint": 9}[command]
        said = "".join(capsys.readouterr())
        assert "'old-engine'" in said
        assert "gone" not in said


def test_a_document_that_is_none_is_left_to_the_model() -> None:
    for data in ({}, {"phases": 3}, {"phases": [{"steps": [None, {"run": 1}]}]}):
        assert rename(data, {"a": "b"}) == ()
