"""Every key on every screen, against scenes: what it sends, what it says, what it never does."""

import asyncio
import importlib
import time
from typing import Any

import pytest
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import Input, Static

from console.frontends.tui.app import ConsoleApp
from console.frontends.tui.terminal.frames import TURNS, FramedScreen
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.journal.state import RunState
from console.recovery.rollback.baseline_state import BY_KEY
from console.render.keymap import ACTIONS, OWNERS, Action, of_scope
from screens.dialogs import AskScreen, FormScreen
from screens.emergency import RollbackScreen
from screens.operations import OperationsScreen
from tests.ui import scene
from tests.ui.opened import Asked, console, said, settled
from tests.ui.opened import screen as drawn
from widgets.bars import BaselineBadge, KeyLine, StatusLine
from widgets.log_pane import LogPane
from widgets.rows import Rows, TextView


async def test_plain_verbs_are_sent_and_forbidden_ones_say_why(run: RunDir, asked: Asked) -> None:
    async with console(scene.running(), run) as (app, pilot, _):
        for key in "nyNrsu":
            app.screen.query_one(KeyLine).untell()
            await pilot.press(key)
            assert said(app), key
            assert isinstance(app.screen, OperationsScreen)
        assert asked == []
        await pilot.press("a", "p")
        await settled(pilot, lambda: len(asked) == 2)
        assert asked == [("auto", {}), ("pause", {})]


async def test_an_error_is_not_taken_away_by_what_is_none(run: RunDir) -> None:
    async with console(scene.running(), run) as (app, _, _):
        keys = app.screen.query_one(KeyLine)
        app.say("it acted nowhere", "error")
        app.say("back from boxa", "information")
        assert [words in words_of(keys) for words in ("it acted nowhere", "back from")] == [
            True
        ] * 2
        app.say("the log is at its end", "information")
        assert "it acted nowhere" not in words_of(keys)
        app.say("refused", "error")
        app.say("refused again", "error")
        assert words_of(keys).count("refused") == 1


async def test_an_approval_is_answered_by_y_once_it_can_have_been_read(
    run: RunDir, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(scene.running(), run) as (app, pilot, watchers):
        monkeypatch.setattr("screens.actions.READ_S", 3600.0)
        watchers.tell(scene.snapshot(run, scene.approval()))
        await settled(pilot, lambda: app.snapshot and app.snapshot.word == "waiting_approval")
        await pilot.press("y")
        assert said(app)
        monkeypatch.setattr("screens.actions.READ_S", 0.0)
        await pilot.press("enter", "enter", "space")
        assert asked == []
        await pilot.press("y")
        await settled(pilot, lambda: asked)
        assert asked == [("approve", {})]


async def test_a_typed_word_confirms_and_neither_enter_nor_a_paste_does(
    run: RunDir, asked: Asked
) -> None:
    made = scene.approval()
    control = {**scene.control_of(made), "confirm": "SWITCH"}
    async with console(made, run, control=control) as (app, pilot, _):
        await pilot.press("y")
        entry = app.screen.query_one(Input)
        entry.post_message(Paste("SWITCH"))
        await pilot.pause()
        assert entry.value == ""
        await pilot.press("enter")
        await pilot.press(*"switch", "enter")
        assert isinstance(app.screen, AskScreen)
        assert asked == []
        entry.value = "SWITCH"
        await pilot.press("enter")
        await settled(pilot, lambda: asked)
        assert asked == [("approve", {"confirm": "SWITCH"})]


async def test_a_sentence_to_type_is_shown_to_its_end(run: RunDir, asked: Asked) -> None:
    made, words = scene.approval(), f"{'I have read every line ' * 4}and mean it"
    async with console(made, run, control={**scene.control_of(made), "confirm": words}) as opened:
        app, pilot, _ = opened
        await pilot.press("y")
        await settled(pilot, lambda: isinstance(app.screen, AskScreen))
        prompt = app.screen.query_one(".prompt", Static)
        assert f"type {words}," in str(prompt.render())


HELD = scene.view(8, state=RunState.PAUSED, reason="hold")


@pytest.mark.parametrize(
    ("made", "key", "verb"), [(scene.failed(), "s", "skip"), (HELD, "y", "approve")]
)
async def test_a_skip_and_an_override_need_a_reason(
    run: RunDir, asked: Asked, made: RunView, key: str, verb: str
) -> None:
    async with console(made, run) as (app, pilot, _):
        await pilot.press(key, "enter")
        assert isinstance(app.screen, AskScreen)
        assert asked == []
        await pilot.press(*"qna2", "enter")  # in a field the keys are text
        await settled(pilot, lambda: asked)
        assert asked == [(verb, {"why": "qna2"})]


async def test_abort_is_typed_and_escape_leaves_it(run: RunDir, asked: Asked) -> None:
    async with console(scene.running(), run) as (app, pilot, _):
        await pilot.press("x", "escape")
        assert isinstance(app.screen, OperationsScreen)
        await pilot.press("x", *"abort", "enter")
        await settled(pilot, lambda: asked)
        assert [verb for verb, _ in asked] == ["abort"]


async def test_a_retry_sends_only_what_was_changed(run: RunDir, asked: Asked) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        await pilot.press("r")
        assert isinstance(app.screen, FormScreen)
        app.screen.query(Input).last().value = "4096"
        await pilot.press("enter", "enter", "enter")
        await settled(pilot, lambda: asked)
        assert asked == [("retry", {"inputs": {"ctx": "4096"}})]


async def test_a_gate_that_lacks_samples_offers_to_measure_again(run: RunDir, asked: Asked) -> None:
    offer = "measure the baseline again"
    few = "gate go is HOLD: bench.tok_s: 1 of 5 baseline runs valid; 3 needed"
    paused = {"state": RunState.PAUSED, "reason": "few_samples", "offer": offer, "detail": few}
    async with console(scene.view(8, **paused), run) as (app, pilot, _):
        text = " ".join(app.screen.query_one("#detail", TextView).text.split())
        assert f" r {offer}" in text
        assert "1 of 5 baseline runs valid; 3 needed" in text
        await pilot.press("r")
        assert isinstance(app.screen, FormScreen)
        assert app.screen.submit == "Measure the baseline again"
        await pilot.press("enter", "enter", "enter", "enter")
        await settled(pilot, lambda: asked)
        assert asked == [("measure", {"inputs": {}})]
        await pilot.press("r", "down", "enter", "enter", "enter", "enter")
        await settled(pilot, lambda: len(asked) == 2)
        assert asked[1] == ("retry", {"inputs": {}})


async def test_a_retry_that_is_not_taken_keeps_what_was_typed(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.actions.ask", lambda *_, **__: "input 'ctx': at most 8192")
    async with console(scene.failed(), run) as (app, pilot, _):
        await pilot.press("r")
        app.screen.query(Input).last().value = "9000"
        await pilot.press("enter", "enter", "enter")
        await settled(pilot, lambda: isinstance(app.screen, FormScreen) and app.screen.is_mounted)
        assert isinstance(app.screen, FormScreen)
        await settled(pilot, lambda: len(app.screen.query(Input)) > 1)
        *_, ctx, why = app.screen.query(Input)
        assert ctx.value == "9000"
        assert "at most 8192" in app.screen.intro
        assert app.screen.values() == {"ctx": "9000"}
        why.value = "a trial"
        sent: list[dict[str, Any]] = []
        monkeypatch.setattr("screens.actions.ask", lambda *_, **words: sent.append(words) or "")
        await pilot.press("enter", "enter", "enter", "enter")
        await settled(pilot, lambda: sent)
        assert sent == [{"inputs": {"ctx": "9000"}, "why": "a trial"}]


async def test_readonly_changes_nothing(run: RunDir, asked: Asked) -> None:
    async with console(scene.failed(), run, readonly=True) as (app, pilot, watchers):
        for key in ("r", "s", "x", "y", "n", "a", "N", "v", "f12", "ctrl+backslash", "u"):
            app.screen.query_one(KeyLine).untell()
            await pilot.press(key)
            assert "read-only" in said(app), key
        assert (watchers.presses, asked) == (0, [])
        assert "READ-ONLY" in app.screen.query_one(BaselineBadge).text


@pytest.mark.parametrize(
    ("made", "word", "told"),
    [
        (scene.failed(), "paused", "'up' failed"),
        (scene.failed(), "interrupted", "the runner is gone"),
        (scene.approval(), "waiting_approval", "'look' waits for an answer"),
    ],
)
async def test_readonly_names_no_key_that_it_refuses(
    run: RunDir, made: RunView, word: str, told: str
) -> None:
    async with console(made, run, readonly=True, word=word) as (app, pilot, _):
        assert app.screen.query_one("#next", Rows).text == f" NEXT  {told}"

        async def badge(**changes: Any) -> str:
            app._baseline_seen(scene.baseline(**changes))
            await pilot.pause()
            return app.screen.query_one(BaselineBadge).text

        cut_over = await badge(word="cut over", detail=f"to candidate{BY_KEY}")
        assert "to candidate" in cut_over
        assert "F12" not in cut_over
        assert "  not proven yet  " in await badge(proven_at=0.0)


async def test_why_a_rollback_failed_is_said_to_the_end_on_a_small_terminal(run: RunDir) -> None:
    why = (
        "not ready: something else answers at the baseline's address, http://127.0.0.1:8000: pid 7"
    )
    doubt = f"not proven since a rollback failed at 23:01:18: {why}"
    async with console(scene.failed(), run, size=(80, 24)) as (app, pilot, _):
        line = app.screen.query_one(BaselineBadge)
        app._baseline_seen(scene.baseline("down", doubt=doubt, figure=None))
        await pilot.pause()
        rows = line.text.splitlines()
        assert doubt in " ".join(line.text.split())
        assert len(rows) == line.size.height == 3
        assert "F12" in rows[-1]
        assert max(map(len, rows)) <= 80
        app._baseline_seen(scene.baseline("down", doubt=f"{doubt} {'and more ' * 40}"))
        await pilot.pause()
        rows = line.text.splitlines()
        assert len(rows) == line.size.height == 4
        assert rows[-2].endswith(("and …", "more …"))


PLACES = {
    "operations": [], "playbooks": ["2"], "runs": ["3"], "host": ["4"], "hosts": ["7"],
    "help": ["question_mark"], "palette": ["ctrl+p"], "palette, typed": ["ctrl+p", "q"],
    "reason": ["s"], "a reason half typed": ["s", "a", "b"], "form": ["r"], "report": ["o"],
    "log": ["l"], "log search": ["l", "slash", "x"], "abort": ["x"], "zoomed": ["z"],
}  # fmt: skip


async def rolls_back(
    app: ConsoleApp, pilot: Pilot[int], watchers: scene.StandInWatchers, key: str
) -> None:
    """The key acts and its view comes, once however often it is pressed."""
    before = watchers.presses
    await pilot.press(key)
    assert watchers.presses == before + 1
    page = app.screen
    assert isinstance(page, RollbackScreen)
    await settled(pilot, lambda: "THE BASELINE SERVES" in page.query_one("#head", Rows).text)
    assert "container deepseek-r1 started" in page.query_one("#stages", TextView).text
    await pilot.press(key)
    assert len([s for s in app.screen_stack if isinstance(s, RollbackScreen)]) == 1


@pytest.mark.usefixtures("few_playbooks")
async def test_the_emergency_key_works_in_every_place_and_escape_leads_back(
    run: RunDir, asked: Asked
) -> None:
    async with console(scene.failed(), run) as (app, pilot, watchers):
        for number, (place, keys) in enumerate(PLACES.items()):
            await pilot.press(*keys)
            before, presses = app.screen, watchers.presses
            await rolls_back(app, pilot, watchers, ("f12", "ctrl+backslash")[number % 2])
            await pilot.press("escape")
            assert app.screen is before, place
            assert watchers.presses == presses + 2
            await pilot.press("escape", "escape", "escape")
            await settled(pilot, lambda: isinstance(app.screen, OperationsScreen), place)
            assert len(app.screen_stack) == 1
        assert asked == []
        assert app.is_running


async def test_n_goes_to_matches_while_the_log_is_searched_wherever_the_focus_is(
    run: RunDir, asked: Asked
) -> None:
    paused = scene.view(8, state=RunState.PAUSED, reason="operator")
    async with console(paused, run, size=(100, 30)) as (app, pilot, _):
        pane = app.screen.query_one(LogPane)
        await settled(pilot, lambda: len(pane.buffer))
        await pilot.press("l", "slash", *"CUDA", "enter")
        await settled(pilot, lambda: pane.buffer.settled and pane.buffer.searched)
        await pilot.press("shift+tab", "shift+tab")
        assert not pane.has_focus_within
        await pilot.press("n", "N")
        assert asked == []
        assert pane.view.here is not None
        await pilot.press("escape", "n")
        await settled(pilot, lambda: asked)
        assert asked == [("next", {})]


async def test_the_next_log_is_a_key_away_from_the_steps(run: RunDir) -> None:
    async with console(scene.running(), run) as (app, pilot, _):
        pane = app.screen.query_one(LogPane)
        await settled(pilot, lambda: "candidate  ] the runner" in drawn(pilot))
        await pilot.press("right_square_bracket")
        await settled(pilot, lambda: "the runner's own log  ] candidate" in drawn(pilot))
        await pilot.press("left_square_bracket")
        await settled(pilot, lambda: "print_timing" in drawn(pilot))
        assert not pane.has_focus_within


async def test_a_dialog_has_the_footer_and_the_next_line(run: RunDir) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        below = app.screen
        await settled(pilot, lambda: "r Retry" in drawn(pilot))
        await pilot.press("s")
        await settled(pilot, lambda: isinstance(app.screen, AskScreen))
        keys, after = below.query_one(KeyLine), below.query_one("#next", Rows)
        await settled(pilot, lambda: "Esc" in words_of(keys) and "Retry" not in words_of(keys))
        assert "Enter answers it" in words_of(after)
        await pilot.press("escape")
        await settled(pilot, lambda: "Retry" in words_of(keys))
        assert "'up' failed" in words_of(after)


async def test_looking_at_another_step_does_not_move_the_run(run: RunDir, asked: Asked) -> None:
    async with console(scene.running(), run) as (app, pilot, _):
        await pilot.press("g")
        detail = app.screen.query_one("#detail", TextView)
        await settled(pilot, lambda: "Is the image there?" in detail.text)
        await pilot.press("escape")
        await settled(pilot, lambda: "run 4/9" in detail.text)
        assert asked == []


@pytest.mark.usefixtures("few_playbooks")
@pytest.mark.parametrize("size", [pytest.param((200, 60), marks=pytest.mark.full), (30, 8), (1, 1)])
async def test_it_draws_at_any_size(run: RunDir, size: tuple[int, int]) -> None:
    """At 80x24 every test of this file draws them, at 60x20 and 120x40 the pictures do."""
    async with console(scene.approval(), run, size=size) as (app, pilot, _):
        for keys in PLACES.values():
            await pilot.press(*keys, "escape", "escape")
        app.export_screenshot()


async def test_the_palette_has_every_action_of_the_registry(run: RunDir) -> None:
    async with console(scene.running(), run) as (app, _, _):
        titles = [command.title for command in app.get_system_commands(app.screen)]
        for found in (*of_scope("app"), *of_scope("run")):
            if found.id not in ("command_palette", "back"):
                assert any(title.removeprefix("! ").startswith(found.title) for title in titles)


@pytest.mark.parametrize("found", ACTIONS, ids=lambda found: found.id)
def test_every_action_of_the_registry_is_bound(found: Action) -> None:
    module = importlib.import_module(OWNERS[found.scope].removesuffix(".py").replace("/", "."))
    owners = [
        name for name, owner in vars(module).items()
        if isinstance(owner, type) and owner.__module__ == module.__name__
        and hasattr(owner, f"action_{found.id}")
    ]  # fmt: skip
    assert owners, f"no action_{found.id} in {OWNERS[found.scope]}"


async def test_an_app_that_is_asked_again_for_a_lost_run_goes_on(run: RunDir) -> None:
    async with console(scene.running(), run) as (app, pilot, watchers):
        detail = app.screen.query_one("#detail", TextView)
        watchers.tell(scene.snapshot(run, RunView(), word="unreadable", trouble="disk I/O error"))
        await settled(pilot, lambda: "disk I/O error" in detail.text)
        watchers.tell(scene.nothing())
        await settled(pilot, lambda: "no run" in app.screen.query_one(StatusLine).text)
        await pilot.press("n")
        assert "2 picks a playbook" in said(app)


def words_of(rows: Rows) -> str:
    return "".join(text for row in rows._rows for text, _ in row)


async def test_no_frame_is_lost_while_a_new_screen_gathers_its_first(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        sent: list[object] = []
        monkeypatch.setattr(app, "_display", lambda _screen, frame: sent.append(frame))
        screen, line = app.screen, app.screen.query_one(KeyLine)
        assert isinstance(screen, FramedScreen)
        monkeypatch.setattr(screen, "_made", time.monotonic() + 3600)  # it is new for an hour

        screen._turns = 1
        line.refresh()
        screen._dirty_widgets.add(line)  # after the look that the coming frame is drawn from
        screen._one_turn()
        assert [one is not None for one in sent] == [True], "it has what became dirty meanwhile"

        sent.clear()
        app._begin_batch()
        line.refresh()
        screen._dirty_widgets.add(line)
        screen._compositor_refresh()
        for _ in range(4 * TURNS):
            await asyncio.sleep(0)
        assert sent == [], "Textual sends nothing in a batch"
        app._end_batch()
        await settled(pilot, lambda: any(sent))
