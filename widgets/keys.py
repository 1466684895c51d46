"""The registry's actions as Textual bindings."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from console.render.keymap import Action, of_scope


def bindings(scope: str) -> list[BindingType]:
    """The bindings of one scope, for a BINDINGS class variable."""
    return [binding(action) for action in of_scope(scope)]


def binding(action: Action, *, priority: bool = False) -> Binding:
    """One action's binding, its help as the tooltip."""
    return Binding(
        ",".join(action.keys), action.id, action.title, show=action.footer,
        key_display=action.first, priority=priority, tooltip=action.help, id=action.id,
    )  # fmt: skip
