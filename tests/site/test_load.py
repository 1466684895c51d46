"""The site file: strict, with every problem at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.errors import Exit, InvalidFile
from console.services.base import ComposeSpec, ExistingContainer, Mount, ProcessSpec
from console.site.load import find_site, load_site
from console.site.model import Site

HEAD = "schema: omni.site/v1\nname: ws\n"
BASELINE = "baseline: {container: base, url: 'http://127.0.0.1:8000'}\n"


def box(container: str) -> str:
    return f"services:\n  c:\n    container: {container}\n    url: 'http://a:1'\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "site.yaml"


def load(path: Path, body: str, head: str = HEAD) -> Site:
    path.write_text(head + body, "utf-8")
    return load_site(path)


def problems(path: Path, body: str, head: str = HEAD) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        load(path, body, head)
    assert caught.value.exit_code is Exit.USAGE
    said = [str(p) for p in caught.value.problems]
    assert [line for line in said if not line.startswith(f"{path}:")] == []
    return [line.removeprefix(f"{path}:") for line in said]


def test_the_smallest_site(path: Path) -> None:
    site = load(path, BASELINE)
    spec = site.baseline_spec()
    assert (site.name, spec.name, spec.url) == ("ws", "baseline", "http://127.0.0.1:8000")
    assert spec.runs == ExistingContainer("base")
    assert (spec.ready.path, spec.ready.timeout_s, spec.exclusive) == ("/health", 900.0, False)
    assert site.service_specs() == {}


def test_a_compose_baseline_is_relative_to_the_site_file(path: Path) -> None:
    site = load(
        path,
        "baseline:\n  compose: {file: stack/c.yaml, service: llm, profile: prod}\n"
        "  url: http://127.0.0.1:8000/\n  ready: {http: /v1, timeout: 15m, stable_for: 10s}\n",
    )
    spec = site.baseline_spec()
    assert spec.runs == ComposeSpec((path.parent / "stack/c.yaml",), "llm", ("prod",))
    assert (spec.url, spec.ready.stable_for_s) == ("http://127.0.0.1:8000", 10.0)


def test_a_process_baseline(path: Path) -> None:
    site = load(
        path,
        "baseline: {process: {argv: [serve, --port, '8000'], env: {A: b}, cwd: x},"
        " url: 'http://h:1'}\n",
    )
    runs = site.baseline_spec().runs
    assert runs == ProcessSpec(("serve", "--port", "8000"), (("A", "b"),), str(path.parent / "x"))


def test_services_and_mounts(path: Path) -> None:
    site = load(
        path,
        BASELINE + "services:\n  cand:\n    url: http://127.0.0.1:8001\n    exclusive: true\n"
        "    container:\n      image: img\n      mounts: ['models:/m', '/n:/n:rw']\n"
        "      ports: ['8001:8080']\n      memory: 24GiB\n      gpus: all\n",
    )
    spec = site.service_specs()["cand"]
    assert spec.exclusive
    assert spec.runs.mounts == (  # type: ignore[union-attr]
        Mount(str(path.parent / "models"), "/m", True), Mount("/n", "/n", False),
    )  # fmt: skip
    assert spec.runs.ports == ((8001, 8080),)  # type: ignore[union-attr]
    assert spec.runs.memory_bytes == 24 * 2**30  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "missing key 'baseline'"),
        ("baseline: {url: 'http://a:1'}\n", "3:11: the baseline is exactly one of container,"),
        (BASELINE.replace("{", "{process: {argv: [x]}, "), "exactly one of container, compose"),
        (BASELINE.replace("http:", "https:"), "expected http://HOST:PORT"),
        (BASELINE.replace("8000'", "8000', ready: {timeout: 15}"), "'timeout' is 15; expected"),
        (BASELINE.replace("8000'", "8000', ready: {http: health}"), "'http' is 'health'"),
        (BASELINE.replace("8000'", "8000', grace: 10"), "expected a duration with a unit"),
        (BASELINE.replace("8000'", "8000', reference: {tok_s: 0}"), "'tok_s' is 0"),
        (BASELINE.replace("8000'", "8000', reference: {tok_s: 1e999}"), "expected a"),
        (BASELINE.replace("8000'", "8000', reference: {tok_s: 9, tolerance: 1}"), "'tolerance'"),
        (BASELINE + "servces: {}\n", "4:1: unknown key 'servces' (hint: did you mean 'services'?)"),
        (BASELINE + "name: other\n", "4:1: duplicate key 'name' (hint: first at line 2)"),
        (BASELINE + "engine: {host: 'tcp://1.2.3.4:2375'}\n", "'host' is 'tcp://1.2.3.4:2375'"),
        (BASELINE + "gpus: [{name: x}]\n", "missing key 'uuid'"),
        (BASELINE + "protected: web\n", "'protected' is 'web'; expected a list"),
        (BASELINE + "services: {baseline: {}}\n", "name 'baseline'; expected another name"),
        (BASELINE + box("{image: i, name: base}"), "6:33: service 'c': container base is the bas"),
        (BASELINE + "protected: [omni-c]\n" + box("{image: i}"), "container omni-c is protected"),
        (BASELINE + "services: {../x: {}}\n", "name '../x'; expected a service name"),
        (BASELINE + "services: {c: {url: 'http://a:1'}}\n", "a service is exactly one of"),
    ],
)
def test_refused(path: Path, body: str, said: str) -> None:
    found = problems(path, body)
    assert [line for line in found if said in line] != [], found


def test_a_service_may_be_called_like_a_container_that_is_never_stopped(path: Path) -> None:
    site = load(path, BASELINE + "protected: [c]\n" + box("{image: i, name: mine}"))
    assert list(site.model.services) == ["c"]


def test_an_argv_is_no_shell(path: Path) -> None:
    body = (
        'baseline: {process: {argv: [llama-server, -m, ~/m.gguf]}, url: "http://127.0.0.1:8000"}\n'
    )
    path.write_text(HEAD + body)
    with pytest.raises(InvalidFile, match=r"write ~/m[.]gguf out in full"):
        load_site(path)


@pytest.mark.parametrize("port", ["8001", "0:80", "8001:65536", "127.0.0.1:8001:80", "a:b"])
def test_ports_are_two_numbers_and_never_an_address(path: Path, port: str) -> None:
    body = f"services: {{c: {{url: 'http://a:1', container: {{image: i, ports: ['{port}']}}}}}}\n"
    assert any("expected HOST:CONTAINER" in line for line in problems(path, BASELINE + body))


@pytest.mark.parametrize("key", ["privileged: true", "restart: always", "network_mode: host"])
def test_what_a_container_never_gets(path: Path, key: str) -> None:
    body = f"services: {{c: {{url: 'http://a:1', container: {{image: i, {key}}}}}}}\n"
    assert any("unknown key" in line for line in problems(path, BASELINE + body))


@pytest.mark.parametrize("text", ["", "- a\n", "words\n"])
def test_a_file_that_is_no_site(path: Path, text: str) -> None:
    assert "expected a mapping" in problems(path, text, head="")[0]


def test_all_problems_in_one_pass(path: Path) -> None:
    body = "baseline: {url: 'ftp://x', grace: 5}\nnope: 1\nprotected: x\nprotected: y\n"
    assert len(problems(path, body)) >= 5


def test_where_a_site_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OMNI_SITE", raising=False)
    assert find_site(None) is None
    own = tmp_path / "omni-console" / "site.yaml"
    own.parent.mkdir()
    own.write_text(HEAD + BASELINE)
    assert find_site(None) == own
    monkeypatch.setenv("OMNI_SITE", "/from/environment")
    assert find_site(None) == Path("/from/environment")
    assert find_site("/given") == Path("/given")


def test_a_home_directory_of_nobody_is_a_name_like_any_other(path: Path) -> None:
    body = (
        "services: {c: {url: 'http://a:1', container: {image: i, mounts: ['~nobody-here:/x']}}}\n"
    )
    spec = load(path, BASELINE + body).service_specs()["c"]
    source = spec.runs.mounts[0].source  # type: ignore[union-attr]
    assert source == str(path.parent / "~nobody-here")
