"""A port that somebody else holds, and a url that names the wrong one: each is said once, and
nothing that serves is ended for it."""

import errno
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from console.host import licence, ports, process
from console.host.ports import in_use
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.look import Looker
from console.recovery.rollback.script import write
from console.recovery.rollback.stages import whose
from console.runtime.probe import Health, health
from tests.ports import free_port
from tests.rollback.conftest import STANDIN, Stage, kill_now, run_script
from tests.waiting import some, until


def test_who_holds_the_port_is_named_first_and_its_page_is_not_pasted(stage: Stage) -> None:
    argv = [sys.executable, "-u", "-m", "http.server", str(stage.port), "--bind", "127.0.0.1"]
    pid, _ = stage.spawn(argv, "theirs")
    until(lambda: "Serving HTTP" in (stage.root / "log").read_text(), "it serves")
    seen = Looker().look(stage.plan)
    assert (seen.word, "something else answers" in seen.detail) == (Word.DOWN, True), "not 404"
    result = stage.roll_back()
    assert not result.serving
    quoted = f"{sys.executable} -u -m http.server … --bind 127.0.0.1"
    assert f"pid {pid}, {quoted}, holds port {stage.port}" in result.detail, result
    assert "nothing is started beside it" in result.detail
    assert "kill" not in result.detail, "what holds the port may be somebody's everyday server"
    assert "restart" not in result.detail, "it would find its port taken, too"
    assert stage.said("start", "ok") == []
    assert "<" not in "".join(line["detail"] for line in stage.lines), "no page is pasted"


def test_a_baseline_that_answers_at_another_port_than_the_url_is_left_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copied site file with another port in its url: the correct one still finds the process."""
    monkeypatch.setattr(whose, "ELSEWHERE_S", 0.0)
    right = stage.plan
    before = stage.start_baseline()
    stage.until_it_is()
    stage.base(url=f"http://127.0.0.1:{free_port()}", ready_timeout_s=60.0)
    result = stage.roll_back()
    assert not result.serving
    assert f"it answers at port {right.baseline.url.rpartition(':')[2]}" in result.detail
    assert result.manual == (), "what starts it by hand would end it first"
    assert process.alive(*before)
    stage.plan = right
    assert stage.roll_back().nothing_to_do
    assert stage.baseline_process() == before


def test_a_copy_in_another_directory_hides_no_process(stage: Stage) -> None:
    """Its specification differs, and the record that it writes is not the only one."""
    records, spec = stage.plan.records_dir, some(stage.plan.baseline.process)
    mine, other = stage.sleeper(), stage.sleeper()
    process.write_record(records, "baseline", spec, *mine)
    process.write_record(records, "baseline", replace(spec, cwd="/tmp"), *other)
    assert process.read_record(records, "baseline", spec) == mine
    assert process.read_record(records, "baseline", replace(spec, cwd="/tmp")) == other
    assert process.read_record(records, "baseline") == other
    process.write_record(records, "baseline", spec, *mine)
    assert process.read_record(records, "baseline", replace(spec, cwd="/tmp")) == other


def test_no_record_of_a_process_that_lives_is_lost(stage: Stage) -> None:
    """Whatever is started after it under the same name, and of whatever specification: one and the
    same three times, and two in turn."""
    records, spec = stage.plan.records_dir, some(stage.plan.baseline.process)
    other = replace(spec, cwd="/tmp")
    for specs in ([spec] * 3, [spec, other, spec, other, spec]):
        shutil.rmtree(records, ignore_errors=True)
        started = [stage.sleeper() for _ in specs]
        for one, who in zip(specs, started, strict=True):
            process.write_record(records, "baseline", one, *who)
        assert {(one.pid, one.start) for one in licence.baselines(records)} == set(started)
        kill_now(started[-1])
        assert process.read_record(records, "baseline", spec) in started[:-1], "it is no stranger"


def test_every_baseline_of_an_earlier_site_file_that_holds_memory_is_named(stage: Stage) -> None:
    spec = some(stage.plan.baseline.process)
    older = [stage.sleeper("theirs") for _ in range(3)]
    for number, who in enumerate(older):
        before = replace(spec, cwd=f"/{number}")
        process.write_record(stage.plan.records_dir, "baseline", before, *who)
    assert stage.roll_back().serving, stage.lines
    noted = " ".join(line["detail"] for line in stage.lines)
    assert all(f"process {pid}, a baseline of an earlier site file" in noted for pid, _ in older)
    assert all(process.alive(*who) for who in older)


def test_the_script_knows_a_baseline_whose_record_was_put_aside(stage: Stage) -> None:
    """By its own site file, once the one that was recorded after it has ended; a version before
    put such a record aside without a pid in its name."""
    records, spec = stage.plan.records_dir, some(stage.plan.baseline.process)
    mine = stage.spawn(list(spec.argv), cookie="theirs")
    stage.until_it_is()
    for earlier in (False, True):
        other = stage.sleeper()
        process.write_record(records, "baseline", spec, *mine)
        process.write_record(records, "baseline", replace(spec, cwd="/tmp"), *other)
        if earlier:
            aside = records / f"baseline.{process.spec_sha(spec)}.{mine[0]}.json"
            aside.rename(records / f"baseline.{process.spec_sha(spec)}.json")
        kill_now(other)
        whole = write.render(stage.plan)
        ask = "BOOT=$(cat /proc/sys/kernel/random/boot_id); MARK=''; baseline_pid\n"
        file = stage.root / "asks.sh"
        file.write_text(whole[: whole.rindex('main "$@"')] + ask)
        done = subprocess.run(["sh", str(file)], capture_output=True, text=True, timeout=60)
        assert done.stdout == f"{mine[0]}\n", done.stderr
        shutil.rmtree(records)


@pytest.mark.parametrize("same", [True, False])
def test_another_program_that_serves_there_is_not_the_baseline(stage: Stage, same: bool) -> None:
    """The baseline died, and who has started what answers at its address is on no record."""
    program = STANDIN if same else stage.root / "ollama.py"
    if not same:
        shutil.copy(STANDIN, program)
    pid, start = stage.spawn([sys.executable, "-S", str(program), str(stage.port)], "theirs")
    until(lambda: health(stage.plan.baseline.url)[0] is Health.SERVING, "it serves")
    result = stage.roll_back()
    assert (result.serving, process.alive(pid, start)) == (same, True), result
    assert same or f": pid {pid}, {sys.executable} -S {program} …" in result.detail
    assert (Looker().look(stage.plan).word is Word.SERVING) is same
    done = run_script(stage)
    assert (done.returncode == 0) is same, done.stdout
    assert same or f"pid {pid}, {sys.executable}, holds its port: nothing" in done.stdout
    assert stage.baseline_process() is None, "nothing is started beside it"
    assert process.alive(pid, start)


def test_a_connection_that_is_kept_alive_between_two_requests_uses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "IDLE_MS", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        url = f"http://127.0.0.1:{address[1]}"
        with (
            socket.create_connection(address) as client, server.accept()[0] as answered,
            socket.create_connection(address) as other, server.accept()[0] as waits,
        ):  # fmt: skip
            for end, asked in ((client, answered), (other, waits)):
                end.sendall(b"ask")
                asked.recv(3)
            assert ports.lasting_clients(url) == 2

            def is_idle() -> bool:  # the kernel counts in steps of some milliseconds
                answered.sendall(b"an answer")
                client.recv(9)
                return ports.lasting_clients(url) == 1

            until(is_idle, "the answered one is idle")
            client.sendall(b"once more")
            assert ports.lasting_clients(url) == 2


def lingering(port: int) -> None:
    """Leave a connection of this port in TIME_WAIT, as a server that closes first does."""
    with socket.create_server(("127.0.0.1", port)) as server:
        client = socket.create_connection(("127.0.0.1", port))
        server.accept()[0].close()
        client.close()


def test_an_address_with_connections_that_linger_is_not_free(stage: Stage) -> None:
    assert not in_use(stage.port)
    lingering(stage.port)
    assert in_use(stage.port), "though nobody listens there"


def test_a_port_with_connections_of_ipv6_that_linger_is_in_use(stage: Stage) -> None:
    assert not in_use(stage.port)
    with socket.create_server(("::1", stage.port), family=socket.AF_INET6) as server:
        client = socket.create_connection(("::1", stage.port))
        server.accept()[0].close()
        client.close()
    assert in_use(stage.port)


def test_a_port_that_this_user_may_not_take_is_told_by_the_tables(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "not permitted")

    taken = free_port()
    lingering(taken)
    monkeypatch.setattr("console.host.ports.socket.socket.bind", denied)
    assert not in_use(stage.port)
    assert in_use(taken)


def finds_it_in_use(stage: Stage, until_free: str) -> None:
    """A baseline that says so at each start before a file exists, and counts its starts."""
    body = (
        f"echo tried >>{stage.root}/tries; if ! [ -e {until_free} ]; then "
        "echo 'OSError: [Errno 98] Address already in use' >&2; exit 1; fi; "
        f"exec {sys.executable} -S {STANDIN} {stage.port}"
    )
    stage.base(process=process.ProcessSpec(("sh", "-c", body)))


@pytest.mark.parametrize("way", ["ladder", "script"])
def test_an_address_that_lingers_is_waited_for(stage: Stage, way: str) -> None:
    """The engine does not set SO_REUSEADDR; nobody listens, and a minute later it can."""
    file, tries = stage.root / "free", stage.root / "tries"
    finds_it_in_use(stage, str(file))
    holder = socket.socket()
    holder.bind(("0.0.0.0", stage.port))

    def leave() -> None:
        until(tries.exists, "it was started")
        if way == "ladder":
            until(lambda: "it is started again when free" in str(stage.lines), "it has noticed")
        else:
            time.sleep(1.0)  # if it looks later, the address may just have become free: it starts
        file.touch()
        holder.close()

    leaver = threading.Thread(target=leave)
    leaver.start()
    if way == "ladder":
        assert stage.roll_back().serving, stage.lines
        assert not [line for line in stage.lines if "restarting" in line["detail"]]
    else:
        done = run_script(stage)
        assert done.returncode == 0, done.stdout
    leaver.join()


@pytest.mark.parametrize("way", ["ladder", "script"])
def test_an_address_in_use_that_is_not_the_baselines_is_not_waited_for(
    stage: Stage, way: str
) -> None:
    """Its port is free: the line is about another one, of metrics or of its workers."""
    finds_it_in_use(stage, "/nowhere")
    begun = time.monotonic()
    if way == "ladder":
        result = stage.roll_back()
        assert result.exit_code == 7
        words = result.detail
    else:
        done = run_script(stage)
        assert done.returncode == 7
        words = done.stdout.partition("By hand")[0]
    assert time.monotonic() - begun < 60.0
    assert "Address already in use" in words
    assert f"port {stage.port} is free: that is said of another port or socket" in words
    assert (stage.root / "tries").read_text().count("tried") == 2, "it may just have become free"
