"""`omni-console` alone: the console's screens, where a terminal can show them."""

from __future__ import annotations

import contextlib
import gc
import locale
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from console.common.errors import Exit
from console.common.text import clean

if TYPE_CHECKING:
    from argparse import Namespace

    from console.frontends.tui.watch.watchers import Desk

DUMB = ("dumb", "unknown", "")
WANTED = {"TEXTUAL_FPS": "15", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}
DEVELOPER = (
    "TEXTUAL_ALLOW_SIGNALS", "TEXTUAL_DEVTOOLS", "TEXTUAL_PRESS", "TEXTUAL_DEBUG",
    "TEXTUAL_SCREENSHOT", "TEXTUAL_DRIVER", "TEXTUAL_LOG", "TEXTUAL_SHOW_RETURN",
)  # fmt: skip
"""How the names of Textual's switches for developers begin."""


def can_draw() -> bool:
    """Whether this is a terminal that screens can be drawn on, and keys read from."""
    # the screens are drawn on stderr: redirected, they would be seen by nobody
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(s and s.isatty() for s in streams) and os.environ.get("TERM", "") not in DUMB


def open_console(args: Namespace) -> int:
    """Open the screens; without a terminal that can draw, say how things stand in plain text."""
    if getattr(args, "rehearse", False):
        from console.rehearsal.join import join

        args.site = join()
    if not can_draw():
        return _plain(args)
    from console.frontends.tui.watch.watchers import Desk
    from console.journal.run_dir import find_run

    run = find_run(args.run) if getattr(args, "run", None) else None
    desk = Desk(site=args.site, readonly=args.readonly, run=run)
    try:
        code = _screens(desk)
    finally:
        desk.close()
    _finish_start(desk)
    _goodbye(desk)
    return code


def _finish_start(desk: Desk) -> None:
    """A run that was being started when the console was closed is not dropped half way."""
    if desk.starting is None or not desk.starting.is_alive():
        return
    _tell("a run is being started: the baseline is asked first; Ctrl-C does not wait")
    desk.starting.join()
    for line in desk.started.splitlines():
        _tell(clean(line, 400))


def _tell(line: str) -> None:
    """To whoever is still there: the terminal may be gone."""
    with contextlib.suppress(OSError, ValueError):
        print(line, flush=True)


def _goodbye(desk: Desk) -> None:
    """What goes on without the screens, and how to see it again."""
    snapshot = desk.watch.latest
    if snapshot is not None and snapshot.alive and snapshot.run is not None:
        short = snapshot.run.id[-4:]
        with contextlib.suppress(OSError):
            print(f"run {snapshot.run.id} goes on; omni-console, or omni-console attach {short}")


def _screens(desk: Desk) -> int:
    # an eighth of the time to the first frame went into collecting what is all still in use;
    # the app turns it on again when it stands
    gc.disable()
    with _environment():
        from console.frontends.tui.app import ConsoleApp
        from console.frontends.tui.terminal.driver import ConsoleDriver
        from console.render.glyph import use_ascii

    ascii_only = not _utf8()
    ConsoleDriver.ascii_only = ascii_only
    use_ascii(ascii_only)
    app = ConsoleApp(desk)
    result = app.run(mouse=False)
    code = app.return_code
    # an app that has no code did not leave: an error has ended it
    failed = code is None or app._exception is not None
    return int(Exit.INTERNAL if failed else code or result or Exit.OK)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """What Textual reads at its import: few frames, no motion; what the operator set stands.

    Switches for developers are taken out for good: one of them makes a signal of ctrl+backslash.
    What is set here goes again, so that what is started from the console does not inherit it.
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
    """How things stand, for a pipe or a dumb terminal."""
    from console.frontends.cli.plain_status import lines

    dumb = sys.stdout.isatty() and os.environ.get("TERM", "") in DUMB
    why = (
        f"TERM={os.environ.get('TERM', '')} cannot draw screens" if dumb else "this is no terminal"
    )

    print("\n".join(lines(args.site)))
    sys.stderr.write(f"omni-console: {why}; every part runs without screens: omni-console --help\n")
    return int(Exit.OK)
