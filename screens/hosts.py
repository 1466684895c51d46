"""The hosts of the fleet file: what each does, and the way into one's own console."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from textual.app import ComposeResult
from textual.driver import Driver

from console.common.errors import ConsoleError
from console.common.text import clean
from console.common.units import plural
from console.fleet.inventory import Host, fleet_path, load_fleet
from console.fleet.known import Known, clock, last, words_of
from console.fleet.line import NOT_FOUND, SSH_FAILED, console_argv, control_dir
from console.fleet.table import HEAD, cells, needs, notes, waits_for_slurm
from console.frontends.tui.terminal.driver import RESTORE
from console.frontends.tui.terminal.guest import BROWSER, Left, lend
from console.frontends.tui.watch.hosts import HostsWatch
from console.render.facts.words import RUN_TONE
from console.render.keymap import EMERGENCY
from screens.base import MIN_COLUMNS, Page
from widgets.bars import TONE
from widgets.rows import PickList, Row, Rows, TextView, fit, width_of
from widgets.steps import behind, paragraph

REFRESH_S = 5.0
"""Seconds until the fleet file is looked at again."""
TICK_S = 1.0
GAP = 2
HOST, BASELINE, RUN, KNOWN = 0, 1, 2, 6
WEIGHT = (HOST, BASELINE, KNOWN, RUN, 3, 4, 5)
"""The table's columns, the last ones left out where there is no room."""
SPARE = {RUN: 12, KNOWN: 19}
"""Columns for which so many cells are enough; they take what the others leave."""
ASKING = "asking …"
MARK = 2
NO_FILE = "There is no fleet file, {}. Write one, and this page shows its hosts:"
EXAMPLE = (
    "schema: omni.fleet/v1", "hosts:", "  boxa: {}",
    "  boxb: {ssh: ops@10.0.0.12, command: ~/omni-console}",
)  # fmt: skip
MORE = (
    "Each is a machine that `ssh NAME` reaches without a question, with an omni-console of its "
    "own. docs/how-to/fleet.md says more."
)


class HostsScreen(Page):
    """A table like that of `omni-console fleet`, asked anew all the time; Enter opens a host."""

    SCOPE = "hosts"
    DEFAULT_CSS = """
    HostsScreen #columns { padding: 0 1 0 0; }
    HostsScreen #list { background: $surface; }
    HostsScreen #detail { margin: 1 0 0 0; }
    HostsScreen.low #detail, HostsScreen.empty #detail { margin: 0; }
    HostsScreen.empty #columns, HostsScreen.empty #list { display: none; }
    HostsScreen #next { background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.hosts: tuple[Host, ...] = ()
        self.known: dict[str, Known] = {}
        self.asking: set[str] = set()
        self.problem: list[str] = []
        self.left: dict[str, str] = {}
        """How the visit to a host ended that did not end well."""
        self.watcher: HostsWatch | None = None
        self.place: int | None = None
        """Where the cursor's host is in a list that was read anew."""
        self.loaded = self.reading = False

    def body(self) -> ComposeResult:
        yield Rows(id="columns")
        yield PickList(id="list")
        yield TextView(id="detail")
        yield Rows(id="next")

    # -- what is known -------------------------------------------------------------------------

    def stand(self) -> None:
        self._look()
        self.set_interval(REFRESH_S, self._look)
        self.set_interval(TICK_S, self._redraw)

    def _look(self) -> None:
        if not self.reading:
            self.reading = True
            self.in_thread(self._load)

    def _load(self) -> None:
        try:
            hosts, problem = load_fleet(None).hosts, []
        except ConsoleError as error:
            hosts, problem = (), [clean(line, 400) for line in error.lines()]
        finally:
            self.reading = False
        self.on_loop(self._loaded, hosts, problem, [last(host) for host in hosts])

    def _loaded(self, hosts: tuple[Host, ...], problem: list[str], before: list[Known]) -> None:
        self.problem, self.console.fleet = problem, bool(hosts)
        if changed := hosts != self.hosts or not self.loaded:
            self._end()
            self._keep_place(hosts)
            self.hosts, self.loaded = hosts, True
            self.known = {status.host: replace(status, trouble=ASKING) for status in before}
            self.asking = set(self.known)
            self.watcher = HostsWatch(
                hosts, control_dir(), partial(self.on_loop, self._take_status)
            )
            self.watcher.start()
            self._rest()
        self.redraw()
        if changed:  # the text has the keys where there is nothing to pick
            self.set_focus(self.query_one("#list" if hosts else "#detail"))

    def _keep_place(self, hosts: tuple[Host, ...]) -> None:
        """The cursor stays on its host, whatever row that has now."""
        picker = self.query_one(PickList)
        name = self.hosts[picker.cursor].name if self.hosts and picker.cursor is not None else ""
        self.place = next((row for row, host in enumerate(hosts) if host.name == name), None)

    def _take_status(self, status: Known) -> None:
        if status.host in self.known:
            self.asking.discard(status.host)
            self.known[status.host] = status
            self.redraw()

    def _end(self) -> None:
        if self.watcher is not None:
            self.watcher.close()

    def on_unmount(self) -> None:
        self._end()

    def _rest(self) -> None:
        """Leave the hosts alone while nobody sees this page."""
        if self.watcher is not None:
            self.watcher.look(self.app.screen is self and not self.console.turns.away)

    def on_screen_suspend(self) -> None:
        super().on_screen_suspend()
        self._rest()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._rest()

    # -- into a host ---------------------------------------------------------------------------

    def on_pick_list_moved(self, event: PickList.Moved) -> None:
        self.redraw()
        self.query_one("#detail", TextView).scroll_home(animate=False)

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        if self.console.turns.away or event.index >= len(self.hosts):
            return
        host = self.hosts[event.index]
        words = ("--readonly",) if self.console.watchers.readonly else ()
        if no := why_not(os.environ.get(BROWSER, ""), self.app._driver):
            self.console.say(f"{no}: {host.typed(*words, terminal=True)}")
            return
        self.console.turns.away = True
        self.app.run_worker(self._visit(host, words))  # it outlives this page

    async def _visit(self, host: Host, words: tuple[str, ...]) -> None:
        self._rest()
        argv = console_argv(host, control_dir(), *words)
        try:
            left = await lend(self.app.suspend(), argv, greeting(host), RESTORE)
        finally:
            # a short visit may end before the keys that came with its Enter were looked at
            self.console.turns.void()
            self.console.turns.away = False
        message = left_words(host, left)
        self.left[host.name] = message if left.code else ""
        self.console.say(message, "error" if left.code else "information")
        if self.is_attached and self.children:
            self._rest()
            self.redraw()

    # -- drawing -------------------------------------------------------------------------------

    def redraw(self) -> None:
        picker, view = self.query_one(PickList), self.query_one("#detail", TextView)
        if not view.size.width:  # else it is drawn when its size is known
            return
        self._share_room(picker)
        now, width = time.time(), max(MIN_COLUMNS, self.size.width - 1)
        statuses = [self.known[host.name] for host in self.hosts]
        head, *rows = table(statuses, now, width, frozenset(self.asking))
        picker.fill(rows, self.place)
        self.place = None
        self.query_one("#columns", Rows).show([head])
        self.query_one("#head", Rows).show([fit(self._head(statuses), width)])
        host = self.hosts[picker.cursor] if picker.cursor is not None else None
        inner = max(MIN_COLUMNS, view.size.width - 3)
        if host is None:
            view.show(self._none(inner))
        else:
            status, left = self.known[host.name], self.left.get(host.name, "")
            view.show(detail(status, now, inner, left, asking=host.name in self.asking))
        readonly = self.console.watchers.readonly
        key = "" if readonly or not self.baseline_known else EMERGENCY.first
        self.query_one("#next", Rows).show(next_rows(host, key, readonly, width))

    def _share_room(self, picker: PickList) -> None:
        """The list as long as it is, and half of the page at most; the rest is for one host."""
        self.set_class(self.size.height < 24, "low")
        # not before it is loaded: what is hidden loses the keys, maybe after it is there again
        self.set_class(self.loaded and not self.hosts, "empty")
        most = max(3, (self.size.height - 8) // 2)
        picker.styles.height = max(1, min(len(self.hosts), most))

    def _head(self, statuses: Sequence[Known]) -> Row:
        if not self.loaded:
            return (("reading the fleet file …", "dim"),)
        if not statuses:
            return (("No hosts", "bold"),)
        lost = sum(bool(status.trouble) and status.host not in self.asking for status in statuses)
        need = sum(bool(needs(status)) for status in statuses)
        row: Row = ((plural(len(statuses), "host"), "bold"),)
        row += ((f"   ? {lost} unknown", "warn"),) if lost else ()
        row += ((f"   ! {need} {'needs' if need == 1 else 'need'} you", "warn"),) if need else ()
        return (*row, ("   Enter opens one", "dim"))

    def _none(self, width: int) -> list[Row]:
        """Why there are no hosts, and what to do."""
        path = fleet_path(None)
        if not self.loaded or path.exists():
            return [row for line in self.problem for row in paragraph(line, width, "warn")]
        rows = paragraph(NO_FILE.format(clean(str(path), 300)), width)
        rows += [(), *(((f"  {line}", "accent"),) for line in EXAMPLE), ()]
        return rows + paragraph(MORE, width, "dim")


def why_not(browser: str, driver: Driver | None) -> str:
    """Why this console cannot lend its terminal to ssh; "" if it can."""
    if browser:
        return "a page in a browser opens no other host; in a shell"
    if driver is None or not driver.can_suspend:
        return "this terminal cannot be lent to ssh; in a shell"
    return ""


def greeting(host: Host) -> str:
    name = clean(host.name)
    return (
        f"omni-console: opening {name}. There q comes back, {EMERGENCY.first} is {name}'s own "
        "rollback, and Enter ~ . leaves at once."
    )


def left_words(host: Host, left: Left) -> str:
    """How a visit has ended. What a console says that ends at once goes to the terminal itself."""
    name = clean(host.name)
    if left.code == 0:
        return f"back from {name}"
    if left.code == SSH_FAILED:
        return f"{name}: ssh failed (255): {left.words or 'the connection ended'}"
    if left.code in NOT_FOUND:
        return f"{name}: no {clean(host.command)} there ({left.code}): `command` in the fleet file"
    if left.code < 0:
        return f"{name}: ssh was ended by signal {-left.code}"
    return f"{name}: ended with exit code {left.code}; its words stand behind this console"


def table(statuses: Sequence[Known], now: float, width: int, asking: frozenset[str]) -> list[Row]:
    """The head and a row for each host, with as many columns as there is room for."""
    texts = [list(cells(host_status, now)) for host_status in statuses]
    for status, row in zip(statuses, texts, strict=True):
        if status.host in asking:
            row[KNOWN] = ASKING
    wide = shares([HEAD, *texts], width - MARK)
    rows: list[Row] = [(("  ", ""), *_line(HEAD, ["dim"] * len(HEAD), wide))]
    for status, row in zip(statuses, texts, strict=True):
        mark = "! " if needs(status) else "? " if status.trouble else "  "
        rows.append(((mark, "warn"), *_line(row, _tones(status), wide)))
    return [fit(row, width) for row in rows]


def shares(texts: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """Cells for each column that has room."""
    wide = [max(width_of(((row[at], ""),)) for row in texts) for at in range(len(HEAD))]
    wide[HOST] = min(wide[HOST], max(8, width // 4))
    least = [min(size, SPARE.get(at, size)) for at, size in enumerate(wide)]
    left, widths = width + GAP, dict[int, int]()
    for at in WEIGHT:
        if widths and least[at] + GAP > left:
            break
        widths[at] = least[at]
        left -= least[at] + GAP
    for at in (column for column in SPARE if column in widths):
        more = min(max(0, left), wide[at] - least[at])
        widths[at] += more
        left -= more
    return dict(sorted(widths.items()))


def _line(texts: Sequence[str], tones: Sequence[str], wide: dict[int, int]) -> Row:
    row: Row = ()
    for at, size in wide.items():
        part = fit(((texts[at], tones[at]),), size)
        row += (*part, (" " * (size - width_of(part) + GAP), ""))
    return row[:-1]


def _tones(status: Known) -> list[str]:
    """Of the cells; the words say it too."""
    tones = ["bold", *[""] * (len(HEAD) - 1)]
    if status.trouble:
        tones[KNOWN] = "warn"
        return tones
    tones[BASELINE] = TONE.get(str(status.part("baseline").get("word")), "dim")
    tones[RUN] = RUN_TONE.get(str(status.part("run").get("state")), "")
    tones[KNOWN] = "dim"
    return tones


def detail(status: Known, now: float, width: int, left: str, *, asking: bool) -> list[Row]:
    """All that is known of a host, each fact on lines of its own."""
    name = (clean(status.host), "bold")
    rows: list[Row] = []
    if asking:
        rows.append((name, (f"  {ASKING}", "accent")))
    elif status.trouble:
        rows.append((name, (f"  {status.since(now)}", "warn")))
        rows += paragraph(clean(status.trouble, 300), width, "warn", "  ")
        if not status.refused:
            rows += paragraph(words_of(status, now), width)
    else:
        rows.append((name, (f"  answered {max(0, int(now - status.at))} s ago", "dim")))
    if left:
        rows += paragraph(left, width, "bad", "  ")
    for words in notes(status):
        rows += paragraph(words, width, "warn", "  ")
    if not status.at:
        return rows
    if status.trouble:
        rows.append(((f"last known, at {clock(status.at, now)}:", "dim"),))
    for title, text in facts(status, now):
        rows += behind(((f"{title:<10}", "dim"),), text, width)
    return rows


def facts(status: Known, now: float) -> list[tuple[str, str]]:
    """The columns' words, in full."""
    _, base, run, lease, ram, vram, _ = cells(status, now)
    state, doing = status.part("baseline"), status.part("run")
    named = [base, str(state.get("name") or ""), str(state.get("detail") or "")]
    run_words = [run, str(doing.get("said") or "")]
    name = "" if waits_for_slurm(status) else str(doing.get("id") or "")
    rows = [
        ("baseline", ", ".join(filter(None, named))), ("run", ", ".join(filter(None, run_words))),
        ("", name), ("lease", lease), ("memory", f"RAM {ram}, VRAM {vram}"),
    ]  # fmt: skip
    return [(title, clean(text, 300)) for title, text in rows if text]


def next_rows(host: Host | None, here: str, readonly: bool, width: int) -> list[Row]:
    """The way to a host's baseline, and whose the emergency key is. `here`: the key that restores
    the baseline of this machine, "" where none does."""
    key = EMERGENCY.first
    if host is None:
        words = f"{here} restores the baseline of this machine" if here else ""
        return behind(((" NEXT ", "bold"), (" ", "")), words, width) if words else []
    name = clean(host.name)
    own = ", here this machine's" if here else ""
    whose = ", read-only" if readonly else f"; {key} there is {name}'s{own}"
    words = f"Enter opens {name}{whose}. From a shell: omni-console fleet rollback {name}"
    return behind(((" NEXT ", "bold"), (" ", "")), words, width)
