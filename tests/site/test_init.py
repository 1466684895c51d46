"""`init` and `adopt` on real llama.cpp servers that somebody else has started."""

import contextlib
import io
import json
import os
import pty
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import BaselineNotReady
from console.common.options.engines import LLAMA
from console.config.site.site import Site, load_site
from console.host import licence, process
from console.host.licence import Licence, Reason
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.host.units import UnitSpec
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Word
from console.runner.prepare import adopt as adoption
from console.runner.prepare import baseline, seal
from console.runtime.answers.completion import prove
from console.runtime.discovery import processes
from console.runtime.discovery.servers import Server
from console.runtime.probe import Health, health
from tests.children import running
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.testbed.models import tiny_llama
from tests.waiting import some, until

pytestmark = pytest.mark.alone
ENGINE = "console.rehearsal.demo.engine"


class Started(NamedTuple):
    pid: int
    port: int
    url: str


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny_llama(path)
    return path


@contextlib.contextmanager
def engine(model: Path, *more: str, **options: Any) -> Iterator[Started]:
    """A llama.cpp server as somebody starts it by hand: by a relative path, with no record."""
    port = free_port()
    argv = [sys.executable, "-m", ENGINE, "--model", model.name, "--port", str(port), *more]
    with running(argv, cwd=model.parent, stdout=-3, stderr=-3, **options) as child:
        url = f"http://127.0.0.1:{port}"
        until(lambda: health(url)[0] is Health.SERVING, "it serves")
        yield Started(child.pid, port, url)


@pytest.fixture(scope="module")
def two(model: Path) -> Iterator[tuple[Started, Started]]:
    with engine(model, "--alias", "big") as first, engine(model, "--alias", "small") as second:
        yield first, second


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    monkeypatch.delenv("OMNI_SITE", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path


def site() -> Site:
    return load_site(paths.default_site(), lacking=True)


def known(one: Site) -> tuple[int, int] | None:
    runs = one.baseline_spec().runs
    assert isinstance(runs, ProcessSpec)
    return process.known(paths.records_dir(one.name), "baseline", runs, BASELINE_COOKIE)


def test_a_second_file_gets_a_name_of_its_own(
    two: tuple[Started, Started], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sites of one name share their records. No usual file says that the name is taken."""
    files = [home / "one.yaml", home / "two.yaml"]
    for path, server in zip(files, two, strict=True):
        words = ["init", "--pick", server.url, "--yes", "--reference", "none"]
        assert main([*words, "--output", str(path)]) == 0
    first, other = map(load_site, files)
    assert other.name == f"{first.name}-two"
    said = " ".join(capsys.readouterr().out.split())
    assert f"{other.name}, as another site on this machine has the name {first.name}" in said
    pids = [(one.pid, process.start_time(one.pid)) for one in two]
    assert [known(first), known(other)] == pids


def test_a_server_that_runs_becomes_the_baseline(
    two: tuple[Started, Started], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal, and without a restart."""
    second = two[1]
    assert main(["init", "--pick", second.url, "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["baseline"]["pid"], told["proof"]["ok"]) == (second.pid, True)
    assert {one.url for one in two} <= {one["url"] for one in told["servers"]}
    path = paths.default_site()
    assert told["written"] == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    one = site()
    assert known(one) == (second.pid, process.start_time(second.pid))
    assert one.model.baseline.reference is not None
    assert one.model.baseline.reference.tok_s == pytest.approx(told["tok_s"], rel=1e-3)
    assert one.model.baseline.models
    assert json.loads((path.parent / "site.schema.json").read_text())["title"]
    assert main(["lint", str(path)]) == 0
    text = path.read_text()
    assert main(["init", "--pick", two[0].url, "--yes"]) == 2, "it is never replaced unasked"
    assert path.read_text() == text
    assert main(["init", "--pick", two[0].url, "--yes", "--force", "--reference", "7"]) == 0
    assert site().model.baseline.url == two[0].url


def test_nothing_is_written_where_it_is_not_said_which_one(
    two: tuple[Started, Started], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (["--yes"], [], ["--pick", str(two[0].pid)], ["--pick", "nobody", "--yes"],
             ["--pick", two[0].url, "--yes", "--reference", "fast"])  # fmt: skip
    for words in asked:
        assert main(["init", *words]) == 2, words
    assert Server(LLAMA, "http://[::1]:8", model="r1").names >= {"r1", "8", "http://[::1]:8"}
    assert main(["init", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])["servers"]
    assert {one.pid for one in two} <= {one["pid"] for one in listed}
    assert not paths.config_dir().exists()


def on_a_terminal(*answers: str) -> tuple[int, str]:
    """`init` with a keyboard: the exit code, and what the screen showed."""
    pid, screen = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "console.cli", "init"])
    shown, left = b"", list(answers)
    with contextlib.suppress(OSError):  # the other end is closed
        while data := os.read(screen, 4096):
            shown += data
            if left and re.search(rb"[\]:] $", shown):
                os.write(screen, left.pop(0).encode() + b"\n")
                shown += b"\n"
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_at_most_two_questions(two: tuple[Started, Started]) -> None:
    code, shown = on_a_terminal(str(two[1].pid), "q")
    assert (code, paths.default_site().exists()) == (2, False), shown
    code, shown = on_a_terminal(str(two[1].pid), "12.5 tok/s")
    assert code == 0, shown
    reference = site().model.baseline.reference
    assert reference is not None
    assert reference.tok_s == 12.5
    assert shown.count("?") == 1, "one question, and one line that confirms"
    assert f"pid {two[1].pid}" in shown


def test_what_is_secret_is_left_out_and_nothing_is_taken_over(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose command line the file lacks a part of would start otherwise next time."""
    port, key = free_port(), "sk-0123456789abcdef"
    argv = [sys.executable, "-S", str(STANDIN), str(port), "--once", "x.gguf", "--api-key", key]
    with running(argv, cwd=model.parent, stdout=-3):
        until(lambda: health(f"http://127.0.0.1:{port}")[0] is Health.SERVING, "it serves")
        words = ["init", "--pick", f":{port}", "--yes", "--reference", "none", "--json"]
        main(words)
    done = capsys.readouterr()
    told = json.loads(done.out)
    assert (told["left_out"], told["adopted"]) == (["--api-key"], False)
    assert key not in paths.default_site().read_text() + done.out + done.err
    assert known(site()) is None


def test_what_was_left_out_can_be_written_and_then_taken_over(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`adopt` never sends back to `init --force`, which would leave the same out again."""
    port, key, hub = free_port(), "sk-0123456789abcdef", "hf_aB3dE5gH7jK9mN1pQ3sT"
    argv = [sys.executable, "-S", str(STANDIN), str(port), "x.gguf", "--api-key", key,
            f"--hf-token={hub}"]  # fmt: skip
    with running(argv, cwd=model.parent, stdout=-3) as child:
        until(lambda: health(f"http://127.0.0.1:{port}")[0] is Health.SERVING, "it serves")
        main(["init", "--pick", f":{port}", "--yes", "--reference", "none"])
        shown = [capsys.readouterr()]
        path = paths.default_site()
        assert main(["adopt"]) == 2
        shown.append(capsys.readouterr())
        for text in ("".join(said).replace("\n", " ") for said in shown):
            words = " ".join(text.split())
            assert "the values of --api-key and --hf-token are missing" in words
            assert "process.argv" in words
            assert f"omni-console adopt --site {path}" in words
            assert "init --force" not in words
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            lead = line.partition("#")[0]
            if "write here: - --api-key, then - VALUE" in line:
                lines[at] = f"{lead}- --api-key\n{lead}- other-0123456789"
            elif "write here: - --hf-token=VALUE" in line:
                lines[at] = f"{lead}- --hf-token={hub}"
        path.write_text("\n".join(lines) + "\n")
        assert main(["adopt"]) == 2
        shown.append(capsys.readouterr())
        assert "another value of --api-key" in " ".join(shown[-1].err.split())
        path.write_text(path.read_text().replace("other-0123456789", key))
        assert main(["adopt", "--site", str(path)]) == 0, capsys.readouterr()
        shown.append(capsys.readouterr())
        assert known(site()) == (child.pid, process.start_time(child.pid))
    assert not [one for one in (key, hub, "other-0123456789") if one in str(shown)]


def test_a_server_that_does_not_answer_a_completion(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is written; the exit code and the words say what is missing."""
    port = free_port()
    body = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers()\n"
        "    def do_POST(self): self.send_response(401); self.end_headers()\n"
        f"h.HTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    )
    (home / "serve.py").write_text(body)
    argv = [sys.executable, str(home / "serve.py"), "m.gguf"]
    with running(argv, stdout=-3, stderr=-3):
        until(lambda: health(f"http://127.0.0.1:{port}")[0] is Health.SERVING, "it serves")
        code = main(["init", "--pick", str(port), "--yes", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["tok_s"], told["proof"]["ok"]) == (5, None, False)
    assert "401" in told["proof"]["detail"]
    assert "key" in told["proof"]["hint"]
    assert site().model.baseline.reference is None


GARBLED_WHEN_LONG = """
import http.server as h, json, sys
class H(h.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = asked["max_tokens"]
        tokens = ["I", " am", " ready", " to", " answer", " all", " of", " it"]
        tokens += [chr(10)] * (count - len(tokens))
        usage = {"completion_tokens": count}
        self.send_response(200); self.end_headers()
        if not asked.get("stream"):
            message = {"role": "assistant", "content": "".join(tokens[:count])}
            choices = [{"message": message, "finish_reason": "length"}]
            self.wfile.write(json.dumps({"choices": choices, "usage": usage}).encode())
            return
        parts = [{"choices": [{"delta": {"content": one}}]} for one in tokens[:count]]
        parts.append({"choices": [{"delta": {}, "finish_reason": "length"}], "usage": usage})
        for one in parts: self.wfile.write(b"data: " + json.dumps(one).encode() + b"\\n\\n")
        self.wfile.write(b"data: [DONE]\\n\\n")
h.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""


def test_longer_answers_that_are_garbage_outweigh_a_short_one_that_is_sane(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A proof asks for eight tokens, and the measurement for more: there is one verdict."""
    port = free_port()
    (home / "serve.py").write_text(GARBLED_WHEN_LONG)
    argv = [sys.executable, str(home / "serve.py"), str(port), "m.gguf"]
    with running(argv, stdout=-3, stderr=-3):
        until(lambda: health(f"http://127.0.0.1:{port}")[0] is Health.SERVING, "it serves")
        assert prove(f"http://127.0.0.1:{port}").ok
        code = main(["init", "--pick", str(port), "--yes", "--json"])
        done = capsys.readouterr()
        word = evidence.state(seal.site_plan(site())).word
    told = json.loads(done.out)
    assert (code, told["tok_s"], told["proof"]["ok"]) == (5, None, False)
    assert "answers are garbled" in told["proof"]["detail"]
    assert "garbage" in told["proof"]["hint"]
    assert "proof       ok" not in done.err
    assert word is Word.GARBLED


def test_nothing_serves(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "pids", lambda: [os.getpid()])
    assert main(["init"]) == 5
    said = capsys.readouterr().out
    assert "Looked at 1 processes" in said
    assert "no-engine.sock" in said
    assert "omni-console demo" in said


def write(model: Path, started: Started, **changes: str) -> None:
    """A site file by hand, for a server that was started by hand."""
    argv = [sys.executable, "-m", ENGINE, "--model", model.name, "--port", str(started.port)]
    words = {"argv": json.dumps(argv), "cwd": str(model.parent), "url": started.url, **changes}
    path = paths.default_site()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "schema: omni.site/v1\nname: ws\nbaseline:\n"
        f"  process: {{argv: {words['argv']}, cwd: {words['cwd']}}}\n  url: {words['url']}\n"
        "  ready: {timeout: 60s}\n"
    )


@pytest.mark.parametrize("how", ["", "pid"])
def test_a_rollback_works_on_what_was_taken_over(
    model: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It leads no group, as what a script starts: the same process serves on, a stop ends it alone,
    and a rollback starts it again."""
    with engine(model) as started:
        write(model, started)
        assert main(["adopt", *([str(started.pid)] if how else [])]) == 0
        start = some(process.start_time(started.pid))
        assert known(site()) == (started.pid, start)
        assert main(["rollback"]) == 0
        assert process.alive(started.pid, start), "it serves already"
        assert main(["adopt"]) == 0
        assert "already" in capsys.readouterr().out
        assert process.stop_group(started.pid, start, grace_s=10.0)
        assert main(["rollback"]) == 0
        again = some(known(site()))
        assert again[0] != started.pid
        process.stop_group(*again, grace_s=0.0)


def test_a_renamed_site_takes_its_server_over_from_the_old_name(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recorded for two sites it could be stopped by neither."""
    with engine(model) as started:
        write(model, started)
        assert main(["adopt"]) == 0
        start = some(process.start_time(started.pid))
        path = paths.default_site()
        path.write_text(path.read_text().replace("name: ws", "name: loop"))
        own = Licence(Reason.BASELINE, "loop")
        process.write_record(  # as a version before has left it
            paths.records_dir("loop"), "baseline", some(known_spec(site())), started.pid, start
        )
        assert "of site ws" in licence.refusal(own, started.pid, start)
        with pytest.raises(BaselineNotReady, match="could not be stopped") as caught:
            baseline.facts(site(), lambda: pytest.fail("no engine is asked"))
        assert "omni-console adopt" in caught.value.hint
        capsys.readouterr()
        assert main(["adopt"]) == 0
        assert "it was the baseline of site ws until now" in capsys.readouterr().out
        assert licence.refusal(own, started.pid, start) == ""
        assert [one.site for one in licence.baselines()] == ["loop"]
        assert baseline.facts(site(), lambda: pytest.fail("no engine is asked")).kind == "process"


def known_spec(of: Site) -> ProcessSpec | None:
    runs = of.baseline_spec().runs
    return runs if isinstance(runs, ProcessSpec) else None


def test_what_is_not_the_site_files_baseline_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adopt"]) == 2
    assert "omni-console init" in capsys.readouterr().err
    with engine(model) as started, engine(model) as other:
        refused = {
            "word 7": {"argv": json.dumps([sys.executable, "-m", ENGINE, "--model", model.name,
                                           "--port", "1"])},
            "its program is": {"argv": '["/bin/true", "-m"]'},
            "words": {"argv": json.dumps([sys.executable, "-m", ENGINE])},
            "directory": {"cwd": "/"},
        }  # fmt: skip
        for words, changes in refused.items():
            write(model, started, **changes)
            assert main(["adopt"]) == 2, words
            assert words in capsys.readouterr().err
        write(model, started)
        wrong = {str(other.pid): "word 7", "4194305": "no process", "no-unit.service": "named"}
        for what, words in wrong.items():
            assert main(["adopt", what]) == 2, what
            assert words in capsys.readouterr().err
        assert known(site()) is None


def test_several_at_one_address(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two servers may share a port by SO_REUSEPORT."""
    port = free_port()
    body = (
        "import socket, time\ns = socket.socket()\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        f"s.bind(('127.0.0.1', {port})); s.listen(); print('up', flush=True); time.sleep(600)\n"
    )
    argv = [sys.executable, "-S", "-c", body]
    with running(argv, stdout=-1) as first, running(argv, stdout=-1) as second:
        for one in (first, second):
            with some(one.stdout) as out:
                assert out.readline() == b"up\n"
        write(model, Started(0, port, f"http://127.0.0.1:{port}"))
        assert main(["adopt"]) == 2
        said = capsys.readouterr().err
        write(model, Started(0, port, f"http://127.0.0.1:{port}"), argv=json.dumps(argv))
        assert main(["adopt", str(first.pid)]) == 2
        shared = capsys.readouterr().err
    assert str(first.pid) in said
    assert str(second.pid) in said
    assert f"pid {second.pid}" in shared, "whoever shares the address gets its requests, too"
    assert "answers at" in shared


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_another_users_process_is_refused_without_rights(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be known, and could be neither stopped nor started."""
    with running(["sleep", "600"], user=65534) as child:
        until(lambda: processes.argv_of(child.pid)[:1] == ("sleep",), "it is started")
        found = some(processes.read(child.pid))
        write(model, Started(0, 1, "http://127.0.0.1:1"))
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        with pytest.raises(adoption.CannotAdopt, match="nothing was taken over") as caught:
            adoption.adopt(site(), found)
    assert caught.value.exit_code == 2
    assert "belongs to" in caught.value.detail


def test_what_a_unit_runs_or_does_not_listen_is_no_process_baseline(model: Path) -> None:
    """systemd would start it again when a run stops it; and another server may have the port."""
    with engine(model) as started:
        write(model, started)
        found = adoption.at_its_address(site())
        with pytest.raises(adoption.CannotAdopt) as caught:
            adoption.adopt(site(), replace(found, unit=UnitSpec("llama.service")))
        assert "unit llama.service" in caught.value.detail
        assert "`unit:`" in caught.value.hint
        write(model, started, url="http://127.0.0.1:1")
        with pytest.raises(adoption.CannotAdopt, match="nothing was taken over") as caught:
            adoption.adopt(site(), found)
        assert "does not listen" in caught.value.detail
        assert known(site()) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start another user's")
def test_root_is_told_that_a_rollback_starts_it_as_root() -> None:
    with running(["sleep", "600"], user=65534) as child:
        until(lambda: processes.argv_of(child.pid)[:1] == ("sleep",), "it is started")
        told = adoption.notes(some(processes.read(child.pid)), ProcessSpec(("sleep", "600")))
    assert any("starts it as root" in note for note in told)


def test_variables_that_the_site_file_lacks_are_told() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "1", "LLAMA_ARG_CTX": "9", "HF_TOKEN": "hf_0123456789", "A": "b"}
    with running(["sleep", "600"], env={**env, "PATH": os.environ["PATH"]}) as child:
        until(lambda: processes.argv_of(child.pid)[:1] == ("sleep",), "it is started")
        spec = ProcessSpec(("sleep", "600"), (("CUDA_VISIBLE_DEVICES", "1"),))
        note, parent = adoption.notes(some(processes.read(child.pid)), spec)
    assert "without HF_TOKEN, LLAMA_ARG_CTX, which" in note
    assert "hf_0123456789" not in note
    assert f"its parent, pid {os.getpid()}" in parent


@pytest.mark.skipif(shutil.which("script") is None, reason="needs script")
def test_it_is_said_that_a_server_hangs_on_its_terminal(model: Path) -> None:
    port = free_port()
    words = f"{sys.executable} -m {ENGINE} --model {model} --port {port}"
    with running(["script", "-qfc", words, "/dev/null"], stdin=-3, stdout=-3, stderr=-3):
        url = f"http://127.0.0.1:{port}"
        until(lambda: health(url)[0] is Health.SERVING, "it serves")
        write(model, Started(0, port, url), argv=json.dumps(words.split()))
        found = adoption.at_its_address(site())
        runs = site().baseline_spec().runs
        assert isinstance(runs, ProcessSpec)
        assert any("terminal" in note for note in adoption.notes(found, runs))
        process.send(found.pid, found.start, 9)


def test_the_first_of_two_everyday_servers_outlives_the_choice_of_the_second(
    two: tuple[Started, Started], capsys: pytest.CaptureFixture[str]
) -> None:
    """`init` for one, `init --force` for the other, and a rollback: nobody's server ends."""
    first, second = two
    words = ["--yes", "--reference", "none", "--json"]
    assert main(["init", "--pick", first.url, *words]) == 0
    capsys.readouterr()
    assert main(["init", "--pick", second.url, "--force", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any(
        one.startswith(f"pid {first.pid}, the baseline until now, is left alone")
        for one in told["notes"]
    ), told["notes"]
    starts = [process.start_time(one.pid) for one in two]
    assert seal.site_plan(site()).candidates == ()
    assert main(["rollback"]) == 0
    assert [process.start_time(one.pid) for one in two] == starts
    assert "left alone" not in (shown := capsys.readouterr().out), "nobody wanted to end it"
    assert "candidate stopped" not in shown


def test_a_child_of_a_supervisor_is_not_taken_over(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be started again beside an exclusive candidate."""
    port = free_port()
    argv = [sys.executable, "-m", ENGINE, "--model", model.name, "--port", str(port)]
    swap = tmp_path / "llama-swap"
    swap.write_text(f"#!/bin/sh\n{shlex.join(argv)} &\nwait\n")
    swap.chmod(0o755)
    with running([str(swap)], cwd=model.parent, stdout=-3, stderr=-3) as parent:
        until(lambda: health(f"http://127.0.0.1:{port}")[0] is Health.SERVING, "it serves")
        try:
            assert main(["init", "--pick", f":{port}", "--yes"]) == 2
            said = capsys.readouterr()
            assert f"it is a child of llama-swap (pid {parent.pid})" in said.out + said.err
            assert not paths.default_site().exists()
        finally:
            for one in process.all_stats():
                if one.parent == parent.pid:
                    os.kill(one.pid, 9)


def test_a_server_that_another_one_shares_its_group_with_is_not_taken_over(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script has started two and become the second: its stop would end the first for good."""
    ports = [free_port(), free_port()]
    lines = [
        shlex.join([sys.executable, "-m", ENGINE, "--model", model.name, "--port", str(port)])
        for port in ports
    ]
    script = f"{lines[0]} & exec {lines[1]}"
    quiet = {"stdout": -3, "stderr": -3}
    with running(["setsid", "sh", "-c", script], cwd=model.parent, **quiet) as leader:
        for port in ports:
            until(lambda url=f"http://127.0.0.1:{port}": health(url)[0] is Health.SERVING, "up")
        others = licence.other_servers(leader.pid, some(process.start_time(leader.pid)))
        try:
            assert [port for _, port in others] == ports[:1]
            assert main(["init", "--pick", f":{ports[1]}", "--yes"]) == 0
            said = " ".join(capsys.readouterr().out.split())
            group = f"another server is in its process group: pid {others[0][0]} at port"
            assert f"not taken over: pid {leader.pid}: {group}" in said, said
            assert process.read_record(paths.records_dir(site().name), "baseline") is None
            own = Licence(Reason.BASELINE, "local")
            record = paths.records_dir("local")
            paths.make(record)
            spec = ProcessSpec(process.argv(leader.pid))
            start = some(process.start_time(leader.pid))
            process.write_record(record, "baseline", spec, leader.pid, start)
            licence.stop_group(own, leader.pid, start, grace_s=5)
            assert health(f"http://127.0.0.1:{ports[0]}")[0] is Health.SERVING, "it lives on"
        finally:
            for pid, _ in others:
                os.kill(pid, 9)


def test_a_model_that_knows_is_asked_what_it_knows(
    instruct_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same file with a wrong setting speaks nonsense that looks like language."""
    with engine(instruct_model, "--cache-ram", "0") as served:
        assert main(["init", "--pick", served.url, "--yes", "--reference", "10"]) == 0
    assert "Paris" in capsys.readouterr().out
    completion = site().model.baseline.completion
    assert (completion.expect, completion.max_tokens) == ("Paris", 32)
    with engine(instruct_model, "--cache-ram", "0", "--rope-freq-base", "100") as broken:
        asked: dict[str, Any] = {
            "prompt": completion.prompt,
            "max_tokens": 32,
            "expect": completion.expect,
        }
        assert prove(broken.url, **asked).garbled is not None
