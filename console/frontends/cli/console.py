"""`omni-console` alone: the screens, or a plain status if none can be drawn; and `keys`."""

from __future__ import annotations

import contextlib
import gc
import json
import locale
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from console.common.errors import Exit
from console.common.text import clean
from console.common.units import format_duration
from console.render.keymap import ACTIONS, SCOPES, of_scope

if TYPE_CHECKING:
    from console.frontends.tui.watch.baseline import BaselineView
    from console.frontends.tui.watch.run import Snapshot
    from console.frontends.tui.watch.watchers import Watchers

RUN_S = 2.0
BASELINE_S = 4.0

DUMB = ("dumb", "unknown", "")
WANTED = {"TEXTUAL_FPS": "15", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}
DEVELOPER = (
    "TEXTUAL_ALLOW_SIGNALS", "TEXTUAL_DEVTOOLS", "TEXTUAL_PRESS", "TEXTUAL_DEBUG",
    "TEXTUAL_SCREENSHOT", "TEXTUAL_DRIVER", "TEXTUAL_LOG", "TEXTUAL_SHOW_RETURN",
)  # fmt: skip
"""Prefix of Textual's developer variables."""


def lines(site: str | None = None) -> list[str]:
    """The baseline, the run on show, and what can be done next: for a pipe, or a terminal that
    cannot draw."""
    from console.frontends.tui.watch.baseline import BaselineWatch
    from console.frontends.tui.watch.run import RunWatch, Snapshot

    watch = RunWatch()
    baseline = BaselineWatch(site=site)
    watch.start()
    try:
        snapshot = watch.first(RUN_S) or Snapshot()
        baseline.follow(snapshot.sealed, snapshot.alive and snapshot.view.outage)
        baseline.start()
        view = baseline.first(BASELINE_S)
    finally:
        watch.close()
        baseline.close()
    return [_baseline(view), *_run(snapshot)]


def _baseline(view: BaselineView | None) -> str:
    if view is None:
        return f"baseline: unknown, as no look at it was over within {BASELINE_S:.0f} s"
    if view.state is None:
        return "baseline: none known (no site file, no run); omni-console doctor says more"
    facts = [view.word, *view.state.facts(time.time())]
    return f"baseline {clean(view.name)}: {', '.join(clean(fact) for fact in facts)}"


def _run(snapshot: Snapshot) -> list[str]:
    from console.journal.run_files import NEVER_BEGAN, NO_RESUME
    from console.recovery.guard.record.read import crash_words
    from console.render.cutover import BACK, cut_over
    from console.render.facts.run import IS_DOWN, decision
    from console.render.facts.words import state_words

    if snapshot.run is None:
        return ["no run yet: omni-console demo shows one, omni-console run PLAYBOOK starts one"]
    view, word = snapshot.view, state_words(snapshot.word)
    reason = f" ({state_words(view.reason)})" if view.reason else ""
    at = f", step {clean(view.current.id)}" if view.current and not view.over else ""
    known = decision(view)
    conclusion = " ".join(filter(None, (known.brief, known.detail, view.mark)))
    conclusion = f", decision {conclusion}" if known.brief else ""
    run_lines = [f"run {snapshot.run.id}: {word}{reason}{at}{conclusion}"]
    if view.cutover:
        run_lines.append(f"{cut_over(view)}: {BACK}")
    elif view.outage and snapshot.word == "interrupted":
        run_lines.append("the baseline was down when its runner died; its present state is above")
    elif view.outage:
        back = f", back in {format_duration(snapshot.restore_s)}" if snapshot.restore_s else ""
        run_lines.append(f"{IS_DOWN.upper()}: omni-console rollback restores it{back}")
    short = snapshot.run.id[-4:]
    if snapshot.word == "interrupted":
        run_lines.append(
            f"its runner is gone: omni-console resume {short}, or omni-console rollback"
        )
        left = crash_words(snapshot.run.path)
        run_lines += [f"{left}: omni-console recorder {short} shows it"] if left else []
    elif snapshot.word == NEVER_BEGAN:
        run_lines.append(NO_RESUME)
    elif not view.over:
        run_lines.append(f"omni-console attach {short} follows it")
    return run_lines


def can_draw() -> bool:
    """Whether this is a terminal that screens can be drawn on, and keys read from."""
    # the screens are drawn on stderr: redirected, they would be seen by nobody
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(s and s.isatty() for s in streams) and os.environ.get("TERM", "") not in DUMB


def open_console(args: Namespace) -> int:
    """Open the screens; without a terminal that can draw, say how things stand in plain text."""
    if getattr(args, "rehearse", False):
        from console.rehearsal.workspace import join

        args.site = join()
    if not can_draw():
        return _plain(args)
    # an eighth of the time to the first frame went into collecting what is all still in use;
    # the app turns it on again when it stands
    gc.disable()
    from console.frontends.tui.watch.watchers import Watchers
    from console.journal.run_dir import find_run

    run = find_run(args.run) if getattr(args, "run", None) else None
    watchers = Watchers(site=args.site, readonly=args.readonly, run=run)
    try:
        code = _screens(watchers)
    finally:
        watchers.close()
    _finish_start(watchers)
    _goodbye(watchers)
    from console.recovery.rollback.shell.printing import let_go_of_dead_output

    let_go_of_dead_output()
    return code


def _finish_start(watchers: Watchers) -> None:
    """Wait for a run that was being started when the console was closed."""
    if watchers.starting is None or not watchers.starting.is_alive():
        return
    _print_if_open(
        "a run is being started: its baseline is asked first; Ctrl-C leaves without waiting"
    )
    watchers.starting.join()
    for line in watchers.started.splitlines():
        _print_if_open(clean(line, 400))


def _print_if_open(line: str) -> None:
    """Print to whoever is still there: the terminal may be gone."""
    with contextlib.suppress(OSError, ValueError):
        print(line, flush=True)


def _goodbye(watchers: Watchers) -> None:
    snapshot = watchers.watch.latest
    if snapshot is not None and snapshot.alive and snapshot.run is not None:
        run = snapshot.run.id
        _print_if_open(f"run {run} goes on; omni-console, or omni-console attach {run[-4:]}")


def _screens(watchers: Watchers) -> int:
    with _environment():
        from console.frontends.tui.app import ConsoleApp
        from console.frontends.tui.terminal.driver import ConsoleDriver
        from console.render.cells import use_ascii

    ascii_only = not _utf8()
    ConsoleDriver.ascii_only = ascii_only
    use_ascii(ascii_only)
    app = ConsoleApp(watchers)
    result = app.run(mouse=False)
    code = app.return_code
    # an app that has no code did not leave: an error has ended it
    failed = code is None or app._exception is not None
    return int(Exit.INTERNAL if failed else code or result or Exit.OK)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """What Textual reads at its import: few frames, no motion; the operator's settings stay.

    Developer switches are removed for good: one of them makes a signal of ctrl+backslash. What is
    set here is removed again, so that processes started from the console do not inherit it.
    """
    for name in [name for name in os.environ if name == "TEXTUAL" or name.startswith(DEVELOPER)]:
        del os.environ[name]
    ours = {name: value for name, value in WANTED.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _utf8() -> bool:
    """Whether the locale and the terminal show more than ASCII."""
    try:
        locale.setlocale(locale.LC_CTYPE, "")
        encoding = locale.nl_langinfo(locale.CODESET)
    except (locale.Error, AttributeError):
        encoding = ""
    return "utf" in encoding.lower()


def _plain(args: Namespace) -> int:
    term = os.environ.get("TERM", "")
    dumb = sys.stdout.isatty() and term in DUMB
    why = f"TERM={term} cannot draw screens" if dumb else "this is not a terminal"
    print("\n".join(lines(args.site)))
    sys.stderr.write(
        f"omni-console: {why}; every command works without screens: omni-console --help\n"
    )
    return int(Exit.OK)


def keys(args: Namespace) -> int:
    """Print every key of the screens, as Markdown; docs/reference/keys.md is this very output."""
    if args.json:
        print(json.dumps({"actions": [asdict(action) for action in ACTIONS]}))
    else:
        print(markdown(), end="")
    return int(Exit.OK)


def markdown() -> str:
    """One table a scope. `!`: stops something; nothing else does."""
    lines = [
        "# Keys",
        "",
        "Written by `omni-console keys`; the same registry makes the footer, the help screen and "
        "the command palette. A key marked **!** stops something. Enter opens, and never approves "
        "or skips; `q` and Esc never stop anything.",
    ]
    for scope, title in SCOPES.items():
        lines += ["", f"## {title}", "", "| key | | what it does |", "|---|---|---|"]
        for action in of_scope(scope):
            mark = " **!**" if action.dangerous else ""
            shown = action.shown.replace("|", "\\|")
            lines.append(f"| `{shown}` | {action.title}{mark} | {action.help} |")
    return "\n".join(lines) + "\n"
