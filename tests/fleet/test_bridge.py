"""The far side alone: frames, pages of a journal, verbs and the rollback."""

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict

import pytest

from console.config.site.site import load_site
from console.fleet import bridge as far
from console.fleet.bridge import Bridge
from console.fleet.protocol import HELLO, MAX_FRAME, SEVERAL, VERSION, BridgeError, Lines
from console.fleet.starts import Wanted
from console.journal.store import Journal
from console.recovery.rollback.sealed_plan import site_script
from console.runner import control
from console.runner.unattended import boot
from tests.fleet.far import BOOK, Far, Json, documented, new_run, plan

# -- frames ----------------------------------------------------------------------------------------


def exchange(host: Far, *frames: bytes) -> list[Json]:
    """What a bridge says to these lines, until its input ends."""
    out: list[bytes] = []
    read, write = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(write, b"".join(frames)), os.close(write)))
    writer.start()
    host.bridge.serve(Lines(read), out.append, "9.9", "box")
    writer.join()
    os.close(read)
    return [json.loads(one) for one in out]


def test_it_says_hello_answers_in_order_and_ends_with_its_input(host: Far) -> None:
    said = exchange(
        host, b'{"id":1,"v":1,"ask":"state"}\n', b'{"id":2,"v":1,"ask":"reboot"}\n',
        b"no frame\n", b'{"id":3,"v":1,"ask":["state"]}\n', b'{"id":4,"v":1,"ask":"state"}\ntorn',
    )  # fmt: skip
    assert said[0] == {HELLO: VERSION, "version": "9.9", "host": "box", "limit": MAX_FRAME}
    assert [(one["id"], one["ok"]) for one in said[1:]] == [
        (1, True), (2, False), (None, False), (3, False), (4, True),
    ]  # fmt: skip
    assert [one["error"]["code"] for one in said[2:5]] == [
        "unknown_question", "bad_frame", "unknown_question",
    ]  # fmt: skip


def test_every_field_of_an_answer_is_documented(host: Far) -> None:
    run = new_run()
    asked = plan(host)
    given: dict[str, tuple[Json, Json]] = {
        "ready": ({}, host.ask("ready")), "plan": (asdict(Wanted("t", "")), asked),
        "journal": ({}, host.ask("journal", run=run.id, attend=True)),
        "started": ({}, host.ask("started", request="ab" * 16)),
        "start": ({}, host.act("start", request="ab" * 16, hash=asked["hash"])),
    }  # fmt: skip
    for question, (wanted, answer) in given.items():
        named = documented("how-to/fleet.md", question)
        assert {*wanted, *answer} - named == set(), question


def test_nobody_who_listens_ends_it(host: Far) -> None:
    def gone(data: bytes) -> None:
        raise BrokenPipeError

    read, write = os.pipe()
    host.bridge.serve(Lines(read), gone, "9.9", "box")
    os.close(read)
    os.close(write)


def test_another_version_is_refused_except_for_what_an_emergency_asks(host: Far) -> None:
    assert host.refused("state", v=VERSION + 1).code == "version"
    assert "token" in host.bridge.answer({"ask": "ready", "v": VERSION + 1})


def test_what_goes_wrong_in_one_question_is_its_answer(host: Far) -> None:
    def broken() -> Json:
        raise RuntimeError("what")

    host.bridge = Bridge(broken, lambda: load_site(host.root / "none.yaml"), host.clock)
    assert "what" in host.refused("state").detail
    assert "none.yaml" in host.refused("plan", name="t", text=BOOK).detail


# -- journals and verbs ----------------------------------------------------------------------------


def test_a_journal_comes_in_bounded_pages(host: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run()
    journal = Journal(run.journal)
    for number in range(20):
        journal.append(3.0, "run.note", "", 0, {"text": f"note {number}"})
    journal.append(4.0, "run.note", "", 0, {"text": "x" * 3000})
    journal.append(5.0, "run.finished", "", 0, {})
    journal.close()
    monkeypatch.setattr(far, "MAX_EVENTS", 8)
    monkeypatch.setattr(far, "MAX_PAGE", 2000)
    rows, pages, more = [], 0, True
    while more:
        page = host.ask("journal", run=run.id[-4:], since=rows[-1][0] if rows else 0)
        assert len(page["events"]) <= 8
        assert len(json.dumps(page["events"])) < 2200
        rows, pages, more = rows + page["events"], pages + 1, page["more"]
    assert [row[0] for row in rows] == list(range(1, 25)), "none is left out, and none is twice"
    assert "only in the journal on the host" in rows[22][5]["text"]
    assert pages > 3


def test_a_journal_renews_the_lease_only_where_it_is_asked_to(
    host: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sent = new_run(), list[Json]()
    monkeypatch.setattr(control, "send", lambda path, words, limit: sent.append(words) or {})
    host.ask("journal", run=run.id)
    assert sent == []
    host.ask("journal", run=run.id, attend=True)
    assert sent == [{"verb": "status", "attached": True}]
    host.alive = False
    assert host.ask("journal", run=run.id, attend=True)["goes_on"] is False
    assert len(sent) == 1


@pytest.mark.parametrize("acting", [True, False])
def test_a_run_whose_boot_unit_is_still_to_act_goes_on(
    host: Far, monkeypatch: pytest.MonkeyPatch, acting: bool
) -> None:
    monkeypatch.setattr(boot, "is_acting", lambda: acting)
    run, host.alive = new_run(), False
    page = host.ask("journal", run=run.id, attend=True)
    assert (page["goes_on"], page["unit"]) == (acting, acting)
    assert host.ask("journal", run=run.id)["goes_on"] is False, "nobody follows it"


def test_a_name_that_fits_several_runs_is_not_the_name_of_none(host: Far) -> None:
    names = sorted((new_run().id, new_run().id))
    refused = host.refused("journal", run=names[0][:2])
    assert (refused.code, sorted(refused.detail.split(", "))) == (SEVERAL, names)
    assert host.refused("journal", run="nope").code == "no_run"


SEEN = {"step": "a", "attempt": 1, "evidence": "e"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"verb": "rollback"}, "unknown_question"), ({"verb": "status"}, "unknown_question"),
        ({"verb": "nonsense"}, "unknown_question"), ({"seen": {"step": "a"}}, "bad_question"),
        ({"seen": None}, "bad_question"), ({"run": "another"}, "no_run"),
        ({"run": "../../etc"}, "bad_question"),
    ],
)  # fmt: skip
def test_a_verb_that_is_not_bound_reaches_no_run(
    host: Far, monkeypatch: pytest.MonkeyPatch, change: Json, code: str
) -> None:
    run, sent = new_run(), list[Json]()
    monkeypatch.setattr(control, "send", lambda path, words, limit: sent.append(words))
    asked: Json = {"run": run.id, "verb": "approve", "seen": SEEN, **change}
    with pytest.raises(BridgeError) as refused:
        host.act("tell", **asked)
    assert (refused.value.code, sent) == (code, [])


def test_a_verb_passes_on_what_was_seen_and_a_run_that_moved_on_says_so(
    host: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sent = new_run(), list[Json]()
    answers = [{"ok": True, "step": "a"}, {"ok": False, "error": "the run has moved on: step …"}]
    monkeypatch.setattr(
        control, "send", lambda path, words, limit: sent.append(words) or answers.pop(0)
    )
    host.act("tell", run=run.id, verb="approve", seen=SEEN, why="because")
    assert sent[0] == {"verb": "approve", "why": "because", "args": {"inputs": {}, "confirm": ""},
                       **SEEN}  # fmt: skip
    with pytest.raises(BridgeError) as refused:
        host.act("tell", run=run.id, verb="next", seen=SEEN)
    assert refused.value.code == "moved_on"
    host.alive = False
    with pytest.raises(BridgeError, match="no runner"):
        host.act("tell", run=run.id, verb="abort")
    assert len(sent) == 2


# -- the rollback ----------------------------------------------------------------------------------


@pytest.fixture
def command(host: Far, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What stands in for this host's own command."""

    def be(text: str) -> None:
        path = host.root / "command.py"
        path.write_text(text)
        monkeypatch.setattr(far, "module_argv", lambda name: (sys.executable, str(path)))

    return be


def test_a_rollback_is_the_hosts_own_and_is_waited_for(
    host: Far, command: Callable[[str], None]
) -> None:
    command(
        "import os, sys\n"
        "print('stage', os.getsid(0) == os.getpid(), sys.argv[1:], file=sys.stderr)\n"
        "print('{\"serving\": true}')\nsys.exit(7)\n"
    )
    token = host.ask("ready")["token"]
    frame = json.dumps({"id": 1, "v": VERSION, "ask": "rollback", "token": token}).encode() + b"\n"
    said = exchange(host, frame)[1:]
    assert said == [
        {"id": 1, "said": "stage True ['rollback', '--json']"},
        {"id": 1, "ok": True, "exit": 7, "results": [{"serving": True}]},
    ]


def test_a_rollback_goes_by_the_sealed_script_where_the_program_is_gone(
    host: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge outlives an upgrade, or its virtual environment."""
    monkeypatch.setattr(far, "module_argv", lambda name: ("/nowhere/python",))
    script = site_script("box")
    script.parent.mkdir(parents=True)
    script.write_text('echo stage >&2; echo \'{"serving": true}\'; echo "$@" >&2')
    token = host.ask("ready")["token"]
    frame = json.dumps({"id": 1, "v": VERSION, "ask": "rollback", "token": token}).encode() + b"\n"
    said = exchange(host, frame)[1:]
    assert said[-1] == {"id": 1, "ok": True, "exit": 0, "results": [{"serving": True}]}
    assert [words["said"] for words in said[:-1]][-2:] == ["stage", "--json"]


def test_a_rollback_that_was_meant_for_an_earlier_run_is_refused(
    host: Far, command: Callable[[str], None]
) -> None:
    command(f"open({str(host.root / 'ran')!r}, 'w')")
    token = host.ask("ready")["token"]
    new_run()
    assert host.refused("rollback", token=token).code == "moved_on"
    assert not (host.root / "ran").exists()


def test_a_start_that_was_refused_meanwhile_keeps_nobody_from_a_rollback(
    host: Far, command: Callable[[str], None]
) -> None:
    """Its directory was the newest one, and the run before it passed for one that had begun."""
    command("")
    new_run()
    refused = new_run()
    token = host.ask("ready")["token"]
    shutil.rmtree(refused.path)
    assert host.ask("rollback", token=token)["exit"] == 0
