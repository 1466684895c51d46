"""A compose service is judged before step 1 like a container, as compose reads it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from console.runner.prepare import startable
from console.runner.prepare.startable import Look
from tests.ports import free_port
from tests.testbed import compose
from tests.testbed.engine import _clients
from tests.testbed.plugin import need

SITE = """\
schema: omni.site/v1
name: here
baseline: {{process: {{argv: [cat]}}, url: "http://127.0.0.1:{port}"}}
"""
BOOK = """\
schema: omni.playbook/v1
name: b
title: b
services:
  cand: {{compose: {{file: compose.yaml, service: lab{more}}}, url: "http://127.0.0.1:22001"}}
phases:
- title: p
  steps:
{steps}  - {{id: up, service: {{start: cand}}}}
"""
FILE = """\
services:
  lab:
    image: x:1
    command: [llama-server, -m, /models/tiny.gguf, --port, "8080"]
    volumes: ["./models:/models:ro"]
    ports: ["127.0.0.1:22001:8080"]
"""
Plan = Callable[..., Look]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """What is found of a playbook that starts the service of FILE, or of another text."""
    client = Path(need(lambda: compose.ensure_compose(_clients()))[0])
    monkeypatch.setenv("DOCKER_CONFIG", str(compose.docker_config()))
    monkeypatch.setenv("PATH", str(client.parent), prepend=":")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    site = tmp_path / "site.yaml"
    site.write_text(SITE.format(port=free_port()))
    (tmp_path / "models").mkdir()
    (tmp_path / "models/tiny.gguf").touch()

    def look(text: str = FILE, *steps: str, more: str = "") -> Look:
        (tmp_path / "compose.yaml").write_text(text)
        book = tmp_path / "book.yaml"
        rows = "".join(f"  - {step}\n" for step in steps)
        book.write_text(BOOK.format(more=more, steps=rows))
        own = load_site(site)
        return startable.look(load_playbook(book, planning=True), own)

    return look


def said(look: Look) -> list[str]:
    return [f"{one.line}: {one.what} ({one.hint})" for one in look.problems]


def test_of_a_service_that_can_start_nothing(plan: Plan) -> None:
    found = plan()
    assert (said(found), found.awaited) == ([], [])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("22001:8080", "22005:8080", "6: service 'cand' is asked at port 22001, but publishes"),
        ('"8080"]', '"8081"]', "4: service 'cand' listens at port 8081, but is asked at"),
        ('"8080"]', '"8080", -c, "${NOT_GIVEN-all}"]', "4: service 'cand': its engine refuses"),
        ("    image: x:1\n", "    image: x:1\n    environment: {LLAMA_ARG_CTX_SIZE: all}\n",
         "its engine refuses --ctx-size all: expected a whole number"),
        ("tiny.gguf", "tony.gguf", "did you mean tiny.gguf?"),
        ('["./models:', '["./t.jinja:/t.jinja", "./models:', "5: service 'cand': there is no file"),
        ('["./models:/models:ro"]',
         "[{type: bind, source: ./gone, target: /models}]", "gone to mount"),
        ("    image: x:1\n", "    image: x:1\n    cpus: 4096\n", "4: service 'cand' asks for 4096"),
        ("    image: x:1\n", "    image: x:1\n    deploy: {resources: {limits: {cpus: '4096'}}}\n",
         "4: service 'cand' asks for 4096 CPUs"),
        ("    command:", "    comand:", "2: service 'cand': Reading the compose file failed"),
        ("    image: x:1\n", "    image: x:1\n    image: y:1\n", "4: service 'cand': Reading"),
        ('ports: ["127.0.0.1:22001:8080"]', 'ports: "8080"', "6: service 'cand': Reading the"),
        ("    image: x:1\n", "    image: x:1\n    mem_limit: lots\n", "invalid size: 'lots'"),
        ("  lab:", "  other:", "There is no service lab in the compose file: it has other"),
        ("    image: x:1\n", "    image: ${TAG:?is the tag}\n", "required variable TAG is missing"),
    ],
)  # fmt: skip
def test_what_cannot_start_or_answer_is_refused(plan: Plan, old: str, new: str, words: str) -> None:
    assert old in FILE
    (problem,) = said(plan(FILE.replace(old, new)))
    assert words in problem


def test_anchors_variables_ranges_and_a_host_network_are_read(plan: Plan, tmp_path: Path) -> None:
    text = FILE.replace("22001:8080", "${P:-22000}-22002:8079-8081").replace(
        "image: x:1", "<<: &b {image: x:1}"
    )
    assert said(plan(text)) == []
    variable = FILE.replace("22001:8080", "${PORT}:8080")
    assert said(plan(variable, more=", env: {PORT: '22001'}")) == []
    assert "publishes 5" in said(plan(variable, more=", env: {PORT: '5'}"))[0]
    hosts = FILE.replace('ports: ["127.0.0.1:22001:8080"]', "network_mode: host")
    assert "listens at port 8080, but is asked at" in said(plan(hosts))[0]
    assert said(plan(hosts.replace('"8080"', '"22001"'))) == []
    (tmp_path / ".env").write_text("PORT=22001\n")
    assert said(plan(variable)) == []


def test_arguments_of_the_playbook_count(plan: Plan) -> None:
    assert "listens at port 9" in said(plan(more=", args: [--port, '9']"))[0]
    bare = FILE.replace('    command: [llama-server, -m, /models/tiny.gguf, --port, "8080"]\n', "")
    assert "no command to which arguments" in said(plan(bare, more=", args: [-x]"))[0]


def test_what_an_earlier_step_may_write_is_awaited(plan: Plan) -> None:
    found = plan("services: [\n", "{id: make, run: [make]}")
    assert said(found) == []
    assert found.awaited == [
        "cand: its compose file is not judged before step make, which may write it"
    ]


def test_an_override_file_that_nobody_reads_is_said(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "compose.override.yaml").write_text("services: {lab: {mem_limit: 2g}}\n")
    (words,) = plan().awaited
    assert words.endswith("/compose.override.yaml is not read: only the named files are")


@pytest.fixture
def bare(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The same where there is no plugin."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return plan


def test_without_the_plugin_it_is_said_that_nobody_looked(bare: Plan) -> None:
    found = bare(FILE.replace("22001:8080", "22005:8080"))
    assert said(found) == []
    assert found.awaited == ["cand: UNKNOWN whether compose takes its file, judged as lint does: "
                             "There is no docker command: compose services need it"]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    command:", "    comand:", "4: service 'cand': compose refuses its file: compose"),
        ("    image: x:1\n", "    image: x:1\n    image: y:1\n", "4: service 'cand': compose"),
        ("    image: x:1\n", "    image: x:1\n    mem_limit: lots\n", "mem_limit is `lots`"),
        ("    image: x:1\n", "    image: x:1\n    depends_on: [db]\n", "needs the service `db`"),
        ("    image: x:1\n", "    image: ${TAG:?is the tag}\n", "3: service 'cand': its compose"),
        ("    image: x:1\n", "    image: 'x:${A:-1}-${TAG?}'\n", "requires the variable TAG"),
        ("    image: x:1\n", "  image: [\n", "its compose file is not YAML"),
    ],
)  # fmt: skip
def test_without_the_plugin_what_is_surely_refused(
    bare: Plan, old: str, new: str, words: str
) -> None:
    assert words in said(bare(FILE.replace(old, new)))[0]


@pytest.mark.parametrize(
    ("image", "more", "is_empty"),
    [
        ("${IMG}", "", True),
        ("$IMG", "", True),
        ("${IMG:-}", "", True),
        ("${IMG}${TAG}", "", True),
        ("${IMG:+x}", "", True),
        ("${IMG}", ", env: {IMG: ''}", True),
        ("${IMG:-x}", "", False),
        ("${IMG-x}", ", env: {IMG: ''}", True),
        ("${IMG:-x}", ", env: {IMG: ''}", False),
        ("${IMG}:latest", "", False),
        ("${IMG}", ", env: {IMG: 'y'}", False),
        ("${IMG:+x}", ", env: {IMG: 'y'}", False),
        ("$${IMG}", "", False),
    ],
)
def test_without_the_plugin_an_image_that_comes_to_nothing(
    bare: Plan, image: str, more: str, is_empty: bool
) -> None:
    problems = said(bare(FILE.replace("x:1", f'"{image}"'), more=more))
    assert [one for one in problems if "image is empty" in one] == problems[:is_empty], problems
    assert bool(problems) is is_empty


def test_without_the_plugin_variables_that_are_given(bare: Plan, tmp_path: Path) -> None:
    text = FILE.replace("x:1", "x:${TAG:?is the tag}").replace('"8080"]', '"8080", "$${NO:?}"]')
    assert "requires the variable TAG" in said(bare(text))[0]
    assert said(bare(text, more=", env: {TAG: '5'}")) == []
    (tmp_path / ".env").write_text("# TAG=3\nexport TAG = '4'\n")
    assert said(bare(text)) == []
    (tmp_path / ".env").write_text("TAG=\n")
    assert "requires the variable TAG" in said(bare(text))[0]
    assert said(bare(text.replace(":?", "?"))) == []
