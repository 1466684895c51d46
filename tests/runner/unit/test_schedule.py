"""Runs by the clock: times, timers, what is refused, and what is told of a start that fails."""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import ConsoleError, InvalidFile, UsageError
from console.config.site.site import Site, load_site
from console.host import systemd
from console.runner import launch
from console.runner.unattended import schedule
from console.runner.unattended.schedule import Entry
from tests.wrong_files import wrong_files

BOOK = """\
schema: omni.playbook/v1
name: trial
title: A trial
inputs: {n: {type: int, default: 1}}
phases: [{title: A, steps: [{id: a, note: hello}]}]
"""
NIGHT = '[{name: nightly, playbook: %s, at: "02:00", inputs: {n: 3}, lease: 2h}]'


class Manager:
    """Stands for systemctl: remembers what it was asked, and refuses a calendar that is none."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, unit: systemd.Unit, *words: str) -> str:
        self.asked.append(words)
        if (
            words[0] == "enable"
            and "OnCalendar=soon" in unit.path.with_suffix(".timer").read_text()
        ):
            raise ConsoleError("systemctl enable", "Failed to parse calendar specification")
        return "Fri 2026-11-27 02:00:00 UTC\n" if words[0] == "show" else ""


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    made = Manager()
    monkeypatch.setattr(systemd.Unit, "systemctl", lambda unit, *words: made(unit, *words))
    monkeypatch.setattr(systemd.Unit, "lingers", True)
    monkeypatch.setattr(schedule, "SYSTEMD", tmp_path)
    monkeypatch.setattr(schedule.shutil, "which", lambda name: f"/bin/{name}")
    yield made
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def made_site(tmp_path: Path, manager: Manager) -> Callable[[str], Site]:
    def make(entries: str, more: str = "") -> Site:
        path = tmp_path / "site.yaml"
        path.write_text(
            "schema: omni.site/v1\nname: here\n"
            "baseline: {process: {argv: [sleep, '1']}, url: 'http://127.0.0.1:9'}\n"
            f"schedule: {entries}\n{more}"
        )
        return load_site(path)

    (tmp_path / "trial.yaml").write_text(BOOK)
    return make


def test_a_site_has_its_runs_by_the_clock(
    tmp_path: Path, manager: Manager, made_site: Callable[[str], Site]
) -> None:
    book = tmp_path / "trial.yaml"
    [entry] = schedule.of_site(made_site(NIGHT % book))
    assert (entry.lease_s, entry.inputs, entry.calendar) == (7200.0, {"n": "3"}, "*-*-* 02:00:00")
    schedule.install(entry)
    timer, service = entry.timer.read_text(), entry.unit.path.read_text()
    assert "OnCalendar=*-*-* 02:00:00\n" in timer
    assert '"schedule" "start" "nightly"' in service
    assert "KillMode=process" in service
    assert ("enable", "--now", "omni-console-run-nightly.timer") in manager.asked
    assert schedule.installed() == [entry]
    file = schedule.folder() / "nightly.json"
    good = file.read_text()
    for key, wrong in wrong_files(good):
        file.write_text(wrong)
        assert schedule.installed() == [], key
    file.write_text(good)
    assert schedule.following([entry]) == {"nightly": "Fri 2026-11-27 02:00:00 UTC"}
    assert schedule.remove("nightly")
    assert ("disable", "--now", "omni-console-run-nightly.timer") in manager.asked
    assert schedule.installed() == []
    assert not entry.timer.exists()
    assert not schedule.remove("nightly")


@pytest.mark.usefixtures("manager")
def test_a_run_that_the_missing_program_could_not_start_is_named(
    tmp_path: Path, made_site: Callable[[str], Site], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """In the middle of an upgrade the timer fired, and nothing said later that the run had not
    begun."""
    site = made_site(NIGHT % (tmp_path / "trial.yaml"))
    monkeypatch.setattr(schedule, "module_argv", lambda name: ("/nowhere/python",))
    [entry] = schedule.of_site(site)
    schedule.install(entry)
    [line] = [row for row in entry.unit.path.read_text().splitlines() if row.startswith("ExecS")]
    argv = shlex.split(line.partition("=")[2].replace("$$", "$").replace("%%", "%"))
    assert subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 127
    assert entry.missed_at is not None
    monkeypatch.setenv("OMNI_SITE", str(site.path))
    assert main(["schedule"]) == 0
    assert "it did not start at 20" in capsys.readouterr().out
    monkeypatch.setattr(schedule, "_begin", lambda entry: None)
    schedule.start("nightly")
    assert entry.missed_at is None


def test_a_run_without_a_person_always_has_a_lease(
    tmp_path: Path, made_site: Callable[..., Site]
) -> None:
    entries = f'[{{name: n, playbook: {tmp_path}/trial.yaml, at: "Mon..Fri 02:00"}}]'
    assert schedule.of_site(made_site(entries))[0].lease_s == 8 * 3600.0
    assert schedule.of_site(made_site(entries, "lease: 30m\n"))[0].lease_s == 1800.0
    assert schedule.of_site(made_site(entries, "lease: 0s\n"))[0].lease_s == 8 * 3600.0


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('{name: A, playbook: x, at: "02:00"}', ":4:19"),
        ('{name: a, playbook: x, at: "02:00", lease: 1s}', "lease"),
        ('{name: a, playbook: x, at: "%h"}', "a time of day like 02:00"),
        ('{name: a, playbook: x, at: "1"}, {name: a, playbook: x, at: "2"}', "are called a"),
    ],
)
def test_a_bad_entry_names_its_place(
    made_site: Callable[[str], Site], entry: str, words: str
) -> None:
    with pytest.raises(InvalidFile) as caught:
        made_site(f"[{entry}]")
    assert words in str(caught.value)


def test_a_time_is_the_next_one_or_a_date(made_site: Callable[[str], Site]) -> None:
    site, now = made_site("[]"), 1_790_000_000.0  # 2026-09-21 14:13:20 UTC
    said = [schedule.once("x", at, {}, None, site, now).at
            for at in ("02:00", "15:00", "2026-10-01 03:30")]  # fmt: skip
    assert said == ["2026-09-22 02:00:00", "2026-09-21 15:00:00", "2026-10-01 03:30:00"]
    for wrong in ("26:00", "2026-09-21 14:00", "soon"):
        with pytest.raises(UsageError):
            schedule.once("x", wrong, {}, None, site, now)


def test_what_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path, manager: Manager, made_site: Callable[[str], Site],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    site = made_site("[]")
    entry = Entry("a", str(tmp_path / "trial.yaml"), "soon", 60.0, site=str(site.path))
    with pytest.raises(ConsoleError, match="cannot be started"):
        schedule.install(entry)
    with pytest.raises(UsageError):
        schedule.install(Entry("a", "no-such-playbook", "02:00", 60.0, site=str(site.path)))
    good = Entry("a", str(tmp_path / "trial.yaml"), "02:00", 60.0, site=str(site.path))
    schedule.install(good)
    with pytest.raises(ConsoleError, match="cannot be started"):
        schedule.install(entry)
    assert schedule.installed() == [good], "the timer before it goes on"
    assert "02:00:00" in good.timer.read_text()
    assert schedule.remove("a")
    assert not schedule.remove("../rollback/site")
    monkeypatch.setattr(systemd.Unit, "lingers", False)
    with pytest.raises(UsageError, match="does not linger"):
        schedule.install(entry)
    assert schedule.installed() == []
    assert not entry.timer.exists()
    assert not entry.unit.path.exists()


def test_a_start_that_fails_is_told_and_one_that_is_once_goes(
    tmp_path: Path, manager: Manager, made_site: Callable[..., Site],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told = tmp_path / "told.json"
    site = made_site("[]", f"notify: [{{command: [sh, -c, 'cat > {told}']}}]\n")
    posted = []
    monkeypatch.setattr(
        "console.notify.outbox.post", lambda channels, event: posted.append((channels, event))
    )

    def refused(*args: object, **more: object) -> None:
        assert more["lease_s"] == 60.0
        assert "yes" not in more
        raise ConsoleError("the baseline does not serve", "connection refused")

    monkeypatch.setattr(launch, "begin", refused)
    entry = Entry("a", str(tmp_path / "trial.yaml"), "2026-11-27 02:00:00", 60.0, {"n": "2"},
                  once=True, site=str(site.path))  # fmt: skip
    schedule.install(entry)
    with pytest.raises(ConsoleError, match="does not serve"):
        schedule.start("a")
    [(channels, event)] = posted
    assert len(channels) == 1
    assert (event.kind, event.site) == ("run-end", "here")
    assert "did not start" in event.title
    assert "connection refused" in event.text
    assert schedule.installed() == []
    with pytest.raises(UsageError, match="no run is scheduled"):
        schedule.start("a")
    with pytest.raises(UsageError, match="no run is scheduled"):
        schedule.start("../a")
