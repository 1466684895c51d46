"""The lines around a screen: the baseline, the gauges, the run, the keys, what can be done now.

Words and keys come from the run's state and the single registry of actions.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual.binding import Binding, BindingType
from textual.timer import Timer

from console.common.progress import clock
from console.common.text import clean
from console.journal.run_view import RunView
from console.journal.state import ENDS, STANDING, UNDECIDED, Mark, RunState, possible_verbs, stands
from console.recovery.rollback.baseline_state import BY_KEY
from console.render.cells import cells, glyphs
from console.render.cutover import cut_over
from console.render.facts.run import DOWN, decision, notes
from console.render.facts.words import RUN_TONE, state_words
from console.render.keymap import EMERGENCY, Action, action, of_scope
from console.render.progress import run_progress
from console.render.upcoming import NOTHING, ShownBaseline, on_site
from widgets.rows import Part, Row, Rows, fit, once, spread, width_of
from widgets.steps import paragraph, progress_words

if TYPE_CHECKING:
    from console.frontends.tui.watch.baseline import BaselineView
    from console.recovery.rollback.baseline_state import BaselineState

SAY_S, SAY_LINES = 5.0, 4
MAX_WHY = 3
"""Rows that say why a baseline is not well."""
OTHER = EMERGENCY.shown.split()[1]
"""The key for a terminal that keeps the first one for itself, as Guake does."""
_KEYED = ("approve", "reject", "next", "auto", "pause", "retry", "skip", "abort")
_WORDS = {
    "approve": "approve", "reject": "turn it down", "next": "run the next step",
    "auto": "run to the next gate", "pause": "pause after this step",
    "retry": "try again, an input may be changed", "skip": "skip, with a reason",
    "abort": "abort and roll back",
}  # fmt: skip

TONE = {
    "serving": "good", "degraded": "warn", "loading": "warn", "refusing": "bad", "garbled": "bad",
    "down": "bad", "cut over": "warn", "unknown": "warn", "none": "dim",
}  # fmt: skip

NO_TITLES: dict[str, str] = {}
TENS = 10
NAMED = 100
"""Columns from which on the run's row names its playbook."""
MIN_ROOM = 24
"""Cells for a run's progress below which it is only words."""


def bindings(scope: str) -> list[BindingType]:
    """The bindings of one scope, for a BINDINGS class variable."""
    return [binding(action) for action in of_scope(scope)]


def binding(action: Action, *, priority: bool = False) -> Binding:
    """One action's binding, its help as the tooltip."""
    return Binding(
        ",".join(action.keys), action.id, action.title, show=action.footer,
        key_display=action.first, priority=priority, tooltip=action.help, id=action.id,
    )  # fmt: skip


def verbs_now(view: RunView, word: str, at: str) -> list[str]:
    """The verbs that have a key and are possible now; `resume` if the runner is gone.

    `at`: the step before which a paused run stands; gates and the plan's own rows cannot be
    skipped.
    """
    if word in ("none", "unreadable", "rolling_back"):
        return []
    if word == "interrupted":
        return ["resume"]
    possible = possible_verbs(view.state, view.reason) if not view.over else []
    step = view.step(at) or view.current
    if step is not None and (step.kind == "gate" or step.implicit):
        possible = [verb for verb in possible if verb != "skip"]
    keyed = [verb for verb in _KEYED if verb in possible]
    # where a gate is undecided, to measure again comes before to override it
    return sorted(keyed, key="retry".__ne__) if view.reason in UNDECIDED else keyed


def titles_now(view: RunView) -> dict[str, str]:
    """What the keys of an undecided gate do, for the footer."""
    if view.reason not in UNDECIDED or view.state is not RunState.PAUSED:
        return {}
    return {"approve": "Override", "retry": "Measure" if view.offer else "Judge"}


def option_rows(view: RunView, word: str, confirm: str, width: int, at: str = "") -> list[Row]:
    """For a paused or waiting run: each option with its key. Nothing while it runs."""
    if word == "interrupted":
        text = "The runner is gone; nothing is lost. u resumes, F12 brings the baseline back."
        return paragraph(text, width, "bad")
    if view.over or view.state not in STANDING:
        return []
    items = []
    for verb in verbs_now(view, word, at):
        words = _WORDS[verb]
        if verb == "approve" and view.state is RunState.PAUSED:
            words = "override the gate, with a reason"
        elif verb == "retry" and view.offer:
            words = clean(view.offer)
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
    """Keys and titles in one line, the most important first, as many as fit."""
    row: list[Part] = []
    for key_action in actions:
        tone = "alarm" if key_action is EMERGENCY else "cursor"
        item: list[Part] = [(f" {key_action.first} ", tone), (f"{key_action.title} ", "")]
        if width_of([*row, *item]) <= width:
            row += item
    return tuple(row)


OPEN = Action("pick", ("enter",), "Open", "Open what is under the cursor.", "list")
ANSWER = (
    Action("answer", ("enter",), "Answer", "Give the answer.", "dialog"),
    Action("leave_it", ("escape",), "Leave it", "Give none.", "dialog"),
)
CLOSE = Action("close", ("escape",), "Close", "Close it; what it shows goes on.", "view")
OVER = {"dialog": ANSWER, "view": (CLOSE,)}
"""What the footer offers under a dialog, by its kind."""
PAGES = ("playbooks", "runs", "hosts", "focus_log", "breach", "host", "preflight", "lessons",
         "source_next", "command_palette")  # fmt: skip
"""What the main screen's footer offers besides the verbs, as far as there is room."""


class KeyLine(Rows):
    """The footer: what the keys do here, and the answer to the last one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._again: Callable[[], None] = partial(self.draw, "run")
        self._words, self._tone = "", ""
        self._timer: Timer | None = None

    def draw(
        self, scope: str, verbs: Iterable[str] = (), titles: Mapping[str, str] = NO_TITLES,
        *, readonly: bool = False, fleet: bool = False, restores: bool = True,
    ) -> None:  # fmt: skip
        """The emergency key if it `restores` anything, the verbs possible now, the scope's own
        keys, help and quit. `titles`: what a verb does now, where that is not what it is called;
        `fleet`: whether there are other hosts to look at."""
        more = {"readonly": readonly, "fleet": fleet, "restores": restores}
        self._again = partial(self.draw, scope, verbs := tuple(verbs), dict(titles), **more)
        if self._words:
            return
        first = [EMERGENCY] if restores and not readonly else []
        wanted: list[Action] = [action(verb) for verb in verbs]
        wanted = [
            replace(verb_action, title=titles.get(verb_action.id, verb_action.title))
            for verb_action in wanted
        ]
        tail = [action("show_help"), action("leave")]
        if scope == "run":
            pages = [page for page in PAGES if page != "hosts" or fleet]
            wanted += map(action, pages)
        elif scope in OVER:
            wanted, tail = [*OVER[scope]], []
        else:
            here = of_scope(scope)
            wanted += [a for a in here if a.footer and not (readonly and a.changes)]
            wanted += [action("source_next")] if scope == "log" else []
            tail.insert(0, action("back"))
            if scope in ("playbooks", "runs", "lessons", "hosts"):
                wanted.append(OPEN)
        width = self.size.width or 80
        # what is left out first: the scope's keys, then help and quit, the emergency never
        head = key_row(first, width)
        end = key_row(tail, width - width_of(head))
        room = width - width_of(head) - width_of(end)
        self.show([(*head, *key_row(wanted, room), *end)])

    def tell(self, words: str, tone: str) -> None:
        """Show a sentence in place of the keys, for a few seconds. An error that still stands there
        stays above what is no error: nobody has asked for that to be taken away."""
        width, before = (self.size.width or 80) - 1, list[Row]()
        if self._words and self._tone == "bad" != tone:
            before = paragraph(self._words, width, "bad")
        self._words, self._tone = words, tone
        self.show([*before, *paragraph(words, width, tone)][:SAY_LINES])
        if self._timer is not None:
            self._timer.stop()
        self._timer = once(self, SAY_S, self.untell)

    def untell(self) -> None:
        """Show the keys again."""
        self._words = ""
        self._again()

    @property
    def words(self) -> str:
        """The sentence shown now."""
        return self._words


def badge(
    view: BaselineView | None, now: float, width: int, since: float = 0.0, *, readonly: bool = False
) -> Row:
    """`● SERVING deepseek-r1  10.9 tok/s, proven 14:03`; words before colour, cut from the end.
    `since`: when the run on show took it down, Unix seconds; 0.0 if that is not known."""
    if view is None:
        return (("baseline: looking ", "dim"), (glyphs().ellipsis, "dim"))
    state = view.state
    if state is None:
        return (("no baseline known: ", "bold"), ("no site file and no run yet", "dim"))
    if view.planned:
        return _planned(view, state.detail, since, width)
    tone = TONE.get(view.word, "dim")
    row: list[tuple[str, str]] = [
        (f"{glyphs().dot} {view.word.upper()}", tone), (f" {view.name}", "bold"),
    ]  # fmt: skip
    if not state.up:
        reasons = [reason.removesuffix(BY_KEY) if readonly else reason for reason in state.reasons]
        return (*row, *([(f"  {'; '.join(reasons)}", tone)] if reasons else []))
    for forms in _serving_facts(view, state, now, readonly):
        room = width - width_of(row) - 2
        fact = next((form for form in forms if form and len(form) <= room), "")
        row += [(f"  {fact}", "")] if fact else []
    return tuple(row)


def _serving_facts(
    view: BaselineView, state: BaselineState, now: float, readonly: bool
) -> Iterator[tuple[str, ...]]:
    """How fast a baseline that serves is, and what has proven it, each in shorter and shorter
    words. That it is not proven comes first."""
    figure, slow = state.figure, view.word == "degraded"
    if view.reference and not slow:
        # the few tokens of a proof say that it answers, not how fast it is
        speed = f"reference {view.reference:g} tok/s"
    elif figure is not None and slow and view.reference and figure.tok_s >= view.reference:
        speed = "slower than its reference"  # an answer that is late since then has no rate
    elif figure is not None:
        of = f" of {view.reference:g}" if view.reference and slow else ""
        speed = f"{rate(figure.tok_s)}{of} tok/s"
    else:
        speed = ""
    if state.doubt:
        yield (state.doubt, "not proven")
    if state.remark:
        yield (state.remark, state.remark.partition(":")[0])
    yield (speed,)
    if not state.proven_at:
        yield ("not proven yet" if readonly else "not proven yet: v asks it",)
    elif not state.doubt:
        proof = state.proof_words(now)
        yield (proof, proof.partition(" by ")[0])


def _planned(view: BaselineView, why: str, since: float, width: int) -> Row:
    """`▼ DOWN for this run since 13:52  deepseek-r1  reference 10.9 tok/s`."""
    begun = f" since {time.strftime('%H:%M', time.localtime(since))}" if since else ""
    row: list[Part] = [(f"{glyphs().down} DOWN {why}", "warn"), (begun, "")]
    row.append((f"  {view.name}", "bold"))
    reference = f"  reference {view.reference:g} tok/s" if view.reference else ""
    if width_of([*row, (reference, "")]) <= width:
        row.append((reference, "dim"))
    return tuple(row)


def rate(tok_s: float) -> str:
    """Tokens a second, three figures: 3.68, 10.9, 205, 6150."""
    return f"{tok_s:.3g}" if tok_s < 999.5 else f"{tok_s:.0f}"


def _when(at: float, now: float) -> str:
    """A time of day; with the date if it is older than half a day."""
    form = "%H:%M:%S" if now - at < 43_200 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at))


def emergency(
    live: bool, rollback: str, restore_s: float | None, readonly: bool, width: int,
    *, possible: bool = True,
) -> Row:  # fmt: skip
    """What the emergency key does now, and how long it takes, in as many words as fit. `possible`:
    whether there is a baseline to restore."""
    key = EMERGENCY.first
    if readonly:
        word: Part = ("READ-ONLY", "warn")
        return _longest(width, (word, (" omni-console rollback from a shell", "dim")), (word,))
    if rollback:
        return (
            (rollback.upper(), "alarm" if rollback == "rolling back" else "warn"),
            (f" {key} shows it", ""),
        )
    back = "" if restore_s is None else f" ({about(restore_s)})"
    if live:
        lead: Part = (f" {key} ", "alarm")
        known = back or " (not timed yet)"
        return _longest(
            width,
            (lead, ("or ", "dim"), (f" {OTHER} ", "alarm"),
             (f" stop candidates, restore baseline{known}", "bold")),
            (lead, (f" stop candidates, restore baseline{known}", "bold")),
            (lead, (f" restore baseline{back}", "bold")),
            (lead, (f" {EMERGENCY.title}{back}", "bold")),
        )  # fmt: skip
    if not possible:
        return _longest(
            width, ((f"{key}: nothing to restore yet", "dim"),), ((f"{key}: –", "dim"),)
        )
    return _longest(
        width, ((f"{key} restores the baseline{back}", "dim"),),
        ((f"{key} {EMERGENCY.title}{back}", "dim"),),
    )  # fmt: skip


def _longest(width: int, *rows: Row) -> Row:
    """The first row that fits, else the last."""
    return next((row for row in rows if width_of(row) <= width), rows[-1])


def about(seconds: float) -> str:
    """`~1 s`, `~1:14`: a duration that only serves as a rough guide."""
    return f"~{max(1, round(seconds))} s" if seconds < 60 else f"~{clock(seconds)}"


class BaselineBadge(Rows):
    """The baseline and the emergency key, always in view: one row, or two where the window is too
    narrow for both. Why a baseline is not well takes up to MAX_WHY rows."""

    def draw(self, left: Callable[[int], Row], right: Callable[[int], Row], width: int) -> None:
        """Draw what both say in so many cells; the key's words give way first."""
        left_row = left(width - width_of(right(0)) - 2)
        key = right(width - width_of(left_row) - 2)
        if width_of(left_row) + width_of(key) + 2 <= width:
            self.show([spread(left_row, key, width)])
        else:
            self.show([*_folded(left(width), width), key])


def _folded(row: Row, width: int) -> list[Row]:
    """A row whose last part, why a baseline is not well, goes on below where it has no room; what
    has none there either is left out behind a whole word."""
    *lead, (text, tone) = row
    if width_of(row) <= width or tone not in ("bad", "warn"):
        return [row]
    first = width_of(lead) + 2
    lines = textwrap.wrap(
        text.strip(), max(10, width), initial_indent=" " * first, subsequent_indent="  ",
        break_on_hyphens=False, max_lines=MAX_WHY, placeholder=f" {glyphs().ellipsis}",
    )  # fmt: skip
    begins, *more = lines or [""]
    return [(*lead, (f"  {begins[first:]}", tone)), *(((line, tone),) for line in more)]


def status(
    view: RunView, word: str, mode: str, now: float, width: int, at: str = "", lease: str = "",
    shown: ShownBaseline = NOTHING,
) -> Row:  # fmt: skip
    """`RUNNING bench · to the end · decision GO migrate  4/12 steps · 12:05`; for a run that waits
    `Gate go undecided: you decide`. `shown`: whose baseline is on show."""
    dot = f" {glyphs().pending} "
    step = at or (view.current.id if view.current is not None else "")
    waits = stands(view.state, view.reason, clean(step)) if word == view.state else ""
    state = waits or state_words(word).upper()
    # first, where no width cuts it off
    left: list[Part] = [("last run ", "dim")] if view.over else []
    left += [(f"{Mark.REHEARSAL} ", "warn")] if view.rehearsal else []
    left.append((state, RUN_TONE.get(word, "")))
    if elsewhere := on_site(view, shown):
        left.append((f" {elsewhere}", "warn"))
    if view.reason and not waits:
        left.append((f" {state_words(view.reason)}", "warn"))
    if view.playbook and width >= NAMED and word != "unreadable":
        more = "".join(f" {fact.brief}" for fact in notes(view) if fact.brief)
        left.append((f"{dot}{clean(view.playbook, 40)}{more}", ""))
    current = None if waits else view.current
    if not waits and at and view.step(at) is not None and (current is None or at != current.id):
        left.append((f" before {clean(at)}", "bold"))
    elif current is not None and view.state not in ENDS:
        left.append((f" {clean(current.id)}", "bold"))
    if view.cutover:
        left.append((f"{dot}{cut_over(view)}", "warn"))
    elif view.outage and word == "interrupted":
        # its journal ends with its runner: how it is now the badge says
        left.append((f"{dot}baseline was down then", "bad"))
    elif view.outage and view.over:
        left.append((f"{dot}{DOWN}", "bad"))
    left += [(f"{dot}{lease}", "warn")] if lease else []
    if view.decision and view.reason not in UNDECIDED:
        known = decision(view)
        left += [(f"{dot}decision ", "dim"), (known.brief, known.tone)]
        if known.detail:
            left.append((f" {known.detail}", "bold"))
        if view.mark and not view.rehearsal:
            left.append((f" {view.mark}", "warn"))
    if mode and view.state is RunState.RUNNING:
        left.append((f"{dot}{MODES.get(mode, mode)}", "dim"))
    room = width - width_of(left) - 2
    right = run_progress(view, now, room) if view.state is RunState.RUNNING else ()
    if not right or room < MIN_ROOM:
        took = (view.ended or now) - view.created if view.created else 0.0
        lasted = standing(took) if view.state in STANDING else clock(took)
        summary = f"ended {_when(view.ended, now)}" if view.over else progress_words(view)
        whole = f"{summary}{dot}{lasted}"
        # an end's time gives way to the decision
        right = ((whole if not view.over or cells(whole) <= room else lasted, "dim"),)
    return spread(tuple(left), right, width, glyphs().ellipsis)


def standing(took: float) -> str:
    """The age of a run that waits for a person: in tens of seconds, so that nothing is sent to the
    terminal while nothing happens."""
    return clock(-int(-took // TENS) * TENS)  # up: a clock does not run backwards at a pause


MODES = {
    "step": "step by step", "gate": "to the gate", "all": "to the end", "pausing": "then pauses",
}  # fmt: skip


class StatusLine(Rows):
    """The run in one row, on every screen: state, where it is, decision, elapsed time."""
