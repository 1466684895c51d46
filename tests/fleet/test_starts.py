"""Plans for an operator far away, and starts that no lost line can double."""

import errno
import math
import os
import re
import shutil
from typing import Any

import pytest

from console.common import paths
from console.common.errors import Exit, HostBusy
from console.fleet import bridge as far
from console.fleet import starts
from console.fleet.protocol import BridgeError
from console.journal.run_dir import RunDir
from tests.fleet.far import BOOK, SITE, Far, Json, new_run, plan
from tests.wrong_files import wrong_files

REQUESTED = "ab" * 16


def test_a_plan_is_made_with_the_site_of_the_host_and_has_a_lease(host: Far) -> None:
    told = plan(host)
    assert told["takes_down"] is True
    assert told["lease_s"] == starts.USUAL_LEASE_S
    assert any("site       local" in line for line in told["lines"])
    assert any("lease      30 min" in line for line in told["lines"])
    assert any("hello 3" in line for line in told["lines"])
    hashes = {told["hash"], plan(host, inputs={"n": "4"})["hash"], plan(host, yes=True)["hash"],
              plan(host, lease_s=600.0)["hash"]}  # fmt: skip
    assert len(hashes) == 4, "all that decides what runs is in the hash"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"text": 7}, "no playbook"), ({"inputs": {"n": 3}}, "no text"),
        ({"lease_s": 5.0}, "at least 60"), ({"lease_s": True}, "no playbook"),
        ({"text": "schema: x", "inputs": {}}, "cannot be used"),
        ({"inputs": {"m": "1"}}, "unknown input 'm'"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused(host: Far, more: Json, words: str) -> None:
    with pytest.raises(BridgeError, match=words):
        plan(host, **more)


@pytest.mark.parametrize("wish", [{"time": "1"}, {"time": "0"}, {"exclusive": "maybe"}, {"x": "1"}])
def test_a_wish_that_no_slurm_takes_is_bad_usage(host: Far, wish: Json) -> None:
    with pytest.raises(BridgeError, match="slurm") as refused:
        plan(host, slurm=wish)
    assert refused.value.exit_code == Exit.USAGE
    assert refused.value.hint


def test_a_fault_is_told_with_the_name_of_the_playbook_that_was_sent(host: Far) -> None:
    with pytest.raises(BridgeError) as refused:
        plan(host, text=BOOK.replace("title:", "tilte:"))
    said = "\n".join(refused.value.lines())
    assert re.search(r"(?m)^\W*trial\.yaml:\d+:\d+: ", said), said
    assert str(paths.bridge_dir()) not in said


PORT = """\
services: {own: {process: {argv: [cat]}, url: "http://127.0.0.1:1"}}
phases:
  - title: A
    steps:
      - {id: own, service: {start: own}}
      - {id: clone, script: "git clone --depth 1 --recursive x"}
"""


def test_no_plan_and_no_refusal_names_the_hosts_own_copy_of_a_playbook(host: Far) -> None:
    """A finding, a service that cannot start and an input that it does not declare did."""
    told = plan(host, text=BOOK.partition("phases:")[0] + PORT)
    with pytest.raises(BridgeError, match=r"trial\.yaml declares: n") as refused:
        plan(host, inputs={"m": "1"})
    assert (told["exit"], plan(host)["exit"]) == (Exit.USAGE, Exit.OK), "as a `run` there ends"
    said = [*told["lines"], *told["problems"], *refused.value.lines()]
    assert re.search(r"(?m)^trial\.yaml:\d+:\d+: service 'own'", "\n".join(told["problems"]))
    assert re.search(r"(?m)^  lint +trial\.yaml:\d+:\d+: ", "\n".join(told["lines"]))
    assert not [one for one in said if str(paths.bridge_dir()) in one]


def test_a_start_names_the_plan_that_was_shown(host: Far) -> None:
    told = plan(host, yes=True)
    made = host.act("start", request=REQUESTED, hash=told["hash"], headless=True)
    (one,) = host.begun
    assert made["begun"] is True
    assert (one["yes"], one["lease_s"], one["headless"]) == (True, 1800.0, True)
    other = host.refused("start", request="cd" * 16, hash="ef" * 32,
                         token=host.ask("ready")["token"])  # fmt: skip
    assert other.code == "changed"


def test_a_host_keeps_the_playbooks_of_the_newest_plans_alone(
    host: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "KEPT", 2)
    kept, books = paths.bridge_dir(), [BOOK.replace("A trial", f"Trial {n}") for n in range(4)]
    told = []
    for text in [books[0], *books]:  # the first is planned again, and is not the oldest
        for path in [*kept.glob("playbooks/*"), *kept.glob("plans/*")]:
            os.utime(path, (0, path.stat().st_mtime - 60))
        told.append(plan(host, text=text)["hash"])
    left = [path.read_text() for path in kept.glob("playbooks/*/trial.yaml")]
    assert sorted(left) == books[2:]
    shutil.rmtree(kept / "playbooks")  # not even those are needed for what a plan has shown
    assert host.act("start", request=REQUESTED, hash=told[-2])["begun"] is True
    gone = host.refused("start", request="cd" * 16, hash=told[0],
                        token=host.ask("ready")["token"])  # fmt: skip
    assert gone.code == "changed"


def test_a_site_that_has_changed_since_is_refused(host: Far) -> None:
    told = plan(host)
    (host.root / "site.yaml").write_text(SITE + "lease: 1h\n")
    with pytest.raises(BridgeError, match="has changed since its plan was shown"):
        host.act("start", request=REQUESTED, hash=told["hash"])
    assert host.begun == []


def test_the_same_request_finds_its_run_and_starts_no_second_one(host: Far) -> None:
    told = plan(host)
    assert host.ask("started", request=REQUESTED) == {"run": None}
    first = host.act("start", request=REQUESTED, hash=told["hash"])
    again = host.act("start", request=REQUESTED, hash=told["hash"])
    assert (again["run"], again["begun"]) == (first["run"], False)
    assert host.ask("started", request=REQUESTED) == {"run": first["run"]}
    host.act("start", request="cd" * 16, hash=told["hash"])
    assert len(host.begun) == 2


def test_a_kept_plan_with_one_wrong_value_is_planned_again(host: Far) -> None:
    confirmed = plan(host)["hash"]
    (path,) = (paths.bridge_dir() / "plans").glob("*.json")
    for key, text in wrong_files(path.read_text()):
        path.write_text(text)
        with pytest.raises(BridgeError, match="no such plan") as refused:
            host.act("start", request="ab" * 8, hash=confirmed)
        assert key == "no object" or refused.value.detail.startswith(f"{key}: expected"), key
    assert not host.begun


def test_a_lease_in_whole_seconds_is_the_one_that_was_shown(host: Far) -> None:
    confirmed = plan(host, lease_s=600)["hash"]
    assert confirmed == plan(host, lease_s=600.0)["hash"]
    assert host.act("start", request="ab" * 8, hash=confirmed)["begun"]


def test_a_wrong_record_of_a_request_leaves_its_run_to_be_found(host: Far) -> None:
    asked = {"request": "ab" * 8, "hash": plan(host)["hash"]}
    run = host.act("start", **asked)["run"]
    (path,) = (paths.bridge_dir() / "requests").glob("*.json")
    for _, text in wrong_files(path.read_text()):
        path.write_text(text)
        assert host.act("start", **asked)["run"] == run
    assert len(host.begun) == 1


def test_a_bridge_that_died_in_the_start_leaves_a_run_that_is_found(host: Far) -> None:
    """The directory names the request before its runner is started."""
    told = plan(host)
    host.fails.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        host.act("start", request=REQUESTED, hash=told["hash"])
    again = host.act("start", request=REQUESTED, hash=told["hash"])
    assert (again["run"], again["begun"]) == (host.begun[0]["run"], False)
    assert len(host.begun) == 1


def test_a_runner_that_never_began_is_no_run_and_a_refused_start_may_be_repeated(
    host: Far,
) -> None:
    told = plan(host)
    run = new_run(REQUESTED)
    run.journal.unlink()
    host.alive = False
    assert host.ask("started", request=REQUESTED) == {"run": None}
    host.fails.append(HostBusy("another run holds this host"))
    with pytest.raises(BridgeError, match="another run holds") as busy:
        host.act("start", request=REQUESTED, hash=told["hash"])
    assert busy.value.exit_code == 8


def test_a_run_that_was_cleaned_away_is_not_started_again(host: Far) -> None:
    told = plan(host)
    made = host.act("start", request=REQUESTED, hash=told["hash"])
    path = next(iter(host.root.glob(f"state/omni-console/runs/{made['run']}")))
    path.rename(host.root / "elsewhere")
    with pytest.raises(BridgeError, match="no longer there"):
        host.act("start", request=REQUESTED, hash=told["hash"])
    assert len(host.begun) == 1


def test_two_starts_at_once_are_one(host: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    told = plan(host)
    met: list[str] = []

    def begin(*args: Any, **more: Any) -> RunDir:
        with pytest.raises(BridgeError) as error:
            host.act("start", request=REQUESTED, hash=told["hash"])
        met.append(error.value.code)
        return host.begin(*args, **more)

    monkeypatch.setattr(starts, "begin", begin)
    host.act("start", request=REQUESTED, hash=told["hash"])
    assert (met, len(host.begun)) == ([starts.STARTING], 1)


@pytest.mark.parametrize("late_s", [far.VALID_S + 0.1, 3600.0])
def test_what_arrives_late_does_nothing(host: Far, late_s: float) -> None:
    told, token = plan(host), host.ask("ready")["token"]
    host.clock.sleep(late_s)
    refused = host.refused("start", request=REQUESTED, hash=told["hash"], token=token)
    assert (refused.code, host.begun) == ("too_late", [])


def test_a_token_is_for_once(host: Far) -> None:
    told, token = plan(host), host.ask("ready")["token"]
    host.ask("start", request=REQUESTED, hash=told["hash"], token=token)
    assert host.refused("rollback", token=token).code == "too_late"
    assert host.refused("rollback", token="0" * 16).code == "too_late"


def test_a_run_that_has_begun_on_a_disk_that_is_full_since_is_told(
    host: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as a start that had failed, and nobody followed it."""
    write = starts._write

    def full(request: str, confirmed: str, run: str) -> None:
        if run:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(request, confirmed, run)

    monkeypatch.setattr(starts, "_write", full)
    asked = {"request": "ab" * 8, "hash": plan(host)["hash"]}
    first, again = host.act("start", **asked), host.act("start", **asked)
    assert (first["begun"], again["begun"], len(host.begun)) == (True, False, 1)
    assert first["run"] == again["run"] == host.begun[0]["run"]


@pytest.mark.parametrize("lease_s", [math.nan, math.inf, -1, 0, False, True])
def test_no_lease_is_without_end(host: Far, lease_s: float) -> None:
    """A run from afar always has one: JSON as Python reads it knows numbers that never pass."""
    with pytest.raises(BridgeError) as refused:
        plan(host, lease_s=lease_s)
    assert refused.value.code == "bad_question"
