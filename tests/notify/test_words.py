"""What people are told: every kind of event that a journal has, and what the command prints."""

import json
import time
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.notify.stories import BEGUN, Journal, verdict


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def back(journal: Journal, **more: object) -> Journal:
    journal.add("outage", down=True, url="http://127.0.0.1:8000", proof=0.0)
    journal.add("outage", down=False, restore_s=74.0)
    return journal.add("serving", **{"tok_s": 10.35, "degraded": False, **more})


def journals() -> list[Journal]:
    asked, held, failed = Journal(), verdict(Journal(), "HOLD"), Journal()
    lease, killed, down = Journal(), Journal(), Journal()
    killed.add("guard", kind="breach", words="RAM available below 2.0 GiB", cause="guard",
               killed=[{"name": "cand"}])  # fmt: skip
    lease.add("guard", kind="lease", words="nobody is attached", left_s=200.0)
    return [
        asked.step("load", "running").state("waiting_approval", detail="Go on with the cutover?",
                                            until=BEGUN + 60 * 3 + 1800),
        held.state("paused", reason="hold", detail="tok_s 10.1, between 9 and 11"),
        failed.step("load", "failed", cause="exit_code", detail="exit code 3")
        .state("paused", reason="step_failed", detail="load: exit_code"),
        killed.state("rolling_back", reason="guard").state("rolled_back", reason="guard"),
        lease.add("guard", kind="breach", words="nobody was attached for 30 min", cause="lease")
        .state("rolling_back", reason="lease").state("rolled_back", reason="lease"),
        Journal().add("guard", kind="breach", words="Slurm's job has ended", cause="allocation")
        .state("rolling_back", reason="allocation").state("rolled_back", reason="allocation"),
        verdict(back(Journal()), "GO", "soak").state("succeeded"),
        verdict(back(Journal(), degraded=True), "GO", overridden="op: why").state("succeeded"),
        verdict(Journal(rehearsal={"fault": ""}), "NO-GO", "retain").state("succeeded"),
        Journal().step("load", "failed", cause="exit_code", detail="exit code 3").state("failed"),
        Journal().state("cancelled", reason="abort"),
        down.add("outage", down=True, url="http://127.0.0.1:8000", proof=0.0)
        .state("rolling_back", reason="emergency")
        .state("rollback_failed", reason="emergency", detail="the baseline did not answer"),
        Journal().add("cutover", "load", what="stays", service="cand", url="u", to="v")
        .state("succeeded"),
    ]  # fmt: skip


def test_events(snapshot: SnapshotAssertion) -> None:
    said = []
    for journal in journals():
        assert journal.news
        for one in journal.news:
            assert one.key.startswith("20260101-trial-abcd:")
            figures = {k: v for k, v in one.data.items() if k not in ("playbook", "state", "mark")}
            said += [f"{one.kind} ({one.urgency}) {one.title}", f"  {one.text}", f"  {figures}"]
    assert "\n".join(said) == snapshot


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:  # fmt: skip
    from console.cli import main
    from console.frontends.cli.site import notify
    from console.notify import outbox
    from tests.clock import FakeClock
    from tests.notify.made import channel, event

    clock = FakeClock(BEGUN)
    monkeypatch.setattr(notify, "SystemClock", lambda: clock)
    monkeypatch.setattr(outbox, "wake", lambda: None)
    site = tmp_path / "site.yaml"
    every = [
        {"webhook": "https://u:p4ssw0rd@hooks.example:8443/T0K3N"}, {"ntfy": {"env": "TOPIC"}},
        {"command": ["notify-send", "hi"], "on": ["approval", "run-end"]}, {"mail": "root"},
    ]  # fmt: skip
    text = {"schema": "omni.site/v1", "name": "ws",
            "baseline": {"container": "b", "url": "http://127.0.0.1:1"}}  # fmt: skip
    site.write_text(json.dumps(text))
    monkeypatch.setenv("OMNI_SITE", str(site))
    said = []

    def asked(*argv: str) -> None:
        code = main(["notify", *argv])
        out = capsys.readouterr()
        said.append(f"$ notify {' '.join(argv)}\n{out.out}{out.err}= {code}")

    asked()
    asked("--test")
    site.write_text(json.dumps({**text, "notify": every}))
    box, models = outbox.Outbox(), [channel(**one) for one in every]
    for number in range(2):
        outbox.post([*models[:1], channel(mail="gone")], event(f"r1:{number}"), clock)
    state = outbox.ChannelState(
        delivered=BEGUN - 90.0, failed=BEGUN - 7200.0, answer="status 500 no\x1b[31m", what="r1:0"
    )
    box.keep(models[0], state)
    asked()
    asked("--test", "--channel", "9")
    asked("--channel", "1")
    asked("deliver-it")
    assert "\n".join(said).replace(str(tmp_path), "TMP") == snapshot
