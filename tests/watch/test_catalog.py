"""Playbooks to pick from: what is found, what is wrong with it, its form and its plan."""

import os
import shutil
from pathlib import Path

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import ConsoleError, InvalidFile, UsageError
from console.config.locate import playbook_path, shipped, site_file
from console.config.playbook.inputs import InputModel
from console.config.playbook.load import load_playbook
from console.config.site.site import Site, load_site
from console.runner.launch import begin
from console.runner.prepare import catalog

BOOK = """\
schema: omni.playbook/v1
name: {name}
title: "The {name}"
objective: find out
lessons: [F-001]
inputs:
  n: {{type: int, min: 3, max: 9, default: 5, title: How many}}
  size: {{type: bytes, required: true}}
  where: {{type: path, default: ., must_exist: true}}
  pick: {{type: choice, choices: [a, b], default: a}}
  sure: {{type: bool, default: true}}
  key: {{type: secret, from: {{env: MY_KEY}}}}
phases:
  - title: Work
    steps:
      - {{id: up, service: {{start: cand}}}}
      - {{id: note, note: "n is ${{{{ inputs.n }}}}"}}
"""
SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: base, url: "http://127.0.0.1:8000"}
services:
  cand: {process: {argv: [cat]}, url: "http://127.0.0.1:9001", exclusive: true}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "site.yaml").write_text(SITE)
    return tmp_path / "books"


@pytest.fixture
def little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two playbooks are shipped: reading all of them takes half a second."""
    (tmp_path / "shipped").mkdir()
    for name in ("demo", "baseline-verify"):
        shutil.copy(shipped() / f"{name}.yaml", tmp_path / "shipped")
    monkeypatch.setattr(catalog, "shipped", lambda: tmp_path / "shipped")


@pytest.fixture
def site(place: Path) -> Site:
    return load_site(place / "site.yaml")


@pytest.fixture
def book(place: Path) -> Path:
    path = place / "one.yaml"
    path.write_text(BOOK.format(name="one"))
    return path


def test_the_shipped_ones_load_without_any_site() -> None:
    found = catalog.entries(site=None)
    told = [(e.name, e.source, e.problem) for e in found if e.path.parent == shipped()]
    files = sorted(shipped().glob("*.yaml"))
    apart = [p.stem for p in files if "\nexample_of: omni\n" in p.read_text()]
    assert len(apart) == 6
    assert told == [
        *((p.stem, "shipped", "") for p in files if p.stem not in apart),
        *((name, "example", "") for name in apart),
    ]
    assert "demo" in [e.name for e in found]


def test_on_its_own_machine_a_playbook_is_no_example() -> None:
    found = catalog.entries(site=str(shipped() / "sites/omni.yaml"))
    assert {e.source for e in found if e.path.parent == shipped()} == {"shipped"}


@pytest.mark.usefixtures("little")
def test_every_place_is_looked_at_and_each_file_once(place: Path, book: Path) -> None:
    yours = paths.config_dir() / "playbooks"
    yours.mkdir(parents=True)
    (yours / "mine.yml").write_text(BOOK.format(name="mine"))
    Path("here.yaml").write_text(BOOK.format(name="here"))
    Path("again.yaml").symlink_to(book)
    Path("other.yaml").write_text("just: yaml\n")
    os.mkfifo("pipe.yaml")
    Path("dir.yaml").mkdir()
    found = catalog.entries(site=str(place / "site.yaml"))
    assert [(e.name, e.source) for e in found if e.source != "shipped"] == [
        ("mine", "yours"), ("one", "site"), ("here", "here"),
    ]  # fmt: skip
    shown = [e.name for e in found if e.source == "shipped"]
    assert "demo" not in shown, "its services are not this site's"
    assert "baseline-verify" in shown
    one = next(e for e in found if e.name == "one")
    assert (one.title, one.objective, one.lessons, one.problem) == (
        "The one", "find out", ("F-001",), "",
    )  # fmt: skip


@pytest.mark.usefixtures("little")
def test_a_broken_one_is_listed_with_its_first_error(place: Path) -> None:
    text = BOOK.format(name="bad").replace("title: Work", "titel: Work")
    (place / "bad.yaml").write_text(text)
    (place / "torn.yaml").write_text("schema: omni.playbook/v1\n  x: [\n")
    (place / "evil.yaml").write_text(
        'schema: omni.playbook/v1\nname: evil\ntitle: "\\e[2Jboo\\u202e"\nphases: 5\n'
    )
    found = {e.path.name: e for e in catalog.entries(site=str(place / "site.yaml"))}
    bad = found["bad.yaml"]
    assert (bad.name, bad.title) == ("bad", "The bad")
    assert bad.problem == "line 14: missing key 'title'"
    assert (found["torn.yaml"].name, bool(found["torn.yaml"].problem)) == ("torn", True)
    assert found["evil.yaml"].title == "boo\ufffd"


@pytest.mark.usefixtures("little")
def test_a_broken_site_hides_no_playbook(tmp_path: Path, book: Path) -> None:
    broken = book.parent / "broken.yaml"
    broken.write_text("schema: omni.site/v1\n")
    found = {e.path.name: e for e in catalog.entries(site=str(broken))}
    assert "cand" in found["one.yaml"].problem


def test_the_form(book: Path, site: Site) -> None:
    fields = {f.name: f for f in catalog.form(book, site)}
    assert list(fields) == ["n", "size", "where", "pick", "sure", "key"]
    n = fields["n"]
    assert (n.type, n.title, n.default, n.required) == ("int", "How many", "5", False)
    assert n.expected == "int, at least 3, at most 9"
    great = InputModel(type="int", required=True, max=1048576)
    assert catalog._expected("int", great) == "int, at most 1048576"
    assert (fields["size"].required, fields["size"].default) == (True, "")
    assert "24GiB" in fields["size"].expected
    assert (fields["pick"].choices, fields["sure"].default) == (("a", "b"), "true")
    assert fields["key"].secret_from == "environment variable MY_KEY"


def test_the_preview_is_what_plan_prints(
    book: Path, site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10000")  # in a terminal long lines are folded
    found = catalog.preview(book, {"n": "4", "size": "1GiB"}, site)
    inputs = ["--input", "n=4", "--input", "size=1GiB"]
    assert main(["plan", str(book), "--site", str(site.path), *inputs]) == 0
    assert (found.lines, found.missing) == (capsys.readouterr().out.splitlines(), ())
    assert catalog.preview(book, {}, site).missing == ("size",)


def test_load_refuses_what_run_would(book: Path, site: Site) -> None:
    with pytest.raises(InvalidFile, match="cannot be used"):
        catalog.load(book, {}, site)
    with pytest.raises(UsageError, match="unknown input"):
        catalog.load(book, {"size": "1GiB", "x": "1"}, site)
    assert catalog.load(book, {"size": "1GiB", "n": "7"}, site).inputs["n"] == 7


def test_site_file_and_playbook_are_found_without_reading_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site_file(None) is None
    paths.default_site().parent.mkdir(parents=True, exist_ok=True)
    paths.default_site().write_text(SITE)
    assert site_file(None) == paths.default_site()
    monkeypatch.setenv("OMNI_SITE", "/some/site.yaml")
    assert site_file(None) == Path("/some/site.yaml")
    assert site_file("given.yaml") == Path("given.yaml")
    assert playbook_path("demo") == shipped() / "demo.yaml"
    with pytest.raises(UsageError, match="no playbook 'nothing'"):
        playbook_path("nothing")


VALUES = [
    ("n", "3", ""), ("n", "9", ""), ("n", "", ""), ("n", "2", "at least 3"),
    ("n", "10", "at most 9"),
    ("n", "x", "whole number"), ("n", "9" * 400, "whole number"), ("size", "1GiB", ""),
    ("size", "12", "24GiB"), ("size", "", "a value is needed"), ("where", ".", ""),
    ("where", "one.yaml", ""), ("where", "nowhere", "does not"), ("where", "a\0b", "expected"),
    ("where", "\udcff", "expected"), ("where", "x" * 9000, "expected"), ("pick", "b", ""),
    ("pick", "c", "one of a, b"), ("sure", "maybe", "true or false"), ("key", "", ""),
    ("key", "x", "never typed"),
]  # fmt: skip


def test_a_typed_value_is_judged_without_reading_its_file(book: Path, site: Site) -> None:
    fields = {f.name: f for f in catalog.form(book, site)}
    book.write_text("no playbook any more")
    for name, text, words in VALUES:
        said = catalog.check_value(fields[name], text)
        assert (words in said) if words else said == "", (name, text)


def test_what_changed_since_its_plan_was_shown_is_not_begun(
    book: Path, site: Site, place: Path
) -> None:
    values = {"size": "1GiB"}
    shown = catalog.preview(book, values, site).digest
    assert shown == catalog.preview(book, {**values, "n": "4"}, site).digest
    (place / "site.yaml").write_text(SITE.replace("9001", "9002"))
    other = load_site(place / "site.yaml")
    for now, text in ((site, "# more\n"), (other, "# more\n"), (other, "")):
        book.write_text(BOOK.format(name="one") + text)
        playbook = catalog.load(book, values, now)
        with pytest.raises(ConsoleError, match="changed since"):
            begin(now, playbook, values, step=True, say=lambda text: None, expect=shown)
    needy = load_playbook(book, planning=True, site_services=frozenset(["cand"]))
    with pytest.raises(ConsoleError, match="for its plan only"):
        begin(site, needy, {}, step=True, say=lambda text: None)
    assert not paths.runs_dir().exists(), "nothing was made"
