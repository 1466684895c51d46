"""What can be done now, in words and keys: from the run's state and the one registry of actions."""

from __future__ import annotations

from collections.abc import Iterable

from textual.timer import Timer

from console.common.text import clean
from console.journal.run_view import RunView
from console.journal.state import RunState, possible_verbs
from console.render.keymap import EMERGENCY, Action, action, of_scope
from widgets.rows import Part, Row, Rows, fit, width_of
from widgets.step_text import wrapped

SAY_S = 5.0
_KEYED = ("approve", "reject", "next", "auto", "pause", "retry", "skip", "abort")
_WORDS = {
    "approve": "approve", "reject": "turn it down", "next": "run the next step",
    "auto": "run to the next gate", "pause": "pause after this step",
    "retry": "try again, an input may be changed", "skip": "skip, with a reason",
    "abort": "abort and roll back",
}  # fmt: skip


def verbs_now(view: RunView, word: str, at: str = "") -> list[str]:
    """The verbs that have a key and are possible now; `resume` where the runner is gone.

    `at`: the step a paused run stands before; a gate and the plan's own rows are not skipped.
    """
    if word in ("none", "unreadable"):
        return []
    if word == "interrupted":
        return ["resume"]
    possible = possible_verbs(view.state, view.reason) if not view.over else []
    step = view.step(at) or view.current
    if step is not None and (step.kind == "gate" or step.implicit):
        possible = [verb for verb in possible if verb != "skip"]
    return [verb for verb in _KEYED if verb in possible]


def option_rows(view: RunView, word: str, confirm: str, width: int, at: str = "") -> list[Row]:
    """A paused or waiting run: each way on, with its key. Nothing while it simply runs."""
    if word == "interrupted":
        text = "The runner is gone; nothing is lost. u resumes, F12 brings the baseline back."
        return [((line, "bad"),) for line in wrapped(text, width)]
    if view.over or view.state not in (RunState.PAUSED, RunState.WAITING_APPROVAL):
        return []
    items = []
    for verb in verbs_now(view, word, at):
        words = _WORDS[verb]
        if verb == "approve" and view.state is RunState.PAUSED:
            words = "override the gate, with a reason"
        elif verb == "approve" and confirm:
            words = f"approve by typing {clean(confirm, 40)}"
        items.append((action(verb).first, words))
    items.append((EMERGENCY.first, "roll back now"))
    rows: list[Row] = []
    line: list[Part] = []
    for key, words in items:
        part: list[Part] = [(f" {key} ", "cursor"), (f" {words}  ", "")]
        if line and width_of([*line, *part]) > width:
            rows.append(tuple(line))
            line = []
        line += part
    return [*rows, fit(tuple(line), width)]


def key_row(actions: Iterable[Action], width: int) -> Row:
    """Keys and titles in one line, as many as fit; what comes first matters most."""
    row: list[Part] = []
    for found in actions:
        tone = "alarm" if found is EMERGENCY else "cursor"
        item: list[Part] = [(f" {found.first} ", tone), (f"{found.title} ", "")]
        if width_of([*row, *item]) <= width:
            row += item
    return tuple(row)


OPEN = Action("pick", ("enter",), "Open", "Open what the cursor stands on.", "list")


class KeyLine(Rows):
    """The footer: what the keys do here, and the answer to the last one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn: tuple[str, tuple[str, ...], bool] = ("run", (), False)
        self._words = ""
        self._timer: Timer | None = None

    def draw(self, scope: str, verbs: Iterable[str] = (), *, readonly: bool = False) -> None:
        """The emergency key, the verbs possible now, the scope's own keys, help and quit."""
        self._drawn = (scope, tuple(verbs), readonly)
        if self._words:
            return
        first = [] if readonly else [EMERGENCY]
        wanted: list[Action] = [action(verb) for verb in self._drawn[1]]
        tail = [action("show_help"), action("leave")]
        if scope == "run":
            wanted += [action("playbooks"), action("runs"), action("focus_log")]
        else:
            here = of_scope(scope)
            wanted += [a for a in here if a.footer and not (readonly and a.changes)]
            tail.insert(0, action("back"))
            if scope in ("playbooks", "runs", "lessons"):
                wanted.append(OPEN)
        width = self.size.width or 80
        # what is left out first: the scope's keys, then help and quit, the emergency never
        head = key_row(first, width)
        end = key_row(tail, width - width_of(head))
        room = width - width_of(head) - width_of(end)
        self.show([(*head, *key_row(wanted, room), *end)])

    def tell(self, words: str, tone: str) -> None:
        """A sentence in place of the keys, for a few seconds: it covers nothing else."""
        self._words = words
        rows = wrapped(words, (self.size.width or 80) - 1)
        self.show([((line, tone),) for line in rows[:4]])
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(SAY_S, self.untell)

    def untell(self) -> None:
        """The keys again."""
        self._words = ""
        scope, verbs, readonly = self._drawn
        self.draw(scope, verbs, readonly=readonly)

    @property
    def words(self) -> str:
        """The sentence that stands here now."""
        return self._words
