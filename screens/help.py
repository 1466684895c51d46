"""What every key does, from the registry; and Textual's palette without two of its traps."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette

from console.render.keymap import EMERGENCY, SCOPES, Action, of_scope
from screens.base import ReadingPage
from widgets.rows import Row
from widgets.steps import behind, paragraph

MOVING = (
    "j k, arrows, PgUp PgDn, ^U ^D, g G move in every list; Tab goes to the next part; Enter "
    "opens, and never approves or skips."
)
SHELL = (
    "From a shell: omni-console rollback brings the baseline back with this console, the run or "
    "the engine broken; omni-console attach follows a run without screens; doctor says what is "
    "wrong here. Quitting never stops anything."
)


class HelpScreen(ReadingPage):
    """The keys, and the command line's way to do the same."""

    SCOPE = "help"
    HEAD = False

    def rows(self, width: int) -> list[Row]:
        return help_rows(max(30, width))


def help_rows(width: int) -> list[Row]:
    """The emergency first, then scope by scope."""
    rows = [*_action_rows(EMERGENCY, width, "bad"), (), *paragraph(MOVING, width)]
    for scope, title in SCOPES.items():
        rows += [(), ((title, "bold"),)]
        for found in of_scope(scope):
            if found is not EMERGENCY:
                rows += _action_rows(found, width)
    return [*rows, (), *paragraph(SHELL, width)]


def _action_rows(found: Action, width: int, tone: str = "accent") -> list[Row]:
    lead: Row = ((f"{found.shown:>10}", tone), (f"  {found.title:<13}", "bold"))
    return behind(lead, found.help, width)


class Palette(CommandPalette):
    """Left once, whatever keys come in one burst; page keys wait until there is something to page
    through."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """A second Enter of the same burst would pop the screen below."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        """A list that has no height yet raises KeyError when it is paged."""
        if self.query_one(CommandList).scrollable_content_region.height:
            super()._action_command_list(action)
