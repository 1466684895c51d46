"""rollback.sh under dash: the same rollback with sh, coreutils, sed and curl only."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console.host import licence, process
from console.host.process import ProcessSpec
from console.recovery.rollback import evidence, live, progress
from console.recovery.rollback.script import write
from console.recovery.rollback.script.stops import STOPS
from console.recovery.rollback.script.strangers import STRANGERS
from console.recovery.rollback.script.template import BODY
from console.recovery.rollback.sealed_plan import SITE, Candidate, EngineAddress
from console.runtime.probe import Health
from console.runtime.spec import OWNER_LABEL, role_label
from tests.children import SLEEP
from tests.common.test_argv import FLAGS
from tests.ports import free_port
from tests.rollback.conftest import (
    DASH,
    STANDIN,
    Stage,
    begin_script,
    run_script,
    standin,
)  # fmt: skip
from tests.testbed.plugin import lacking
from tests.waiting import until

pytestmark = pytest.mark.skipif(DASH is None, reason="needs dash")

AWAY = EngineAddress("/nowhere", "unix:///nowhere")
DOCKER = r"""
# In the place of the docker command: `ps`, `inspect` and `stop` of containers in a table.
import re, sys
rows, said, words = ROWS, "SAID", sys.argv[1:]
with open(said, "a+") as file:
    file.seek(0)
    gone = file.read().split()
if words[0] == "stop":
    with open(said, "a") as file:  # several are told at once
        print(words[-1], file=file)
wanted = [word[6:].split("=", 1) for word in words if word.startswith("label=")]
for one, labels in rows.items():
    known = {**labels, ".Id": one, ".Name": "/c-" + one, ".State.Running": "true"}
    if words[0] == "ps" and one not in gone and all(labels.get(k) == v for k, v in wanted):
        print(one)
    if words[0] == "inspect" and one not in gone and one == words[-1]:
        form = r'{{(?:index .Config.Labels "(.*?)"|(.*?))}}'
        print(re.sub(form, lambda m: known.get(m[1] or m[2], ""), words[words.index("-f") + 1]))
"""


@pytest.mark.parametrize("serves", [True, False])
def test_the_run_is_known_as_rolled_back(stage: Stage, serves: bool) -> None:
    path = stage.plan.rollback_dir / progress.PROGRESS_FILE
    path.write_text('{"torn": ')
    stage.seal(site_name="ws")
    if not serves:
        stage.base(process=ProcessSpec(("/nowhere/server",)), ready_timeout_s=1.0)
    done = run_script(stage)
    assert done.returncode == (0 if serves else 7), done.stdout
    assert ("curl -q --noproxy '*' -sS" in done.stdout) is not serves, "what to type"
    [line], _ = progress.read_lines(path)
    assert (line["rung"], line["state"]) == ("done", "ok" if serves else "failed")
    assert progress.result_of(line).serving is serves
    assert line["trigger"].startswith(f"{progress.SCRIPT}-")
    known = evidence.state(stage.plan)
    assert known.up is serves
    assert (known.proven_by == "rollback.sh") is serves
    assert ("not proven since rollback.sh failed at " in known.doubt) is not serves
    if serves:
        running = stage.running()
        assert run_script(stage).returncode == 0
        assert stage.running() == running, "a second time changes nothing"


def test_group_without_its_leader_is_known_by_start_times(stage: Stage) -> None:
    """The number of a process group that is gone may belong to another group by now."""
    body = "trap '' TERM; (trap '' TERM; echo up; sleep 600; sleep 600) & exit 0"
    run = stage.plan.run_id
    mine, other = (stage.spawn(["sh", "-c", body], cookie) for cookie in (run, "no"))
    until(lambda: (stage.root / "log").read_text().count("up") == 2)
    until(lambda: not process.alive(*mine) and not process.alive(*other), "it is dead")
    stage.seal(grace_s=1.0)
    stage.record("process", "cand", mine)
    later = min(s.start for s in process.members(*other, cookie="no")) + 1000
    stage.record("process", "reused", (other[0], later))
    done = run_script(stage)
    assert done.returncode == 0, done.stdout
    assert process.members(*mine, cookie=run) == []
    assert process.members(*other, cookie="no") != []


def test_argv_and_paths_are_quoted_safely(stage: Stage) -> None:
    nasty = stage.root / "a $(touch owned) 'b' \"c\" `d`;\n e"
    nasty.mkdir()
    server = nasty / "stand-in.py"
    shutil.copy(STANDIN, server)
    port = free_port()
    argv = (sys.executable, "-S", str(server), str(port), "$HOME", "a b", "", "*", "--")
    spec = ProcessSpec(argv, (("ODD", "x'y $z\n"),), str(nasty))
    base = replace(stage.plan.baseline, process=spec, url=f"http://127.0.0.1:{port}")
    stage.seal(baseline=replace(base, log=str(nasty / "log"), name="base line"))
    done = run_script(stage)
    assert done.returncode == 0, done.stdout
    running = stage.running()
    sent = Path(f"/proc/{running[0]}/cmdline").read_bytes().split(b"\0")[:-1]
    assert sent == [os.fsencode(word) for word in argv]
    environ = Path(f"/proc/{running[0]}/environ").read_bytes().split(b"\0")
    assert b"ODD=x'y $z\n" in environ
    assert b"OMNI_RUN=baseline" in environ
    assert not list(stage.root.rglob("owned"))


def without_curl(stage: Stage, client: str) -> Path:
    """A directory for PATH with what the script needs, and with no client or only this one."""
    tools = stage.root / "bin"
    tools.mkdir()
    needs = (
        "sh sed cut tr cat date sleep sort timeout mkdir env nohup printf head tail id readlink ls"
    )
    for name in [*needs.split(), *([client] if client else [])]:
        found = sys.executable if name == "python3" else shutil.which(name)
        if found is None:
            lacking(f"needs {name}")
        (tools / name).symlink_to(os.path.realpath(found))
    return tools


@pytest.mark.parametrize("client", ["python3", "wget", ""])
def test_without_curl(stage: Stage, client: str) -> None:
    done = run_script(stage, str(without_curl(stage, client)))
    assert done.returncode == (0 if client else 7), done.stdout


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_settings_of_a_client_do_not_change_the_proof(stage: Stage, client: str) -> None:
    (stage.root / ".curlrc").write_text("head\n")
    (stage.root / ".wgetrc").write_text("spider = on\n")
    done = run_script(stage, str(without_curl(stage, client)))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("client", ["curl", "python3", "wget"])
def test_a_client_that_never_ends_does_not_keep_the_baseline_down(
    stage: Stage, client: str
) -> None:
    """A server that sends a byte a second can hold up a client with a limit for each read only."""
    tools = without_curl(stage, client)
    stage.tool(client, "exec sleep 600")
    stage.tool("timeout", f'shift\nexec {shutil.which("timeout")} 0.1 "$@"')
    stage.base(ready_timeout_s=1.0)
    done = run_script(stage, str(tools))
    assert done.returncode == 7, done.stdout
    assert stage.baseline_process() is not None


@pytest.mark.parametrize("jump", [86400, -86400])
def test_the_wall_clock_counts_for_no_limit(stage: Stage, jump: int) -> None:
    """Once the script has looked at the time, the clock is set: while the baseline loads, and
    while one never answers."""
    moved, date = stage.root / "moved", shutil.which("date")
    body = f'[ "$1" = +%s ] || exec {date} "$@"\nnow=$({date} +%s)\n'
    body += f"if [ -e {moved} ]; then now=$((now + {jump})); fi\n: >{moved}; echo $now"
    if jump > 0:
        stage.base(process=standin(stage.port, "--loading", "3"))
    else:
        stage.base(process=ProcessSpec(SLEEP), ready_timeout_s=1.0)
    done = run_script(stage, stage.tool("date", body))
    assert done.returncode == (0 if jump > 0 else 7), done.stdout


def test_a_name_that_the_kernel_cut_inside_a_letter_hides_no_process(stage: Stage) -> None:
    """The kernel keeps 15 bytes of a program's name; this one's letters have two bytes each."""
    names = {"python": sys.executable, "sleep": shutil.which("sleep")}
    for name, program in names.items():
        (stage.root / name).mkdir()
        (stage.root / name / "кандидат").symlink_to(os.path.realpath(str(program)))
    candidate = stage.spawn([f"{stage.root}/sleep/кандидат", "600"], cookie="no")
    comm = Path(f"/proc/{candidate[0]}/comm")
    until(lambda: comm.read_bytes() == "кандидат".encode()[:15] + b"\n")
    stage.record("process", "cand", candidate)
    server = standin(stage.port, "--loading", "3")
    stage.base(process=ProcessSpec((f"{stage.root}/python/кандидат", *server.argv[1:])))
    loads = stage.start_baseline()
    stage.until_it_is(Health.LOADING)
    done = run_script(stage, LC_ALL="C.UTF-8")
    assert done.returncode == 0, done.stdout
    assert not process.alive(*candidate)
    assert stage.baseline_process() == loads


def test_an_answer_with_bytes_that_are_no_letters_is_a_proof(stage: Stage) -> None:
    body = 'case "$*" in *chat*) printf \'{"text": "\\377", "completion_tokens": 2}\' ;;'
    path = stage.tool("curl", f"{body}\n*) printf 200 ;; esac")
    stage.start_baseline()
    stage.until_it_is()
    done = run_script(stage, path, LC_ALL="C.UTF-8")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("theirs", [{}, {"LC_ALL": "C.UTF-8", "QUOTING_STYLE": "c"}])
def test_the_baseline_gets_the_callers_locale(stage: Stage, theirs: dict[str, str]) -> None:
    assert run_script(stage, **theirs).returncode == 0
    running = stage.running()
    words = Path(f"/proc/{running[0]}/environ").read_text().split("\0")
    have = dict(word.split("=", 1) for word in words if word)
    assert {name: have[name] for name in ("LC_ALL", "QUOTING_STYLE") if name in have} == theirs


@pytest.mark.parametrize("candidate", [False, True])
def test_an_answer_of_nobody_who_is_seen_counts_only_where_no_candidate_is_left(
    stage: Stage, candidate: bool
) -> None:
    """A baseline with capabilities of its own lets nobody look at its sockets."""
    path = stage.tool("ls", "exit 0")
    stage.tool("docker", "exit 1")
    if candidate:
        stage.seal(engine=AWAY, candidates=(Candidate("cand"),))
    stage.base(ready_timeout_s=1.0)
    stage.start_baseline()
    stage.until_it_is()
    done = run_script(stage, path)
    assert done.returncode == (7 if candidate else 0), done.stdout


def test_an_answer_beside_a_candidate_that_may_still_run_is_no_proof(stage: Stage) -> None:
    """The engine fails, and what answers on the baseline's port may be a candidate."""
    path = stage.tool("docker", "exit 1")
    stage.spawn(list(standin(stage.port).argv), cookie="no")
    stage.seal(engine=AWAY, candidates=(Candidate("cand"),))
    stage.until_it_is()
    done = run_script(stage, path)
    assert done.returncode == 7, done.stdout


@pytest.mark.parametrize("known", ["nothing", "the plan", "the record", "another boot's process"])
def test_an_engine_that_is_away_leaves_a_doubt_only_where_a_container_is_known(
    stage: Stage, known: str
) -> None:
    path = stage.tool("docker", "echo Cannot connect to the Docker daemon >&2; exit 1")
    stage.seal(engine=AWAY, candidates=(Candidate("cand", kind="process"),))
    if known == "the plan":
        stage.seal(candidates=(Candidate("cand"),))
    if known == "the record":
        live.append(stage.live, live.Live("container", "cand", container="a" * 64))
    if known == "another boot's process":
        stage.record("process", "cand", (1, 1))
    done = run_script(stage, path)
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stdout, "that is no word of an end with 0"
    assert "Cannot connect" not in done.stdout
    doubt = known in ("the plan", "the record")
    assert ("baseline serves; a candidate may still run beside it" in done.stdout) is doubt
    told = done.stdout.count("no container engine answers; no candidate container is on record")
    assert told == (0 if doubt else 1), done.stdout


def test_a_baseline_that_was_taken_over_is_known_beside_a_candidate(stage: Stage) -> None:
    """It was started by hand, so it leads neither its session nor its process group."""
    file = stage.root / "pid"
    words = shlex.join(standin(stage.port).argv)
    stage.spawn(["sh", "-c", f"{words} & echo $! >{file}; wait"], cookie="no")
    stage.until_it_is()
    pid = int(file.read_text())
    start, spec = process.start_time(pid), stage.plan.baseline.process
    assert start is not None
    assert spec is not None
    process.write_record(stage.plan.records_dir, "baseline", spec, pid, start)
    stage.seal(engine=AWAY)
    done = run_script(stage, stage.tool("docker", "exit 1"))
    assert done.returncode == 0, done.stdout
    assert process.alive(pid, start), done.stdout


@pytest.mark.parametrize("uid", [0, 1234])
def test_containers_of_another_site_or_user_are_left_alone(stage: Stage, uid: int) -> None:
    """The rule is that of the rollback procedure: root ends those of every user on its site."""
    me, other, docker = os.getuid(), os.getuid() + 1, stage.root / "docker.py"
    owners = {
        "unmarked": "", "mine": f"{me}:mine", "away": f"{me}:another", "theirs": f"{other}:mine",
        "far": f"{other}:another", "odd": "mine", "recorded": f"{other}:another",
    }  # fmt: skip
    rows = {one: {role_label(): "candidate", OWNER_LABEL: owner} for one, owner in owners.items()}
    del rows["unmarked"][OWNER_LABEL]
    docker.write_text(DOCKER.replace("ROWS", repr(rows)).replace("SAID", str(stage.root / "said")))
    stage.tool("docker", f'exec {sys.executable} -S {docker} "$@"')
    path = stage.tool("id", f"echo {uid}")
    live.append(stage.live, live.Live("container", "cand", container="recorded"))
    stage.seal(engine=AWAY, site_name="mine")
    done = run_script(stage, path)
    assert done.returncode == 0, done.stdout
    assert "may still run" not in done.stdout, "what is not ours does not count"
    ours = {"unmarked", "mine", "recorded", *(["theirs"] if uid == 0 else [])}
    assert set((stage.root / "said").read_text().split()) == ours


@pytest.mark.parametrize("whose", ["its own", "a stranger's"])
def test_in_the_hosts_network_only_its_own_processes_are_the_baseline(
    stage: Stage, whose: str
) -> None:
    """A stand-in for sed says which process is in the container, as the kernel would."""
    listens, identity = stage.spawn(list(standin(stage.port).argv), cookie="no"), "a" * 64
    inside = listens if whose == "its own" else stage.sleeper("no")
    docker = 'case "$*" in *.State.Running*) echo "true false false 7 now" ;;\n'
    stage.tool("docker", f'{docker}*NetworkMode*) echo "host {identity}" ;; esac')
    sed = f'case "$*" in */{identity}/F*) echo /proc/{inside[0]}/cgroup ;;\n'
    path = stage.tool("sed", f'{sed}*) exec {shutil.which("sed")} "$@" ;; esac')
    stage.until_it_is()
    stage.base(kind="container", container_id=identity, ready_timeout_s=1.0)
    done = run_script(stage, path)
    assert done.returncode == (0 if whose == "its own" else 7), done.stdout


def test_no_container_of_the_hosts_network_is_started_beside_a_stranger(stage: Stage) -> None:
    """The engine would let it load its model; it could not answer where somebody else does."""
    stranger, identity = stage.spawn(list(standin(stage.port).argv), cookie="no"), "a" * 64
    started = stage.root / "started"
    docker = 'case "$*" in *.State.Running*) echo "false false false 0 then" ;;\n'
    docker += f"*NetworkMode*) echo host ;; start*) : >{started} ;; esac"
    path = stage.tool("docker", docker)
    stage.until_it_is()
    stage.base(kind="container", container_id=identity, ready_timeout_s=1.0)
    done = run_script(stage, path)
    assert done.returncode == 7
    assert f"pid {stranger[0]}, {sys.executable}, holds its port: nothing is started" in done.stdout
    assert not started.exists()
    assert process.alive(*stranger)


def test_one_process_that_ends_early_is_not_the_end(stage: Stage) -> None:
    """A shell ends at once where it cannot fork; here a tool kills it, once."""
    once = stage.root / "once"
    body = f'if [ ! -e {once} ]; then : >{once}; kill -s KILL "$PPID"; fi\nexit 0'
    done = run_script(stage, stage.tool("flock", body))
    assert once.exists()
    assert done.returncode == 0, done.stdout


def test_without_a_process_to_be_had_it_says_what_to_do_by_hand(stage: Stage) -> None:
    """No fork works: for root, which no limit holds, the script runs as a user of its own."""
    path, user = stage.plan.rollback_dir / progress.PROGRESS_FILE, None
    if os.getuid() == 0:
        user = 1_000_000 + os.getpid()
        os.chown(path.parent, user, user)
    done = run_script(stage, limits={resource.RLIMIT_NPROC: 1}, user=user)
    assert done.returncode == 7, done.stdout
    assert "curl -q --noproxy '*' -sS" in done.stdout
    [line], _ = progress.read_lines(path)
    assert (line["rung"], line["state"]) == ("done", "failed")
    assert abs(line["at"] - time.time()) < 60


@pytest.mark.parametrize("in_its_place", [os.mkdir, os.mkfifo])
def test_a_lock_and_a_log_that_cannot_be_opened_change_nothing(
    stage: Stage, in_its_place: Callable[[str], None]
) -> None:
    (stage.plan.rollback_dir / "lock").mkdir()
    in_its_place(stage.plan.baseline.log)
    done = run_script(stage)
    assert done.returncode == 0, done.stdout


def test_a_limit_that_lets_no_file_grow_costs_the_records_only(stage: Stage) -> None:
    quiet = ("sh", "-c", 'exec "$@" >/dev/null', "", *standin(stage.port).argv)
    stage.base(process=ProcessSpec(quiet))
    done = run_script(stage, limits={resource.RLIMIT_FSIZE: 0})
    found = process.known(stage.plan.records_dir, "baseline", ProcessSpec(quiet), "baseline")
    stage.groups += [found] if found else []
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_it_has_to_be_asked_twice_to_leave(stage: Stage, number: int, times: int) -> None:
    """The whole group of the terminal is asked: the shell, its children, and their tools."""
    candidate = stage.up("trap '' TERM; echo up; while :; do sleep 1; done")
    stage.record("process", "cand", candidate)
    with begin_script(stage) as script:
        assert script.stdout is not None
        said = ""
        for word in ["ending pid", "goes on"][:times]:
            while word not in said:
                line = script.stdout.readline()
                assert line, said
                said += line
            os.killpg(script.pid, number)
        said += script.communicate(timeout=120)[0]
    assert script.returncode == (0 if times == 1 else 7), said
    assert "the rollback goes on" in said
    assert ("curl -q --noproxy '*' -sS" in said) is (times == 2), said
    assert (stage.baseline_process() is not None) is (times == 1)
    [line], _ = progress.read_lines(stage.plan.rollback_dir / progress.PROGRESS_FILE)
    assert line["state"] == ("ok" if times == 1 else "failed")


def test_a_zombie_that_is_reaped_while_it_is_looked_at_is_not_alive(tmp_path: Path) -> None:
    """Under load its parent takes seconds to do so; the first reading tells of it, the next not."""
    zombie = "Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0"
    once = f'stat_of() {{ [ ! -e "{tmp_path}/seen" ] || return 0; : >"{tmp_path}/seen"; '
    body = STOPS + once + f'echo "{zombie}"; }}\nalive $$ 4711 && echo alive; exit 0\n'
    said = subprocess.run(["sh", "-c", body], capture_output=True, text=True, check=True).stdout
    assert said == ""


def in_shell(body: str) -> str:
    """What these commands print behind the functions of the script that end processes."""
    words = [str(DASH), "-uc", f"GRACE_S=1; {STOPS}\n{body}"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_signal_reaches_the_process_that_was_meant_and_no_other(stage: Stage) -> None:
    pid, start = stage.sleeper("theirs")
    assert in_shell(f"signal_same KILL {pid} {start - 1} || echo no") == "no\n"
    assert in_shell(f"signal_same KILL 4194305 {start} || echo no") == "no\n", "there is none"
    assert process.alive(pid, start)
    assert in_shell(f"signal_same KILL {pid} {start} && echo yes") == "yes\n"
    until(lambda: not process.alive(pid, start), "it is dead")


def test_a_pid_of_a_server_s_group_that_is_used_again_is_not_hit(stage: Stage) -> None:
    """Between the look at the group and the signal, a member ends and a stranger gets its pid."""
    leader, beside, stranger = (stage.sleeper("theirs") for _ in range(3))
    looks = f"echo {stranger[0]} {stranger[1] - 1}; echo {leader[0]} {leader[1]}"
    body = f"members_of() {{ {looks}; echo {beside[0]} {beside[1]}; }}; ports_of() {{ echo 1; }}\n"
    body += f'is_beside() {{ [ "$1" = {beside[0]} ]; }}; program() {{ :; }}\n'
    in_shell(f"{body}end_server {leader[0]} {leader[1]} 1")
    assert process.alive(*beside)
    assert process.alive(*stranger)
    assert not process.alive(*leader)


def test_a_group_whose_number_is_another_s_by_now_is_not_hit(stage: Stage) -> None:
    """The server and its whole group ended while the script looked for what is beside it."""
    stranger = stage.sleeper("theirs")
    body = 'members_of() { echo 1 1; echo "$1 $(start_of "$1")"; }; program() { :; }\n'
    body += 'is_beside() { [ "$1" = 1 ]; }; ports_of() { echo 1; }\n'
    in_shell(f"{body}end_server {stranger[0]} {stranger[1] - 1} 1")
    in_shell(f"end_group {stranger[0]} {stranger[1] - 1} 1 stop it")
    assert process.alive(*stranger)


def test_a_look_at_a_group_leaves_the_place_of_the_evidence_as_it_is(stage: Stage) -> None:
    pid, start = stage.sleeper("theirs")
    said = in_shell(f"SEEN=/place; end_group {pid} {start} 1 start 'the baseline'; echo $SEEN")
    assert said.splitlines()[-1] == "/place"


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["python3", "-S", "a.py", "b.py"], "a.py"),
        (["/usr/bin/python3.11", "-m", "vllm.entrypoints", "--port", "1"], "vllm.entrypoints"),
        (["python3", "-c", "\nimport os\n-x", "a.py"], ""),
        (["python3", "", "-u", "a b.py"], "a b.py"),
        (["llama-server", "a.py"], ""),
        (["VLLM::EngineCore"], ""),
    ],
)
def test_a_program_is_told_apart_as_the_licence_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], script: str
) -> None:
    monkeypatch.setattr(process, "argv", lambda pid: tuple(filter(None, words)))
    assert licence._program(os.getpid())[1] == script
    shown = tmp_path / "cmdline"
    shown.write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
    assert in_shell(f'script_in "{shown}"; exit 0').strip() == script


@pytest.mark.parametrize(("spec", "argv", "other"), FLAGS)
def test_other_flags_are_known_as_the_console_knows_them(
    stage: Stage, tmp_path: Path, spec: str, argv: str, other: bool
) -> None:
    stage.base(process=ProcessSpec(tuple(spec.split())))
    values = "; ".join(
        f"{k}={shlex.quote(v)}" for k, v in write._known_by(stage.plan.baseline).items()
    )
    shown = tmp_path / "cmdline"
    shown.write_bytes(b"".join(os.fsencode(word) + b"\0" for word in argv.split()))
    body = STRANGERS.replace("/proc/$1/cmdline", str(shown))
    said = in_shell(f"{values}\n{body}\nif has_other_flags 1; then echo other; fi; exit 0")
    assert said == ("other\n" if other else "")


@pytest.mark.parametrize("port", ["", "1"])
def test_compose_starts_nothing_beside_its_one_off(stage: Stage, port: str) -> None:
    """Its container has the labels of the service, and its port. At another port it is no
    hindrance."""
    made = stage.root / "made"
    path = stage.tool("docker", f"""case "$1 $*" in
      ps*oneoff=True*service=llm*project=lab*) echo 0ff ;;
      ps*) ;;
      inspect*Ports*0ff) echo "/lab-llm-run-1 8080/tcp/127.0.0.1/{port or stage.port} " ;;
      compose*) touch "{made}"; exit 1 ;;
      *) exit 1 ;;
    esac""")  # fmt: skip
    compose = ("docker", "compose", "-f", "/c.yaml", "-p", "lab", "up", "-d", "llm")
    stage.base(kind="container", process=None, container_name="llm-1", compose_argv=compose)
    done = run_script(stage, path)
    assert done.returncode == 7
    named = "container lab-llm-run-1 has its port: it is of docker compose run"
    assert (named in done.stdout) is not bool(port), done.stdout
    assert made.exists() is bool(port)
    assert "docker start" not in done.stdout.partition("By hand:")[2] or port


@pytest.mark.parametrize("changed", [False, True])
def test_a_site_file_that_has_changed_since_is_said(stage: Stage, changed: bool) -> None:
    """As after a promotion: the script of an older run brings back the baseline of then."""
    site = stage.root / "site.yaml"
    site.write_bytes(b"\xef\xbb\xbfname: ws\n" + b"# promoted\n" * changed)
    Path(stage.plan.run_dir, SITE).write_text("name: ws\n")
    stage.seal(site_path=str(site))
    done = run_script(stage)
    assert done.returncode == 0
    said = f"the site file {site} has changed since this was sealed"
    assert (said in done.stdout) is changed, done.stdout
    assert ("serves, as the site file said when this was sealed" in done.stdout) is changed


def test_torn_script_does_nothing(stage: Stage) -> None:
    made = write.write(stage.plan, stage.plan.rollback_dir)
    text = made.read_text()
    made.write_text(text[: text.rindex('main "$@"')])
    argv = [str(DASH), str(made)]
    assert subprocess.check_output(argv, stderr=subprocess.STDOUT) == b""
    assert stage.baseline_process() is None


def test_removes_nothing() -> None:
    assert not {"rm", "prune"} & set(BODY.split())


def test_no_value_has_a_name_that_a_shell_sets_itself(stage: Stage) -> None:
    """In zsh LINES is a number, and bash sets it anew after each command on a terminal."""
    text = write.render(stage.plan)
    for name in ("LINES", "COLUMNS", "RANDOM", "SECONDS", "UID", "HOST"):
        assert f"\n{name}=" not in text
