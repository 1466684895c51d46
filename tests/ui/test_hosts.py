"""The page of hosts: what it says of them, what it never says, and the way into one."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from console.common.text import clean
from console.fleet.inventory import Fleet, Host, load_fleet
from console.fleet.known import Known, remember
from console.frontends.tui import app as app_module
from console.frontends.tui.app import ConsoleApp
from console.frontends.tui.terminal.guest import BROWSER, Left
from console.journal.run_dir import RunDir
from screens import hosts as module
from screens.hosts import ASKING, HostsScreen, detail, left_words, table
from tests.ui import scene
from tests.ui.conftest import full
from tests.ui.opened import console, said, settled
from tests.ui.opened import screen as drawn
from tests.waiting import LIMIT_S
from widgets.rows import PickList, Rows, TextView, text_of, width_of

NOW, GIB = scene.NOW, 2**30
FLEET = """\
schema: omni.fleet/v1
hosts:
  boxa: {}
  boxb: {ssh: ops@10.0.0.12, command: /opt/omni}
  a-host-with-a-rather-long-name: {}
  boxd: {}
"""
STATE: dict[str, Any] = {
    "baseline": {"word": "down", "name": "deepseek-r1", "detail": "for this run"},
    "run": {
        "id": "20261120-140312-trial-ab12", "playbook": "trial", "state": "running", "alive": True,
        "outage": True, "step": "bench", "step_number": 3, "steps": 7, "waits_for": "",
        "said": "run 4 of 9: 21.3 tok/s",
    },
    "guard": {"lease_s": 754.0, "attended": True},
    "memory": {"total": 755 * GIB, "available": 412 * GIB},
    "cards": [{"total": 96 * GIB, "free": 90 * GIB}, {"total": 32 * GIB, "free": 1 * GIB}],
}  # fmt: skip
WAITS = {**STATE["run"], "state": "waiting_approval", "waits_for": "Waiting for you: look"}
BUSY = Known("boxa", NOW - 2, STATE)
LOST = Known("boxb", NOW - 600, STATE, "boxb cannot be reached: Connection timed out")
ASKS = Known("a-host-with-a-rather-long-name", NOW - 1, {**STATE, "run": WAITS})
NEVER = Known("boxd", trouble="boxd cannot be reached: Could not resolve hostname boxd")
EVIL = "[red]\x1b[2J\u202eevil[/]\nline"


class Asker:
    """In place of the threads that ask: it tells what is known at once, and what it is told."""

    made: list["Asker"] = []
    knows: tuple[Known, ...] = (BUSY, LOST, ASKS, NEVER)

    def __init__(
        self, hosts: Sequence[Host], control: object, tell: Callable[[Known], None]
    ) -> None:
        self.hosts, self.tell, self.over = hosts, tell, False
        self.looks: list[bool] = []
        self.made.append(self)

    def start(self) -> None:
        for one in self.knows:
            self.tell(one)

    def look(self, there: bool) -> None:
        self.looks.append(there)

    def close(self) -> None:
        self.over = True


@pytest.fixture(autouse=True)
def askers(standing_clock: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Asker]:
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv(BROWSER, raising=False)
    monkeypatch.setattr(module, "HostsWatch", Asker)
    monkeypatch.setattr(module, "REFRESH_S", 0.05)
    monkeypatch.setattr(Asker, "made", [])
    monkeypatch.setattr("screens.hosts.time", scene.STANDING)
    return Asker.made


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"  # where tests.ui.conftest says that it is
    path.write_text(FLEET)
    return path


async def opened(app: ConsoleApp, pilot: Pilot[Any], words: str = "boxd") -> HostsScreen:
    await pilot.press("7")
    await settled(pilot, lambda: isinstance(app.screen, HostsScreen) and words in drawn(pilot))
    page = app.screen
    assert isinstance(page, HostsScreen)
    return page


# -- what it looks like ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(60, 20), (80, 24), full((140, 42)), full((200, 60))])
def test_picture(snap_compare: Any, run: RunDir, fleet: Path, size: tuple[int, int]) -> None:
    shot = scene.snapshot(run, scene.ended())
    watchers = scene.StandInWatchers(shot, scene.baseline(), scene.sample())
    app = ConsoleApp(watchers)  # type: ignore[arg-type]

    async def page(pilot: Pilot[Any]) -> None:
        await settled(pilot, lambda: app.sample)
        await opened(app, pilot, "unknown: it never")
        await pilot.press("j")
        await settled(pilot, lambda: "last known, at" in drawn(pilot))

    assert snap_compare(app, terminal_size=size, run_before=page)


def test_every_width_keeps_the_host_and_how_old_its_state_is() -> None:
    found = [BUSY, LOST, ASKS, NEVER]
    for width in range(20, 220):
        rows = table(found, NOW, width, frozenset({"boxa"}))
        assert max(map(width_of, rows)) <= width
        told = text_of(rows).splitlines()
        assert [line[:5] for line in told[2:4]] == ["? box", "! a-h"]
        if width >= 59:  # one less than the least window: the scroll bar
            assert told[1].endswith(ASKING)
            assert told[2].endswith("unknown since 14:03")
    assert "VRAM FREE" in text_of(table(found, NOW, 140, frozenset()))


def test_a_job_that_waits_needs_nobody() -> None:
    job = {"job": "7", "state": "PENDING", "words": "PENDING (BeginTime)", "playbook": "night"}
    run = {**STATE["run"], "alive": False}
    one = Known("boxa", NOW, {**STATE, "run": run, "slurm": [job]})
    assert run["id"] not in text_of(detail(one, NOW, 100, "", asking=False)), "that run is over"
    (row,) = table([one], NOW, 140, frozenset())[1:]
    assert text_of([row]).startswith("  boxa")
    assert "night waits for Slurm" in text_of([row])
    assert "Slurm job 7: PENDING (BeginTime)" in text_of(detail(one, NOW, 100, "", asking=False))


def test_a_lost_host_is_unknown_and_never_down() -> None:
    (row,) = table([LOST], NOW, 140, frozenset())[1:]
    text = text_of([row, *detail(LOST, NOW, 100, "", asking=False)])
    assert "down ?" in text
    assert "unknown since 14:03" in text
    assert "the baseline comes back at 14:15 by the lease of run" in text
    assert not [line for line in text.splitlines() if "down" in line.replace("down ?", "")]


def test_what_a_host_says_does_nothing_to_the_terminal() -> None:
    run = dict.fromkeys(("state", "playbook", "waits_for", "step", "alive", "said", "id"), EVIL)
    state = {
        "baseline": dict.fromkeys(("word", "name", "detail"), EVIL), "run": run,
        "guard": {"lease_s": EVIL, "state": "acted", "words": EVIL}, "cards": [EVIL, {}],
    }  # fmt: skip
    for trouble in ("", EVIL):
        one = Known("a", NOW, state, trouble)
        rows = [*table([one], NOW, 300, frozenset()), *detail(one, NOW, 300, "", asking=False)]
        text = text_of(rows)
        assert "[red]" in text, "it is no markup"
        assert all(line == clean(line) for line in text.splitlines())
    words = left_words(Host("a", "a", "/x"), Left(255, clean(EVIL)))
    assert words == clean(words)


# -- the page --------------------------------------------------------------------------------------


async def test_without_a_file_it_says_what_to_write_and_takes_it_up(
    run: RunDir, tmp_path: Path, askers: list[Asker]
) -> None:
    async with console(scene.ended(), run) as (app, pilot, _):
        page = await opened(app, pilot, "no fleet file")
        assert str(tmp_path / "fleet.yaml") in "".join(drawn(pilot).split())
        for line in module.EXAMPLE:
            assert line in drawn(pilot)
        await pilot.press("enter", "j")
        (tmp_path / "fleet.yaml").write_text("hosts: 7\n")
        await settled(pilot, lambda: "cannot be used" in drawn(pilot))
        text = "\n".join(module.EXAMPLE)
        (tmp_path / "fleet.yaml").write_text(text.replace("boxb", "boxz"))
        await settled(pilot, lambda: "boxz" in page.query_one(PickList).text)
        assert [host.name for host in askers[-1].hosts] == ["boxa", "boxz"]
        (tmp_path / "fleet.yaml").write_text(text.replace("  boxa", "  aaa: {}\n  boxa"))
        await settled(pilot, lambda: "aaa" in page.query_one(PickList).text)
        await settled(pilot, lambda: "Enter opens boxa" in page.query_one("#next", Rows).text)
        (tmp_path / "fleet.yaml").write_text(text.replace("boxb", "boxz"))
        await settled(pilot, lambda: "aaa" not in page.query_one(PickList).text)
        await settled(pilot, lambda: "Enter opens boxa" in page.query_one("#next", Rows).text)
        assert [one.over for one in askers] == [True] * (len(askers) - 1) + [False]
        await pilot.press("j")
        await settled(pilot, lambda: "Enter opens boxz" in page.query_one("#next", Rows).text)
        await pilot.press("1")
        assert askers[-1].over, "nobody is asked for a page that is left"
        await settled(pilot, lambda: "7 Hosts" in drawn(pilot), "the footer offers it now")


async def test_the_keys_stay_where_they_are_while_the_file_is_read(
    run: RunDir, fleet: Path, askers: list[Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, reads = threading.Event(), [0]

    def load(given: str | None) -> Fleet:
        goes_on.wait(LIMIT_S)
        reads[0] += 1
        return load_fleet(given)

    monkeypatch.setattr(module, "load_fleet", load)
    async with console(scene.ended(), run) as (app, pilot, _):
        page = await opened(app, pilot, "reading the fleet file")
        await pilot.pause()
        assert page.focused is page.query_one("#list")
        goes_on.set()
        await settled(pilot, lambda: "boxd" in drawn(pilot))
        await pilot.press("tab")
        before = reads[0]
        await settled(pilot, lambda: reads[0] > before + 2)
        assert page.focused is page.query_one("#detail")


async def test_a_machine_without_runs_names_the_way_to_its_hosts(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "SETTLED_S", 0.01)
    async with console(None, None) as (_, pilot, _):
        await settled(pilot, lambda: "7         the hosts of your fleet" in drawn(pilot))
        assert "7 Hosts" in drawn(pilot)


async def test_a_host_is_as_it_was_until_it_answers(
    run: RunDir, fleet: Path, askers: list[Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(Host("boxa", "boxa"), {**STATE, "baseline": {"word": "serving"}}, NOW - 7200)
    monkeypatch.setattr(Asker, "knows", ())
    async with console(scene.ended(), run) as (app, pilot, _):
        page = await opened(app, pilot)
        rows = page.query_one(PickList).text.splitlines()
        assert rows[0].startswith("? boxa")
        assert "serving ?" in rows[0]
        assert all(row.endswith(ASKING) for row in rows)
        (asker,) = askers
        asker.tell(BUSY)
        asker.tell(Known("none-of-these", NOW))
        await settled(pilot, lambda: "2 s ago" in page.query_one(PickList).text)
        assert "down ?" not in page.query_one(PickList).text
        assert "run 4 of 9" in page.query_one("#detail", TextView).text
        await pilot.press("question_mark", "escape")
        await settled(pilot, lambda: asker.looks[-2:] == [False, True])


async def test_hosts_of_a_file_that_changed_rest_while_nobody_looks(
    run: RunDir, fleet: Path, askers: list[Asker]
) -> None:
    async with console(scene.ended(), run) as (app, pilot, _):
        await opened(app, pilot)
        await pilot.press("question_mark")
        fleet.write_text("schema: omni.fleet/v1\nhosts: {other: {}}\n")
        await settled(pilot, lambda: len(askers) == 2)
        assert askers[-1].looks[-1:] == [False]
        await pilot.press("escape")
        await settled(pilot, lambda: askers[-1].looks[-1])


async def test_the_emergency_key_is_this_machines(
    run: RunDir, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(scene.ended(), run) as (app, pilot, watchers):
        page = await opened(app, pilot)
        words = " ".join(page.query_one("#next", Rows).text.split())
        assert "F12 there is boxa's, here this machine's" in words
        assert "omni-console fleet rollback boxa" in words
        await pilot.press("f12")
        assert watchers.presses == 1


# -- into a host -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("browser", "readonly", "words"),
    [
        ("1", False, "a page in a browser opens no other host; in a shell: ssh -t ops@10.0.0.12"),
        ("", False, "cannot be lent to ssh; in a shell: ssh -t ops@10.0.0.12 /opt/omni"),
        ("", True, "/opt/omni --readonly"),
    ],
)
async def test_a_terminal_that_cannot_be_lent_says_what_to_type(
    run: RunDir, fleet: Path, monkeypatch: pytest.MonkeyPatch, browser: str, readonly: bool,
    words: str,
) -> None:  # fmt: skip
    monkeypatch.setenv(BROWSER, browser)
    async with console(scene.ended(), run, readonly=readonly) as (app, pilot, _):
        await opened(app, pilot)
        await pilot.press("j", "enter")
        await settled(pilot, lambda: words in said(app))


async def test_how_a_visit_ended_is_said_until_the_next(
    run: RunDir, fleet: Path, askers: list[Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [Left(255, "No route to host"), Left(0)]
    argvs: list[list[str]] = []

    async def lend(suspended: Any, argv: list[str], *_: object) -> Left:
        argvs.append(argv)
        return ends.pop(0)

    monkeypatch.setattr(module, "why_not", lambda *_: "")
    monkeypatch.setattr(module, "lend", lend)
    async with console(scene.ended(), run) as (app, pilot, _):
        page = await opened(app, pilot)
        view = page.query_one("#detail", TextView)
        await pilot.press("j", "enter")
        await settled(pilot, lambda: "boxb: ssh failed (255): No route to host" in said(app))
        assert "ssh failed (255)" in view.text
        assert askers[0].looks[-2:] == [False, True], "the others rest meanwhile"
        await pilot.press("k")
        assert "ssh failed" not in view.text
        await pilot.press("j", "enter")
        await settled(pilot, lambda: "back from boxb" in said(app))
        assert "ssh failed" not in view.text
        assert argvs[0][:2] == ["ssh", "-t"]
        assert argvs[0][-2:] == ["ops@10.0.0.12", "exec /opt/omni"]


async def test_keys_that_came_with_the_enter_of_a_short_visit_go_nowhere(
    run: RunDir, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lend(*_: object) -> Left:
        return Left(0)

    monkeypatch.setattr(module, "why_not", lambda *_: "")
    monkeypatch.setattr(module, "lend", lend)
    async with console(scene.ended(), run) as (app, pilot, _):
        page = await opened(app, pilot)
        for key in ("enter", "2", "escape"):
            app.simulate_key(key)
        await settled(pilot, lambda: "back from boxa" in said(app))
        await settled(pilot, lambda: not app.turns._busy)
        assert app.screen is page
        await pilot.press("escape")
        assert app.screen is not page, "a key that comes later counts"


def test_every_end_of_a_visit_has_words() -> None:
    host = Host("a", "a", "/opt/omni")
    ends = [Left(0), Left(255), Left(127, "x"), Left(-2), Left(7, "Connection to a closed.")]
    assert [left_words(host, one) for one in ends] == [
        "back from a", "a: ssh failed (255): the connection ended",
        "a: no /opt/omni there (127): `command` in the fleet file",
        "a: ssh was ended by signal 2",
        "a: ended with exit code 7; its words stand behind this console",
    ]  # fmt: skip
