"""Each kind of channel, delivered for real: what is sent, and what is said when it fails."""

import email
import email.policy
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from console.notify import channels
from console.notify.channels import deliver
from tests.notify.hook import Hook
from tests.notify.made import channel, event
from tests.ports import free_port


def test_a_webhook_gets_the_event_with_its_key_and_the_headers(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "Bearer hunter2hunter2")
    headers = {"Authorization": {"env": "HOOK_TOKEN"}, "X-Team": "night"}
    answer = deliver(channel(webhook=f"{hook.url}/in?a=b", headers=headers), event(data={"n": 3}))
    assert (answer.delivered, answer.words) == (True, "status 200")
    (told,) = hook.came
    assert told.path == "/in?a=b"
    assert told.headers["Content-Type"] == "application/json"
    assert told.headers["Authorization"] == "Bearer hunter2hunter2"
    assert (told.headers["X-Team"], told.key) == ("night", "r1:7")
    assert told.json == {
        "schema": "omni.event/v1", "kind": "run-end", "key": "r1:7", "title": "title of r1:7",
        "text": "It ended.", "at": 1_000_000.0, "site": "ws", "run": "", "data": {"n": 3},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "sent"),
    [({"authorization": "Bearer abcdefgh"}, "Bearer abcdefgh"), ({}, "Basic bWU6aHVudGVyMjJrSjg=")],
)
def test_a_header_goes_before_the_user_of_the_address(
    hook: Hook, headers: dict[str, str], sent: str
) -> None:
    url = hook.url.replace("http://", "http://me:hunter22kJ8@")
    assert deliver(channel(webhook=url, headers=headers), event()).delivered
    (told,) = hook.came
    names = {name.lower(): value for name, value in told.headers.items()}
    assert names["authorization"] == sent


def test_ntfy_gets_text_with_title_priority_and_tags(hook: Hook) -> None:
    where = channel(ntfy=f"{hook.url}/my-topic")
    deliver(where, event(kind="guard-kill", title="Rückfall: gestoppt", text="zu heiß"))
    deliver(where, event("r1:8"))
    first, second = hook.came
    assert (first.path, first.body, first.headers["Priority"]) == ("/my-topic", "zu heiß", "5")
    title = email.header.make_header(email.header.decode_header(first.headers["Title"]))
    assert str(title) == "ws: Rückfall: gestoppt"
    assert first.headers["Tags"] == "rotating_light"
    assert (second.headers["Title"], second.headers["Priority"]) == ("ws: title of r1:8", "3")


@pytest.mark.parametrize("status", [302, 403, 500])
def test_any_other_status_is_a_failure_with_what_was_said(hook: Hook, status: int) -> None:
    hook.status, hook.said = status, b"\x1b[31mno such\nroom"
    answer = deliver(channel(webhook=hook.url), event())
    assert (answer.delivered, answer.words) == (False, f"status {status} no such room")
    assert len(hook.came) == 1, "a redirect is not followed"


def test_what_the_far_side_repeats_of_a_secret_is_not_said(hook: Hook) -> None:
    url = hook.url.replace("http://", "http://me:hunter22kJ8@")
    hook.status, hook.said = 500, b"denied: Basic bWU6aHVudGVyMjJrSjg= is me and hunter22kJ8"
    words = deliver(channel(webhook=url), event()).words
    assert "hunter22kJ8" not in words
    assert "bWU6aHVudGVyMjJrSjg" not in words


def test_a_server_that_does_not_answer_is_left_after_the_deadline(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "ANSWER_S", 0.2)
    hook.status = None
    answer = deliver(channel(webhook=hook.url), event())
    assert (answer.delivered, answer.words) == (False, "no answer within 0.2 s")


def test_a_server_that_is_not_there() -> None:
    answer = deliver(channel(webhook=f"http://127.0.0.1:{free_port()}/secret-path"), event())
    assert not answer.delivered
    assert "secret-path" not in answer.words


def test_an_address_may_be_a_secret_and_no_message_has_it(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    where = channel(webhook={"env": "HOOK_URL"})
    answer = deliver(where, event())
    assert (answer.delivered, answer.possible) == (False, False)
    assert "HOOK_URL is not set" in answer.words
    monkeypatch.setenv("HOOK_URL", f"{hook.url}/T0K3N")
    assert deliver(where, event()).delivered
    assert hook.came[0].path == "/T0K3N"
    hook.status, hook.said = 500, f"what is {hook.url}/T0K3N?".encode()
    answer = deliver(where, event())
    assert answer.words == "status 500 what is *****?"
    for wrong in ("ftp://somewhere", "http://h/a\nb: c"):
        monkeypatch.setenv("HOOK_URL", wrong)
        answer = deliver(where, event())
        assert (answer.delivered, answer.possible) == (False, False)
    kept = tmp_path / "url"
    kept.write_text(f"{hook.url}/kept\n")
    hook.status = 200
    assert deliver(channel(webhook={"file": str(kept)}), event()).delivered


def test_a_part_of_an_address_or_a_header_is_never_repeated(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that says which path or which token it refused tells it to nobody."""
    monkeypatch.setenv("HOOK_TOKEN", "Bearer abcdefgh")
    where = channel(
        webhook=f"{hook.url}/services/T0K3N-12345?key=8765-4321",
        headers={"Authorization": {"env": "HOOK_TOKEN"}},
    )
    hook.status = 403
    hook.said = b"no /services/T0K3N-12345 (T0K3N-12345, key=8765-4321) for Bearer abcdefgh"
    words = deliver(where, event()).words
    assert words.startswith("status 403 no ")
    assert not [part for part in ("T0K3N", "8765", "abcdefgh") if part in words]


def test_a_secret_header_cannot_add_another(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "Bearer abcdefgh\r\nX-More: yes")
    where = channel(webhook=hook.url, headers={"Authorization": {"env": "HOOK_TOKEN"}})
    assert not deliver(where, event()).delivered
    assert hook.came == []


def test_a_command_gets_json_and_variables(tmp_path: Path) -> None:
    got = tmp_path / "got"
    code = f"""
import json, os, sys
mine = {{k: v for k, v in os.environ.items() if k.startswith("OMNI_EVENT_")}}
open({str(got)!r}, "w").write(json.dumps([json.load(sys.stdin), mine, sys.argv[1:]]))
print("thank you")
"""
    answer = deliver(channel(command=[sys.executable, "-S", "-c", code, 3]), event(data={"n": 3}))
    assert (answer.delivered, answer.words) == (True, "exit code 0: thank you")
    body, variables, argv = json.loads(got.read_text())
    assert (body["key"], body["data"], argv) == ("r1:7", {"n": 3}, ["3"])
    assert variables == {
        "OMNI_EVENT_KIND": "run-end", "OMNI_EVENT_KEY": "r1:7", "OMNI_EVENT_SITE": "ws",
        "OMNI_EVENT_TITLE": "title of r1:7", "OMNI_EVENT_TEXT": "It ended.",
        "OMNI_EVENT_AT": "1000000.0", "OMNI_EVENT_RUN": "",
    }  # fmt: skip


def test_a_command_that_fails_hangs_or_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = deliver(channel(command=["sh", "-c", "echo why >&2; exit 3"]), event())
    assert (failed.delivered, failed.words) == (False, "exit code 3: why")
    killed = deliver(channel(command=["sh", "-c", "kill -9 $$"]), event())
    assert (killed.delivered, killed.words) == (False, "signal SIGKILL")
    missing = deliver(channel(command=["no-such-program"]), event())
    assert (missing.delivered, missing.words) == (False, "no-such-program: not found")
    monkeypatch.setattr(channels, "COMMAND_S", 0.2)
    hung = deliver(channel(command=["sleep", "600"]), event())
    assert (hung.delivered, hung.words) == (False, "it did not end within 0.2 s, and was killed")


def test_a_command_that_leaves_a_child_behind_is_done_when_it_ends() -> None:
    answer = deliver(channel(command=["sh", "-c", "sleep 600 & echo $!"]), event())
    assert answer.delivered
    pid = int(answer.words.rpartition(" ")[2])
    os.kill(pid, signal.SIGKILL)


def test_mail_goes_through_sendmail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = channel(mail="operator@example.org")
    monkeypatch.setattr(channels, "SENDMAIL", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert deliver(where, event()).words == "this machine has no sendmail"
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/argv\n/bin/cat >{tmp_path}/mail\n')
    program.chmod(0o755)
    assert deliver(where, event(title="fünf\nBcc: all@example.org", run="r1")).delivered
    assert (tmp_path / "argv").read_text() == "-i operator@example.org\n"
    mail = email.message_from_bytes((tmp_path / "mail").read_bytes(), policy=email.policy.default)
    assert (mail["To"], mail["Bcc"]) == ("operator@example.org", None)
    assert mail["Subject"] == "ws: fünf Bcc: all@example.org"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content() == "It ended.\n\nSite: ws\nRun: r1\nKind: run-end\n"
