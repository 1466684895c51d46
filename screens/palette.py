"""Textual's palette without two of its traps: keys that come in one burst, and an empty list."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette


class Palette(CommandPalette):
    """Left once; page keys wait until there is something to page through."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """A second Enter of the same burst would pop the screen below."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        """A list that has no height yet raises KeyError when it is paged."""
        if self.query_one(CommandList).scrollable_content_region.height:
            super()._action_command_list(action)
