"""Services that cannot start or answer are refused before step 1, and nothing else is."""

import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import Exit, InvalidFile
from console.config.playbook.load import load_playbook
from console.config.site.site import Site, load_site
from console.host.process import BASELINE_COOKIE, COOKIE
from console.runner.prepare import startable
from tests.children import running
from tests.ports import free_port

SITE = """\
schema: omni.site/v1
name: here
baseline: {{process: {{argv: [cat]}}, url: "http://127.0.0.1:{port}"}}
services:
  late: {{process: {{argv: [no-such-engine]}}, url: "http://127.0.0.1:{late}"}}
"""
START = "{id: up, service: {start: cand}}"
Refused = Callable[..., list[str]]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    path = tmp_path / "site.yaml"
    path.write_text(SITE.format(port=free_port(), late=free_port()))
    return load_site(path)


@pytest.fixture
def refused(tmp_path: Path, site: Site) -> Refused:
    """What is refused of a service `cand` that the given steps start, each as LINE:COLUMN WORDS."""

    def look(service: str, *steps: str, more: str = "", **options: bool) -> list[str]:
        path = tmp_path / "book.yaml"
        path.write_text(
            "schema: omni.playbook/v1\nname: b\ntitle: b\n"
            f"{more}services:\n  cand: {service}\nphases:\n- title: p\n  steps:\n"
            + "".join(f"  - {step}\n" for step in steps or (START,))
        )
        book = load_playbook(path, planning=True, site_services=frozenset(site.model.services))
        found = startable.look(book, site, **options)
        return [f"{one.line}:{one.column} {one.what} ({one.hint})" for one in found.problems]

    return look


def process(*argv: str, port: int = 0, url: int = 0) -> str:
    words = [*argv, *(["--port", str(port)] if port else [])]
    return f'{{process: {{argv: {words!r}}}, url: "http://127.0.0.1:{url or port or free_port()}"}}'


def test_what_is_there_is_no_problem(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    assert refused(process("cat", "-m", "m.gguf", port=free_port())) == []
    assert refused(process(sys.executable, "-m", "some.module", "--model", "org/name")) == []


def test_a_model_that_is_not_there(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "qwen-q4.gguf").touch()
    (found,) = refused(process("cat", "--model", "qwen-q5.gguf"))
    assert found.startswith("5:45 service 'cand': there is no ")
    assert found.endswith("/qwen-q5.gguf (did you mean qwen-q4.gguf?)")
    (found,) = refused(process("cat", "--model=/nowhere/at/all.gguf"))
    assert found.endswith("there is no /nowhere/at/all.gguf (there is no directory /nowhere/at)")


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("--slot-save-path", "a directory"), ("--chat-template-file", "a file"),
        ("--api-key-file", "a file"), ("--path", "a directory"), ("--lora", "a file"),
    ],
)  # fmt: skip
def test_what_an_engine_opens_at_its_start(
    refused: Refused, tmp_path: Path, option: str, wanted: str
) -> None:
    (tmp_path / "m.gguf").touch()
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    server = tmp_path / "llama-server"
    server.symlink_to("/bin/true")
    service = partial(process, str(server), "-m", "m.gguf", option)
    (found,) = refused(service("nowhere"))
    assert f"there is no {tmp_path}/nowhere" in found
    assert option in found
    good, bad = ("dir", "file") if wanted == "a directory" else ("file", "dir")
    assert refused(service(good)) == []
    assert len(refused(service(bad))) == (option != "--api-key-file")
    assert refused(service("nowhere"), "{id: make, run: [make]}", START) == []
    assert refused(service("$HOME/x")) == []
    assert refused(process("cat", "-m", "m.gguf", option, "nowhere")) == [], "no engine"


def test_a_baseline_that_its_engine_refuses_is_named(tmp_path: Path) -> None:
    """A run brings it back, whatever its steps do."""
    server = tmp_path / "llama-server"
    server.symlink_to("/bin/true")
    path, file = tmp_path / "site.yaml", tmp_path / "book.yaml"
    file.write_text(
        "schema: omni.playbook/v1\nname: b\ntitle: b\n"
        "phases:\n- title: p\n  steps:\n  - {id: look, run: [ls]}\n"
    )
    book = load_playbook(file, planning=True)
    for more, refusal in (("-c, all", "refuses --ctx-size all"), ("-c, '80'", ""), ("--frob", "")):
        argv = f"[{server}, {more}]"
        path.write_text(SITE.format(port=free_port(), late=free_port()).replace("[cat]", argv))
        look = startable.look(book, load_site(path))
        for problems in (startable.of_site(load_site(path), here=False), look.problems):
            assert [refusal in one.what for one in problems] == [True] * bool(refusal)
            assert all(one.line == 3 for one in problems)
        assert ["UNKNOWN" in one for one in look.awaited] == [True] * (more == "--frob")


def test_what_an_engine_in_a_container_opens_at_its_start(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    box = (
        '{{container: {{image: llama.cpp:1, command: [--slot-save-path, {}], mounts: ["m:/m"]}}, '
        'url: "http://127.0.0.1:9"}}'
    )
    assert "/slots, and the engine" in refused(box.format("/m/slots"))[0]
    assert refused(box.format("/m")) == []
    assert refused(box.format("/in-the-image")) == []


def test_the_demo_makes_its_models_when_it_is_started(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    models = paths.demo_dir() / "models"
    assert refused(process("cat", "--model", f"{models}/fast.gguf")) == []
    assert len(refused(process("cat", "--model", f"{models}/fats.gguf"))) == 1


def test_a_mount_of_what_is_not_there_is_refused_unless_a_step_makes_it(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = '{container: {image: i:1, mounts: ["models:/m", "here:/h"]}, url: "http://127.0.0.1:9"}'
    (tmp_path / "here").mkdir()
    (tmp_path / "model").mkdir()
    (found,) = refused(box)
    assert found == (
        f"5:42 service 'cand': there is no {tmp_path}/models to mount (did you mean model?)"
    )
    assert refused(box, "{id: make, run: [mkdir, models]}", START) == []
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    assert refused(box) == [], "the paths are those of another machine"


def test_a_model_in_a_container_is_looked_for_where_it_is_mounted(
    refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    box = '{{container: {{image: i:1, command: [-m, {}], mounts: ["m:/m"]}}, url: "http://127.0.0.1:9"}}'
    assert "there is no " in refused(box.format("/m/x.gguf"))[0]
    assert refused(box.format("/in-the-image/x.gguf")) == []


@pytest.mark.parametrize("mount", ["", "/docker.sock"])
def test_a_mount_that_hands_the_engine_over_is_refused_before_anything_stops(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/run/docker.sock")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/docker.sock").touch()
    source, address = f"{tmp_path}/run{mount}", "http://127.0.0.1:9"
    box = f'{{container: {{image: i:1, mounts: ["{source}:/m"]}}, url: "{address}"}}'
    (found,) = refused(box)
    assert f"mounting {source} would hand the engine to the container" in found
    (tmp_path / "run/models").mkdir()
    below = box.replace(f"{source}:", f"{tmp_path}/run/models:")
    assert refused(below) == []


@pytest.mark.parametrize(
    "argv",
    [
        ("cat", "-hf", "org/name", "--model", "/not/yet.gguf"),
        ("vllm", "serve", "--model", "org/name/file.gguf"),
        ("cat", "--model", ""),
        ("cat", "--model"),
    ],
    ids=["fetched", "a repository", "empty", "no value"],
)  # fmt: skip
def test_a_model_that_may_be_fetched_is_not_looked_for(
    refused: Refused, argv: tuple[str, ...]
) -> None:
    assert [one for one in refused(process(*argv)) if "there is no" in one] == []


@pytest.mark.parametrize(
    "step",
    [
        "{id: make, run: [make]}", "{id: make, script: make}", "{id: make, manual: {do: it}}",
        "{id: make, download: {repo: a/b, to: .}}",
    ],
    ids=["run", "script", "manual", "download"],
)  # fmt: skip
def test_what_an_earlier_step_may_make_is_awaited(refused: Refused, step: str) -> None:
    service = process("build/server", "-m", "m.gguf")
    assert len(refused(service)) == 2
    assert refused(service, step, START) == []
    assert len(refused(service, START, step)) == 2
    assert len(refused(service, step.replace("{id: make,", "{id: make, when: false,"), START)) == 2


def test_a_download_makes_only_what_is_below_its_directory(refused: Refused) -> None:
    fetch = "{id: get, download: {repo: a/b, to: weights}}"
    assert refused(process("cat", "-m", "weights/m.gguf"), fetch, START) == []
    assert len(refused(process("cat", "-m", "wieghts/m.gguf"), fetch, START)) == 1


def test_a_step_that_only_looks_makes_nothing(refused: Refused) -> None:
    looks = ("{id: a, check: {file: m.gguf}}", "{id: b, note: x}", "{id: c, approval: {prompt: x}}")
    assert len(refused(process("cat", "-m", "m.gguf"), *looks, START)) == 1


def test_the_program(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "server").write_text("")
    assert "no program llama-servr is found" in refused(process("llama-servr"))[0]
    assert "there is no program ./sever (did you mean server?)" in refused(process("./sever"))[0]
    (found,) = refused(process("./server"))
    assert f"./server cannot be executed (chmod +x {tmp_path}/server)" in found
    (tmp_path / "server").chmod(0o755)
    assert refused(process("./server")) == []
    nowhere = f'{{process: {{argv: [cat], cwd: gone}}, url: "http://127.0.0.1:{free_port()}"}}'
    assert f"there is no directory {tmp_path}/gone" in refused(nowhere)[0]


def test_ports(refused: Refused, site: Site) -> None:
    base = int(site.model.baseline.url.rpartition(":")[2])
    assert f"has the baseline's own port {base}" in refused(process("cat", port=base))[0]
    (found,) = refused(process("cat", port=9001, url=9002))
    assert found.startswith("5:44 service 'cand' listens at port 9001, but is asked at http://")
    assert refused(process("cat", "--port", "9001", port=9002)) == [], "the last one counts"
    box = ('{container: {image: i:1, command: [--port, "8081"], ports: ["9001:8080"]}, '
           'url: "http://127.0.0.1:9001"}')  # fmt: skip
    assert "(port 9001 leads to port 8080 of its container)" in refused(box)[0]
    assert refused(box.replace("8081", "8080")) == []
    assert "publishes 9001" in refused(box.replace("127.0.0.1:9001", "127.0.0.1:9003"))[0]


def test_paths_and_ports_inside_of_something_else_are_not_ours(refused: Refused) -> None:
    inside = ("-p", "9001:8080", "image", "-m", "/models/x.gguf", "--port", "8080")
    assert refused(process("env", "docker", "run", *inside, url=9001)) == []
    assert len(refused(process("env", *inside, url=9001))) == 2


def test_two_services_at_one_port(refused: Refused) -> None:
    port = free_port()
    two = f"{process('cat', port=port)}\n  other: {process('cat', port=port)}"
    other, stop = "{id: two, service: {start: other}}", "{id: off, service: {stop: cand}}"
    assert "has the port of 'cand', which is up by then" in refused(two, START, other)[0]
    assert refused(two, START, stop, other) == [], "one after the other"
    assert refused(two, START) == [], "only what is started counts"


def test_a_port_that_is_taken_now(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        service = process("cat", port=holder.getsockname()[1])
        (found,) = refused(service)
        assert "is taken by process" in found
        assert refused(service, now=False) == [], "lint is about the file"
        free = "{id: free, run: [fuser, -k, x]}"
        assert refused(service, free, START) == [], "a step before may free it"


def test_a_port_that_a_run_has_is_not_taken(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COOKIE, BASELINE_COOKIE)
    code = (
        "import socket, time; one = socket.create_server(('127.0.0.1', 0)); "
        "print(one.getsockname()[1], flush=True); time.sleep(600)"
    )
    with running([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        with child.stdout as said:
            assert refused(process("cat", port=int(said.readline()))) == []


def test_an_input_without_a_value_is_not_judged(refused: Refused) -> None:
    more = "inputs: {m: {type: path, required: true}}\n"
    hole = "${{ inputs.m }}"
    assert refused(process("cat", "--model", hole), more=more) == []
    given = more.replace("required: true", "default: /nowhere.gguf")
    assert len(refused(process("cat", "--model", hole), more=given)) == 1


def test_another_machine_s_files_do_not_count(refused: Refused) -> None:
    assert refused(process("llama-servr", "-m", "/x.gguf"), here=False) == []


def test_a_service_of_the_site_has_its_place_there(
    tmp_path: Path, site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` and `plan` end with 2, `lint` with 9, and no run is made."""
    monkeypatch.setenv("COLUMNS", "10000")  # in a terminal long lines are folded
    book = tmp_path / "book.yaml"
    book.write_text(
        "schema: omni.playbook/v1\nname: b\ntitle: b\nphases:\n- title: p\n  steps:\n"
        "  - {id: up, service: {start: late}}\n"
    )
    words = f"{site.path}:5:27: service 'late': no program no-such-engine is found"
    with pytest.raises(InvalidFile) as caught:
        startable.refuse(load_playbook(book, site_services=frozenset({"late"})), site)
    assert caught.value.exit_code == Exit.USAGE
    assert str(caught.value.problems[0]).startswith(words)
    given = ["--site", str(site.path)]
    assert main(["plan", str(book), *given]) == Exit.USAGE
    assert f"REFUSED    {words}" in capsys.readouterr().out
    assert main(["run", str(book), *given]) == Exit.USAGE
    assert words in capsys.readouterr().err
    assert main(["lint", str(book), *given]) == Exit.LINT
    assert words in capsys.readouterr().out
    assert main(["lint", str(site.path), *given]) == Exit.LINT
    assert words in capsys.readouterr().out


def engine(path: Path, *lines: str) -> str:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return str(path)


def test_an_engine_that_does_not_start_is_refused_while_the_baseline_serves(
    refused: Refused, tmp_path: Path
) -> None:
    words = "llama-server: error while loading shared libraries: libggml-cuda.so"
    broken = engine(tmp_path / "llama-server", f"echo {words} >&2", "exit 127")
    assert refused(process(broken)) == [], "a plan starts nothing"
    (found,) = refused(process(broken), tries=True)
    assert "libggml-cuda.so" in found
    killed = engine(tmp_path / "llama-server-b1", "kill -ILL $$")
    (found,) = refused(process(killed), tries=True)
    assert "signal 4" in found


@pytest.mark.parametrize("lines", [("exit 0",), ("exit 1",), ("echo no such option >&2", "exit 2")])
def test_an_engine_that_starts_is_not(
    refused: Refused, tmp_path: Path, lines: tuple[str, ...]
) -> None:
    assert refused(process(engine(tmp_path / "llama-server", *lines)), tries=True) == []


def test_a_program_that_nobody_knows_is_not_asked_for_its_version(
    refused: Refused, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    assert refused(process(engine(tmp_path / "serve", f"touch {started}")), tries=True) == []
    assert not started.exists()


def test_an_engine_that_a_step_makes_is_not_tried_before(refused: Refused, tmp_path: Path) -> None:
    broken = engine(tmp_path / "llama-server", "exit 127")
    assert refused(process(broken), "{id: b, run: [make]}", START, tries=True) == []
