"""What a step does when the world misbehaves: engines, children, secrets, approvals nobody sees,
patterns that would take years."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from console.common.spans import here
from console.config.playbook.inputs import InputModel, convert
from console.host import matching, process
from console.journal.events import StepSay
from console.journal.run_dir import RunDir
from console.runner.executors import command
from console.runner.executors.soak_monitor import CriticalLog
from tests.runner.e2e.sites import SIDE, UP, book, host_site
from tests.runner.scenes import restored
from tests.runner.whole.world import FIND
from tests.runner.world import LONGEST_S
from tests.runner.world import WorldBase as World

REPR = "import sys; print(repr(sys.argv[1:]))"
SECRET = "hf_Zw9-not-to-be-seen"
CANARIES = ("CANARYplainhf", "Can4ry pass", "CANARYmix", "CanaryShown", "-", "-")
FACES = ("show", "show --json", "logs", "report", "report --json")
KEPT_SUFFIXES = {".db", ".log", ".md", ".html", ".jsonl"}
SLOW, LINE = "(a+)+$", "a" * 60 + "b"
GRACE = ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.2), (signal.SIGKILL, 10.0))


@pytest.mark.parametrize("headless", [True, False])
def test_an_approval_that_expires_in_an_outage_rolls_back(world: World, headless: bool) -> None:
    ask = "id: ask, approval: {prompt: Go on?, expires: 200ms}"
    path = world.write("b.yaml", book(UP, ask, "id: z, note: reached"))
    if headless:
        assert world.go(path).code == 6
    else:
        world.detach(path)
    assert str(world.over().state) == "rolled_back", world.words
    assert world.at("ask").cause == "expired"
    restored(world)


def test_an_approval_that_expires_while_the_baseline_serves_waits_for_a_person(
    world: World,
) -> None:
    ask = "id: ask, approval: {prompt: Go on?, expires: 200ms}"
    path = world.write("b.yaml", book(SIDE, ask))
    world.detach(path)
    world.state("paused:approval_expired")
    assert world.tell("retry").code == 0
    world.until(lambda: world.at("ask").attempt == 2, "it asks again")
    world.state("paused:approval_expired")
    assert world.tell("abort").code == 0
    assert str(world.over().state) == "rolled_back"
    assert world.go(path).code == 5, "nobody is there, and nothing is down"


def test_what_never_serves_is_not_waited_for_and_says_why(world: World) -> None:
    done = world.go(world.write("b.yaml", book("id: up, service: {start: crash}")))
    step = world.at("up")
    assert (done.code, step.cause, step.lines[-1]) == (5, "not_ready", "last words"), done
    assert "ended before it was ready" in step.detail
    done = world.go(world.write("c.yaml", book("id: up, service: {start: garbage}")))
    assert (done.code, world.at("up").cause) == (5, "not_ready"), done
    assert "\x1b" not in done.out + done.err
    assert not world.listens(world.cand_url), "what was started is stopped at the end"


def test_the_line_that_explains_leads_and_the_exit_code_comes_after_it(world: World) -> None:
    said = "ggml_cuda: CUDA error: out of memory"
    stack = "; ".join(f"echo frame {number}" for number in range(40))
    text = book(f"id: build, run: [sh, -c, \"echo '{said}'; {stack}; exit 134\"]")
    assert world.go(world.write("b.yaml", text)).code == 5
    assert world.at("build").detail == f"{said}; ended by exit code 134"
    shown = world.console("show", world.run.id).out
    assert f"[exit_code] {said}; ended by exit code 134" in shown
    report = world.console("report", world.run.id).out
    assert f"{said}; ended by exit code 134" in report.partition("##")[0]
    assert "it said: frame" not in report


def test_a_timeout_ends_the_whole_group_however_deaf_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GRACE", GRACE)
    script = "trap '' INT TERM; sh -c 'sleep 601 & sleep 602' & touch deaf; "
    tree = f"id: tree, script: {json.dumps(script + 'while :; do sleep 0.1; done')}, timeout: 100h"
    world.detach(world.write("b.yaml", book(tree)))
    world.until((world.root / "deaf").exists, "it is deaf")
    world.machine.passed = 101 * 3600.0
    world.state("paused:step_failed")
    assert world.at("tree").cause == "timeout"
    assert process.by_cookie(world.run.id) == [], "a grandchild outlived the timeout"
    told = [event.body for event in world.events() if event.step == "tree"]
    said = [body.text for body in told if isinstance(body, StepSay)]
    stages = [f"stopping: {name}" for name in ("SIGINT", "SIGTERM", "SIGKILL")]
    assert [text for text in said if text in stages] == stages, "each rung of the stop is visible"


def test_argv_arrives_byte_for_byte(world: World) -> None:
    argvs = [
        ["$(touch boom)", "`id`", "a b", "", "*", "~", "$HOME", ";", "&&", ">x", "\\", "'", '"'],
        ["-rf", "--help", "--", "line one\nline two", "tab\there", "ünïcödé ✓", "%s%n", "{}"],
        ["$" + "{{ inputs.text }}", "--flag=$" + "{{ inputs.text }}"],
    ]
    text = "--x; $(id) `id` 'q' \"q\"\nnext  line"
    steps = [
        f"id: say{number}, run: {json.dumps([sys.executable, '-c', REPR, *argv])}"
        for number, argv in enumerate(argvs)
    ]
    path = world.write("b.yaml", book(*steps, inputs="text: {type: string, default: x}"))
    done = world.go(path, "--input", f"text={text}")
    assert done.code == 0, done
    for number, argv in enumerate(argvs):
        wanted = [a.replace("$" + "{{ inputs.text }}", text) for a in argv]
        assert world.run.attempt_log(f"say{number}", 1).read_text() == repr(wanted) + "\n"
    assert not (world.root / "boom").exists()


def test_inputs_reach_a_script_through_the_environment_alone(world: World) -> None:
    text = "$(touch boom); `touch boom`\n\"'"
    script = "id: say, script: 'printf %s \"$OMNI_INPUT_TEXT\" > got'"
    path = world.write("b.yaml", book(script, inputs="text: {type: string, default: x}"))
    assert world.go(path, "--input", f"text={text}").code == 0
    assert (world.root / "got").read_text() == text
    assert not (world.root / "boom").exists()
    inside = "id: say, script: 'echo $" + "{{ inputs.text }}'"
    path = world.write("c.yaml", book(inside, inputs="text: {type: string, default: x}"))
    assert world.go(path).code == 2


def test_a_secret_input_is_in_no_word_of_its_run(world: World) -> None:
    """Steps print what they were given, in every way that a shell has to put words together."""
    names = ("hf_token", "password", "token", "plain", "login_secret", "api_key")
    values = dict(zip(names, CANARIES, strict=True)) | {"login_secret": "true", "api_key": "12345"}
    echoes = "".join(f" {name}-$OMNI_INPUT_{name.upper()}" for name in names)
    text = book(
        f"id: say, script: 'echo said{echoes}; echo $OMNI_INPUT_TOKEN$OMNI_INPUT_HF_TOKEN'",
        "id: bad, script: 'echo $OMNI_INPUT_PASSWORD; exit 3'",
        inputs=", ".join(f"{name}: {{type: string, default: x}}" for name in names),
    )
    path = world.write("b.yaml", text)
    given = [word for pair in values.items() for word in ("--input", "{}={}".format(*pair))]
    done = world.go(path, *given)
    assert done.code == 5, done
    said = world.run.attempt_log("say", 1).read_text()
    assert f"plain-{CANARIES[3]} login_secret-true api_key-12345" in said, "no secrets"
    faces = [done, world.console("plan", str(path), *given)]
    faces += [world.console(*f"{words} {world.run.id}".split()) for words in FACES]
    shown = "".join(f"{face.out}{face.err}" for face in faces)
    files = [one for one in world.run.path.rglob("*") if one.suffix in KEPT_SUFFIXES]
    kept = b"".join(one.read_bytes() for one in files)
    for name in ("hf_token", "password", "token"):
        assert values[name] not in shown, name
        assert values[name].encode() not in kept, name
    assert "hf_token-*****" in said


def test_an_environment_reaches_commands_and_questions(world: World) -> None:
    """conda's own programs are found first, the file's variables are set, its secrets hidden."""
    home = world.root / "envs/kt"
    (home / "bin").mkdir(parents=True)
    (home / "bin/nvcc").write_text("#!/bin/sh\necho toolkit 13.1\n")
    (home / "bin/nvcc").chmod(0o755)
    (world.root / "vars").write_text(f"FROM_FILE=yes\nHF_TOKEN={SECRET}\n")
    within = "environment: {conda: envs/kt, file: vars}"
    script = "nvcc; echo home=$CUDA_HOME file=$FROM_FILE own=$OWN token=$HF_TOKEN"
    text = book(
        f"id: say, script: '{script}', env: {{OWN: mine}}, {within}",
        f"id: ask, check: {{output: [nvcc], matches: toolkit}}, {within}",
        f"id: skip, script: exit 1, unless: {{run: [nvcc]}}, {within}",
        "id: bad, script: nvcc, environment: {conda: envs/none}",
    )
    done = world.go(world.write("b.yaml", text))
    assert done.code == 5, done
    said = world.run.attempt_log("say", 1).read_text()
    assert said == f"toolkit 13.1\nhome={home} file=yes own=mine token=*****\n"
    assert str(world.at("ask").state) == "succeeded"
    assert str(world.at("skip").state) == "skipped"
    assert world.at("bad").cause == "start_error"
    assert f"{world.root}/envs/none" in world.at("bad").detail


def told(path: Path, words: list[bytes]) -> bool:
    """Whether a file holds one of them; one that is gone holds nothing."""
    try:
        return path.is_file() and any(word in path.read_bytes() for word in words)
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("secret", "code"), [(SECRET, 0), (f"{SECRET}\nsecond-{SECRET[::-1]}", 3)])
def test_a_secret_is_nowhere(world: World, secret: str, code: int) -> None:
    go = world.root / "go"
    script = (
        'echo token=$TOKEN; printf \'%s\' "$TOKEN" >&2; echo; echo "$TOKEN$TOKEN"; '
        f"until test -e {go}; do sleep 0.02; done; exit {code}"
    )
    step = f"id: use, script: {json.dumps(script)}, env: {{TOKEN: '$" + "{{ inputs.token }}'}"
    text = book(step, inputs="token: {type: secret, from: {env: OMNI_TEST_TOKEN}}")
    follower = world.start(
        "run", str(world.write("b.yaml", text)), "--json", OMNI_TEST_TOKEN=secret
    )
    world.until(lambda: world.runs, "the run begins")
    world.step("use", "running")
    world.until(lambda: "token=" in world.console("logs", "use").out, "the step has said it")
    words = [word.encode() for word in secret.split("\n")]
    for pid, _ in world.mine():
        assert not told(Path(f"/proc/{pid}/cmdline"), words)
    go.touch()
    out, err = follower.communicate(timeout=LONGEST_S)
    assert follower.returncode == (0 if code == 0 else 5), err
    assert not any(word.decode() in out + err for word in words)
    world.over()
    assert not [path for path in world.root.rglob("*") if told(path, words)]
    assert "token=*****" in world.console("logs", "use").out


def test_a_secret_that_is_not_there_fails_the_step_and_not_later(world: World) -> None:
    step = "id: use, script: 'echo hi', env: {TOKEN: '$" + "{{ inputs.token }}'}"
    text = book(step, inputs="token: {type: secret, from: {env: OMNI_TEST_TOKEN}}")
    done = world.go(world.write("b.yaml", text))
    assert (done.code, world.at("use").cause) == (5, "precondition"), done
    refused = world.go(world.write("b.yaml", text), "--input", f"token={SECRET}")
    assert refused.code == 2
    assert SECRET not in refused.out + refused.err


# -- a pattern that would take years ---------------------------------------------------------------


@pytest.fixture
def slow_world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """One that looks for patterns as the program does, in a process that the kernel ends."""
    monkeypatch.setattr(matching, "find", FIND)
    monkeypatch.setattr(matching, "CPU_S", 1)
    return world


@pytest.mark.parametrize(
    "step",
    [
        {"run": ["echo", LINE], "outputs": {"n": {"pattern": SLOW}}},
        {"check": {"output": ["echo", LINE], "matches": SLOW}},
        {"check": {"output": ["echo", LINE], "not_matches": SLOW}},
    ],
    ids=["outputs", "matches", "not_matches"],
)
def test_its_step_fails_and_the_baseline_is_back(slow_world: World, step: dict[str, Any]) -> None:
    world = slow_world
    slow = json.dumps({"id": "slow", "on_failure": "rollback", **step})[1:-1]
    done = world.go(world.write("b.yaml", book(UP, slow)))
    assert (done.code, str(world.over().state)) == (6, "rolled_back"), done
    assert world.at("slow").cause == "output_invalid"
    assert world.serves()


def test_an_abort_goes_through_meanwhile(slow_world: World) -> None:
    world = slow_world
    slow = json.dumps({"id": "slow", "run": ["echo", LINE], "outputs": {"n": {"pattern": SLOW}}})
    world.detach(world.write("b.yaml", book(UP, slow[1:-1])))
    world.until(lambda: str(world.at("slow").state) == "running", "it is looked for")
    assert world.tell("abort").code == 0
    assert str(world.over().state) == "rolled_back"


def test_a_log_that_cannot_be_judged_is_none_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "CPU_S", 1)
    path = tmp_path / "log"
    path.write_text("")
    log = CriticalLog(path, SLOW)
    path.write_text(f"{LINE}\n")
    assert log.read() is None
    assert log.close() == ()


def test_a_typed_value_is_refused() -> None:
    asked = InputModel.model_validate({"type": "string", "pattern": SLOW})
    with pytest.raises(ValueError, match="too long"):
        convert(asked, LINE, Path("/"))


def test_both_ways_find_the_same() -> None:
    for pattern, text, how in (
        (r"rate: ([0-9]+)", "rate: 1\nrate: 22", {}),
        (r"^b$", "a\nb", {"lines": True}),
        (r"(?i)A+", "aa", {"whole": True}),
        (r"a|(b)", "a", {}),
        (r"x", "\udcff\x00", {}),
    ):
        assert matching.find(pattern, [text], **how) == here(pattern, [text], **how)


# -- what playbook and site say is secret is executed, and shown or kept nowhere else --------------

SEALED = ("playbook.yaml", "site.yaml", "inputs.json", "rollback", "attempts")
"""Of a run's directory: what is executed, or loaded again. Of attempts only the scripts."""


def secretive(echo: list[str], secrets: list[str]) -> str:
    """A playbook with a secret in every position in which one is written."""
    flag, equals, header, url, variable, build, script, image, given, check, unless, say = secrets
    run = [
        *echo, "--api-key", flag, f"--hf-token={equals}", "-H", f"Authorization: Bearer {header}",
        f"https://me:{url}@127.0.0.1/x", "${{ inputs.word }}", "--token", "${{ inputs.word }}",
    ]  # fmt: skip
    made = {"context": ".", "tag": "t:1", "args": {"K_TOKEN": build}}
    again = {"file": "/nowhere"} if not unless else {"run": ["false", "--secret", unless]}
    steps = [
        {"id": "say", "run": run, "env": {"MY_TOKEN": variable}, "unless": again},
        {"id": "make", "when": False, "build": made},
        {"id": "text", "script": f'curl -sH "Authorization: Bearer {script}" x || echo {script}'},
        {"id": "look", "check": {"output": [*echo, "--password", check], "matches": "argv"}},
        {"id": "note", "note": f"export API_KEY={say} first"},
        {"id": "up", "service": {"start": "cand"}},
        {"id": "fails", "run": ["sh", "-c", f"echo api_key={image}; exit 3"]},
    ]  # fmt: skip
    return json.dumps({
        "schema": "omni.playbook/v1", "name": "trial", "title": "The trial",
        "inputs": {"word": {"type": "string", "default": given}},
        "phases": [{"title": f"With --token {flag}", "steps": steps}],
    }, indent=1)  # fmt: skip


def holders(root: Path, secrets: list[str]) -> set[str]:
    """Files below `root` in which one of them is."""
    found = set()
    for path in root.rglob("*"):
        if path.is_file() and any(one.encode() in path.read_bytes() for one in secrets):
            found.add(str(path.relative_to(root)))
    return found


def sealed(run: RunDir, root: Path, name: str) -> bool:
    path = root / name
    if not path.is_relative_to(run.path):
        return False
    first, *rest = path.relative_to(run.path).parts
    return first in SEALED and (first != "attempts" or rest[-1].endswith(".sh"))


def test_no_secret_is_shown_or_kept(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    secrets = [f"Zw9{number:02d}x-Pl4nted" for number in range(13)]
    seen = tmp_path_factory.mktemp("seen") / "argv"
    echo = [sys.executable, "-c", f"import sys; open({str(seen)!r}, 'a').write(repr(sys.argv)); "
            "print('argv', sys.argv)"]  # fmt: skip
    site = json.loads(host_site(world))
    site["services"]["cand"]["process"]["argv"] += ["--api-key", secrets[12]]
    world.site.write_text(json.dumps(site))
    written = world.write("b.yaml", secretive(echo, secrets[:12]))
    given = (str(world.site), str(written))
    done = world.go(written, "--override", "known-blocker=it is a test")
    said = [done.out + done.err]
    assert done.code == 5, done
    assert all(one in seen.read_text() for one in (*secrets[:4], secrets[8], secrets[9]))
    report = world.root / "report.md"
    for args in (
        ("plan", given[1]), ("plan", given[1], "--json"), ("lint", given[1], "--json"), ("runs",),
        ("show",), ("show", "--json"), ("report",), ("report", "--json"), ("logs", "say"),
        ("logs", "fails"), ("logs", "cand"), ("report", "--to", str(report)),
        ("rollback",), ("rollback", "--json"), ("attach",),
    ):  # fmt: skip
        outcome = world.console(*args)
        said.append(outcome.out + outcome.err)
    assert [(one, text) for text in said for one in secrets if one in text] == []
    own = {str(Path(path).relative_to(world.root)) for path in given}
    found = holders(world.root, secrets) - own
    assert [name for name in found if not sealed(world.run, world.root, name)] == []
    assert [n for n in found if (world.root / n).stat().st_mode & 0o077] == []
