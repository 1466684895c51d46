"""A server that somebody started by hand, perhaps as the baseline: no second one is started beside
it, whatever it does, and however it was started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from console.common.argv import quoted
from console.common.options.engines import engine_of
from console.host import process
from console.host.ports import owners, ports_of, shares_ports
from console.host.process import ProcessSpec
from console.recovery.rollback import evidence, observe
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.look import Looker, word_of
from console.recovery.rollback.script import write
from console.recovery.rollback.script.proof import PROOF
from console.recovery.rollback.script.stops import STOPS
from console.recovery.rollback.script.strangers import STRANGERS
from console.recovery.rollback.stages import verify
from console.recovery.rollback.stages.held import _asks_for, _is_like
from console.runtime.probe import Health
from console.watch.look import SUSPECT
from console.watch.look import Looker as WatchLooker
from console.watch.plan import Settings
from tests.rollback.conftest import NOBODY, STANDIN, Stage, as_root, run_script
from tests.waiting import some, until


@pytest.mark.parametrize("program", [STANDIN, "ollama.py"])
def test_nothing_is_started_beside_what_serves_garbage_and_has_no_record(
    stage: Stage, lines: Path, program: Path | str
) -> None:
    """Somebody started it by hand, perhaps as the baseline: nothing may end it, and a second
    engine would take the memory of a model and find its port taken."""
    path = stage.root / Path(program).name
    shutil.copy(STANDIN, path)
    lines.write_text(json.dumps({"message": {"content": "GGGGGGGG"}}))
    argv = [sys.executable, "-S", str(path), str(stage.port), "--lines", str(lines)]
    by_hand = stage.spawn(argv, "theirs")
    stage.until_it_is()
    result = stage.roll_back()
    assert result.exit_code == 7
    held = f"pid {by_hand[0]}, {sys.executable} -S {path}"
    assert f"{held} …, holds port {stage.port}" in result.detail
    refused = "omni-console adopt would refuse it, as run theirs of this console started it"
    assert f"nothing is started beside it; {refused}" in result.detail
    assert program != STANDIN or "garbled, " in result.detail
    done = run_script(stage)
    assert done.returncode == 7
    assert f"pid {by_hand[0]}, {sys.executable}, holds its port: nothing" in done.stdout
    assert process.alive(*by_hand)
    assert stage.baseline_process() is None, "nothing was started"
    said = "".join(line["detail"] for line in stage.lines) + done.stdout
    assert "restarting it once" not in said


def test_what_answers_garbage_is_not_said_to_load(stage: Stage, lines: Path) -> None:
    """It has loaded; the procedure and the script say the same of it."""
    lines.write_text(json.dumps({"message": {"content": "GGGGGGGG"}}))
    result = stage.roll_back()
    assert write.ANSWERED in result.manual
    done = run_script(stage)
    assert (result.exit_code, done.returncode) == (7, 7)
    assert f"  {write.ANSWERED}\n" in done.stdout
    assert "may still load" not in done.stdout


@pytest.mark.parametrize("status", [503, 401, 404])
def test_nothing_is_started_beside_what_has_its_address_and_no_record(
    stage: Stage, lines: Path, status: int
) -> None:
    """Whether it loads or refuses: it is alive, and may be the baseline, started by hand."""
    lines.write_text(json.dumps({"health": status}))
    by_hand = stage.spawn(list(some(stage.plan.baseline.process).argv), "theirs")
    until(lambda: owners(stage.plan.baseline.url), "it listens")
    assert stage.roll_back().exit_code == 7
    done = run_script(stage)
    assert done.returncode == 7
    assert "nothing is started beside it" in done.stdout
    assert stage.baseline_process() is None
    assert process.alive(*by_hand)


def test_a_server_by_hand_that_does_not_listen_yet_is_not_loaded_twice(stage: Stage) -> None:
    """Engines that load before they listen hold their memory, and no port, for minutes."""
    stage.base(process=ProcessSpec(("sleep", "601.5")))
    spec = some(stage.plan.baseline.process)
    by_hand = subprocess.Popen(spec.argv, env={"PATH": os.environ["PATH"]})
    left_alone(stage, by_hand, quoted(list(spec.argv), 120), "has the site file's command line")


def left_alone(stage: Stage, by_hand: subprocess.Popen[bytes], line: str, does: str) -> None:
    """Neither way back starts a second server beside one started by hand; it is ended here."""
    told = f"{does}, and does not listen at its address"
    try:
        result = stage.roll_back()
        assert f"pid {by_hand.pid}, {line}, {told}" in result.detail, result
        done = run_script(stage)
        assert f"pid {by_hand.pid}, {line.split()[0]}, {told}" in done.stdout
        assert (result.exit_code, done.returncode) == (7, 7)
        assert stage.baseline_process() is None
        assert by_hand.poll() is None
    finally:
        by_hand.kill()
        by_hand.wait()


@pytest.mark.parametrize(
    ("argv", "spec", "like"),
    [
        ("python3 /opt/vllm serve m", "/opt/vllm serve m", True),
        ("./x -m a.gguf", "/usr/bin/x -m a.gguf", True),
        ("./y -m a.gguf", "/usr/bin/x -m a.gguf", False),
        ("grep -m", "/usr/bin/x -m", False),
        ("/bin/bash HERE/start.sh", "HERE/start.sh", True),
        ("bash -x ./start.sh", "HERE/start.sh", True),
        ("less ./start.sh", "HERE/start.sh", False),
        ("bash /elsewhere/start.sh", "HERE/start.sh", False),
        ("start.sh", "HERE/start.sh", False),
    ],
)
def test_which_command_lines_are_that_of_the_site_file(argv: str, spec: str, like: bool) -> None:
    here = os.getcwd()
    words, wanted = (tuple(text.replace("HERE", here).split()) for text in (argv, spec))
    assert _is_like(os.getpid(), words, ProcessSpec(wanted)) is like


SLEEPS = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    ("program", "words", "env"),
    [
        ("llama-server", ["-m", "other.gguf", "--port", "PORT", "-c", "4096"], {}),
        ("llama-server-cuda", ["--port=PORT", "--no-webui"], {}),
        ("llama-server", ["-m", "m.gguf"], {"LLAMA_ARG_PORT": "PORT"}),
        ("vllm", ["serve", "org/model", "--port", "PORT"], {}),
        ("ollama", ["serve"], {"OLLAMA_HOST": "127.0.0.1:PORT"}),
        ("my-engine", ["/models/a.gguf", "--port", "PORT"], {}),
        ("vllm", ["serve", "m", "--config", "own.yaml"], {}),
        ("llama-server", ["--preset", "own.ini"], {}),
    ],
)
def test_a_start_script_may_have_become_a_server_that_does_not_listen_yet(
    stage: Stage, program: str, words: list[str], env: dict[str, str]
) -> None:
    """The site file starts a script; by hand it got other words, or has become its engine."""
    made = stage.root / program
    made.write_text(f"#!{sys.executable} -S\n{SLEEPS}\n")
    made.chmod(0o755)
    if "own" in str(words):
        stage.base(process=ProcessSpec((program, "serve", "m", "--config", "before.yaml")))
    port = str(stage.port)
    argv = [str(made), *(word.replace("PORT", port) for word in words)]
    given = {name: value.replace("PORT", port) for name, value in env.items()}
    by_hand = subprocess.Popen(argv, env={"PATH": os.environ["PATH"], **given})
    line = quoted([sys.executable, "-S", *argv], 120)
    does = "may be told by a file to listen" if "own" in str(words) else "is to listen"
    left_alone(stage, by_hand, line, f"{does} at port {port}")


def test_a_model_server_at_another_port_does_not_keep_the_baseline_down(stage: Stage) -> None:
    """Nor does one that already listens at that port of another address."""
    made = stage.root / "llama-server"
    made.write_text(f"#!{sys.executable} -S\n{SLEEPS}\n")
    made.chmod(0o755)
    listens = "import socket, sys; s = socket.create_server(('127.0.0.3', int(sys.argv[-1])));"
    other = stage.root / "else" / "llama-server"
    other.parent.mkdir()
    other.write_text(f"#!{sys.executable} -S\n{listens} {SLEEPS}\n")
    other.chmod(0o755)
    args = ["-m", "m.gguf", "--config", "own.yaml", "--port"]
    beside = [
        subprocess.Popen([str(made), *args, str(stage.port + 1)]),
        subprocess.Popen([str(other), *args, str(stage.port)]),
    ]
    try:
        until(lambda: stage.port in ports_of([beside[1].pid]), "it listens")
        done = run_script(stage)
        assert done.returncode == 0, done.stdout
        pid, start = stage.running()
        process.send(pid, start, signal.SIGKILL)
        assert stage.roll_back().serving
        assert [one.poll() for one in beside] == [None, None]
    finally:
        for one in beside:
            one.kill()
            one.wait()


@pytest.mark.parametrize(
    ("argv", "own", "words"),
    [
        ("cp a.gguf b.gguf", "x --model a.gguf", ""),
        ("omni-console run b.yaml --input model=a.gguf", "x --model a.gguf", ""),
        ("llama-quantize a.gguf b.gguf", "llama-server -m a.gguf", ""),
        ("llama-bench -m a.gguf --port 8080", "llama-server -m a.gguf", "is to listen"),
        ("llama-server -m a.gguf", "llama-server -m a.gguf", "is to listen"),
        ("llama-server -m a.gguf --port 8081", "llama-server -m a.gguf", ""),
        ("vllm serve m --config c.yaml", "vllm serve m", "may be told by a file"),
        ("vllm serve m --config c.yaml", "llama-server -m a.gguf", ""),
        ("vim vllm.yaml", "vllm serve m --config vllm.yaml", ""),
    ],
)
def test_who_may_be_about_to_listen_at_the_port(argv: str, own: str, words: str) -> None:
    asks = _asks_for(8080, os.getpid(), tuple(argv.split()), engine_of(own.split()))
    assert asks.startswith(words) if words else asks == ""


@as_root
@pytest.mark.parametrize("shares", [True, False])
def test_a_plain_user_sees_whose_ports_a_process_of_root_s_has(stage: Stage, shares: bool) -> None:
    """Its namespaces are closed to that user, and its container is another one."""
    apart = [] if shares else ["unshare", "--net"]
    pid, start = stage.spawn([*apart, "sleep", "600"], "theirs")
    until(lambda: process.argv(pid) == ("sleep", "600"), "it runs")
    child = os.fork()
    if child == 0:
        os.setuid(NOBODY)
        os._exit(0 if shares_ports(pid) is shares else 1)
    assert os.waitpid(child, 0)[1] == 0
    body = f"shares_ports {pid} && echo yes; exit 0"
    done = subprocess.run(
        ["sh", "-uc", STOPS + PROOF + body], user=NOBODY, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == ("yes\n" if shares else ""), done
    assert process.alive(pid, start)


@as_root
@pytest.mark.parametrize("listens", [True, False])
def test_a_port_at_which_a_process_of_root_s_listens_elsewhere_is_not_awaited(
    stage: Stage, listens: bool
) -> None:
    """A plain user sees of it that root listens there, at another address than the baseline's."""
    argv = ("llama-server", "--port", str(stage.port))
    with socket.create_server(("127.0.0.3", stage.port if listens else 0)):
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            awaited = _asks_for(stage.port, os.getppid(), argv, None)
            os._exit(0 if bool(awaited) is not listens else 1)
        assert os.waitpid(child, 0)[1] == 0


@as_root
@pytest.mark.parametrize("shares", [True, False])
def test_a_server_in_a_container_counts_if_it_shares_the_ports_of_the_host(
    stage: Stage, shares: bool
) -> None:
    """A container of the host's network, started by hand, holds no port while it loads. A network
    of its own, as a container usually has one, is no hindrance."""
    made = stage.root / "llama-server"
    made.write_text(f"#!{sys.executable} -S\n{SLEEPS}\n")
    made.chmod(0o755)
    argv = [str(made), "-m", "m.gguf", "--port", str(stage.port)]
    apart = ["unshare", "--pid", "--fork", *([] if shares else ["--net"])]
    beside = subprocess.Popen([*apart, *argv])
    try:
        until(lambda: any(str(made) in process.argv(pid) for pid in process.pids()), "it runs")
        assert run_script(stage).returncode == (7 if shares else 0)
        if not shares:
            process.send(*stage.running(), signal.SIGKILL)
        assert stage.roll_back().serving is not shares
    finally:
        for pid in process.pids():
            if str(made) in process.argv(pid):
                os.kill(pid, signal.SIGKILL)
        beside.wait()


@pytest.mark.parametrize("more", [[], ["--ignore-term"]])
def test_one_with_other_flags_takes_over_neither_proof_nor_figures(
    stage: Stage, more: list[str]
) -> None:
    """The recorded server has ended, and somebody started its program by hand at its port."""
    stage.seal(site_name="ws")
    stage.start_baseline()
    stage.until_it_is()
    seen = Evidence(Kind.MEASURED, Word.SERVING, time.time(), Witness.ROLLBACK, tok_s=28.0)
    evidence.record(stage.plan, observe.known_start(stage.plan, seen))
    assert Looker().state(stage.plan).proven
    stage.close()
    argv = [*some(stage.plan.baseline.process).argv, *more]
    by_hand = stage.spawn(argv, "theirs")
    stage.until_it_is()
    bench = Evidence(Kind.MEASURED, Word.SERVING, time.time(), Witness.BENCHMARK, tok_s=99.0)
    evidence.record(stage.plan, observe.known_start(stage.plan, bench))
    state = Looker().state(stage.plan)
    known = f"not proven: another process (pid {by_hand[0]}, since "
    assert state.word is (Word.UNKNOWN if more else Word.SERVING)
    assert (state.doubt.startswith(known), state.figure is None) == (bool(more),) * 2, state
    assert state.proven is not bool(more)
    result = stage.roll_back()
    assert (result.exit_code, result.serving) == ((7, False) if more else (0, True)), stage.lines
    assert ("another process (pid" in result.detail) is bool(more)
    assert not any("kill" in line for line in result.manual)
    well = {line["rung"] for line in stage.lines if line["state"] == "ok"}
    assert {"ready", "completion", "serving", "measure"} & well == (
        set() if more else {"ready", "completion", "serving", "measure"}
    ), stage.lines
    assert ("already serving" in str(stage.said("start", "skipped"))) is not bool(more)
    state = Looker().state(stage.plan)
    assert state.word is (Word.UNKNOWN if more else Word.SERVING)
    assert state.proven is not bool(more), "the rollback proved no other"
    assert process.alive(*by_hand)


@pytest.mark.parametrize("more", [[], ["--ignore-term"]])
def test_the_script_proves_no_one_with_other_flags(stage: Stage, more: list[str]) -> None:
    stage.seal(site_name="ws")
    argv = [*some(stage.plan.baseline.process).argv, *more]
    by_hand = stage.spawn(argv, "theirs")
    stage.until_it_is()
    done = run_script(stage)
    named = f"another process (pid {by_hand[0]}, since "
    assert (done.returncode, named in done.stdout) == ((7, True) if more else (0, False))
    assert "kill" not in done.stdout
    assert ("already serving" in done.stdout) is not bool(more)
    state = Looker().state(stage.plan)
    assert state.word is (Word.UNKNOWN if more else Word.SERVING), state
    assert state.proven is not bool(more)
    assert named in state.doubt or not more
    assert process.alive(*by_hand)


@pytest.mark.parametrize("way", ["ladder", "script"])
@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"message": {"content": "GGGGGGGG"}}, "it answers garbage"),
        ({"status": 401}, ""), ({"status": 500, "error": "CUDA error: misaligned address"}, ""),
        ({"status": 500, "health": 500}, ""), ({"health": 401, "status": 401}, ""),
        ({"health": 503, "status": 503}, ""), ({"slow": 60, "most": 0}, ""),
        ({"drips": {"/v1/chat/completions": "HTTP/1.1 2"}}, ""),
    ],
)  # fmt: skip
def test_what_one_with_other_flags_says_is_no_word_of_the_baseline(
    stage: Stage, lines: Path, monkeypatch: pytest.MonkeyPatch, way: str, told: dict[str, Any],
    says: str,
) -> None:  # fmt: skip
    """Garbage, errors, refusals, silence, slow answers: whose they are comes first."""
    for name in ("HUNG_S", "QUICK_S", "REFUSING_S"):
        monkeypatch.setattr(verify, name, 1.0)
    stage.base(ready_timeout_s=3.0)
    stage.seal(site_name="ws")
    argv = [*some(stage.plan.baseline.process).argv, "--ignore-term"]
    by_hand = stage.spawn(argv, "theirs")
    stage.until_it_is()
    lines.write_text(json.dumps(told))
    if way == "script":
        done = run_script(stage)
        code, words = done.returncode, done.stdout
    else:
        result = stage.roll_back()
        code, words = int(result.exit_code), "\n".join([result.detail, *result.manual])
    assert code == 7, words
    named = f"another process (pid {by_hand[0]}, since "
    assert named in words
    assert "may still load" not in words, "the list by hand is not the baseline's"
    for state in (evidence.state(stage.plan), Looker().state(stage.plan)):
        assert (state.word, state.proven) == (Word.UNKNOWN, False), state
        assert f"not proven: {named}" in state.doubt
        assert says in state.doubt
    assert process.alive(*by_hand)


@pytest.mark.parametrize(
    ("made", "base_id", "service", "found"),
    [
        ("new True", "old", "", "none"), ("new True", "old", "base", "none"),
        ("new True", "", "base", "none"), ("new True", "", "", "box"),
        ("old True", "old", "base", "old"), ("new <no value>", "gone", "base", "box"),
        ("new ", "gone", "base", "box"),
    ],
)  # fmt: skip
def test_the_script_takes_no_container_of_compose_run_for_the_baseline_by_its_name(
    stage: Stage, made: str, base_id: str, service: str, found: str
) -> None:
    """`docker compose run --name` may give it the very name."""
    identity = made.split()[0]
    path = stage.tool(
        "docker",
        f'case "$*" in *oneoff*) echo "{made}" ;; *" box"|*" {identity}") echo yes ;; esac',
    )
    body = (
        'life() { [ -n "$STARTED" ] && docker "$STARTED x" "$STARTED"; }\n'
        'find_container; echo "${STARTED:-none}"'
    )
    values = {"BASE_ID": base_id, "BASE_NAME": "box", "SERVICE": service, "PATH": path}
    done = subprocess.run(
        ["sh", "-uc", STOPS + PROOF + STRANGERS + body], env=values, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.stdout == f"{found}\n", done


PAGE = """
import http.server, sys
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<html><body><h1>503 Service Unavailable</h1></body></html>"
        self.send_response(503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Proxy).serve_forever()
"""


def test_a_page_of_a_proxy_with_no_backend_is_no_loading(stage: Stage) -> None:
    """No engine answers with a page while it loads; and whose answer it is comes first."""
    stage.base(ready_timeout_s=1.0)
    stage.seal(site_name="ws")
    port = stage.plan.baseline.url.rpartition(":")[2]
    proxy = stage.spawn([sys.executable, "-c", PAGE, port], "theirs")
    until(lambda: ports_of({proxy[0]}), "it listens")
    page = "503 (a page, no answer of an engine)"
    for state in (Looker().state(stage.plan), evidence.state(stage.plan, looked(stage))):
        assert (state.word, page in state.detail) == (Word.DOWN, True), state
        assert f"something else answers there: pid {proxy[0]}" in state.detail
    seen = WatchLooker(stage.plan, Settings(interval_s=60.0)).look()
    assert (seen.word, seen.stranger) == (SUSPECT, True)
    assert stage.roll_back().exit_code == 7
    assert Looker().state(stage.plan).word is Word.DOWN
    assert process.alive(*proxy)
    assert word_of(Health.LOADING, "Loading model") is Word.LOADING
    assert word_of(Health.LOADING, page) is Word.UNKNOWN


def looked(stage: Stage) -> Evidence:
    return Looker().look(stage.plan)
