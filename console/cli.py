"""`omni-console`: the command line. Parses, then imports only what the chosen command needs."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from console.common.errors import ConsoleError, Exit, UsageError
from console.frontends.cli.commands import chain_of, defaults

BEGAN = time.time()
"""When this program began, in Unix seconds. Its process may be older: a shell becomes its last
command, whatever that shell has done before."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Foreign text is cleaned before it is printed."""
    if argv is None:
        _use_utf8()
    _harden_output()
    try:
        _take_interrupts()
        return _run(sys.argv[1:] if argv is None else argv, own=argv is None)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)


def _take_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt from here on. While the program was being loaded it ended
    it at once (`console.__main__`)."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(given: list[str], *, own: bool) -> int:
    args = _called_by_name(given) or _parsed(given)
    if getattr(args, "site", None) is None:
        args.site = args.console_site
    args.given_at = BEGAN if own else None
    module, function = args.handler.split(":")
    try:
        _refuse_readonly(args)
        handler: Callable[[Any], int] = getattr(
            import_module(f"console.frontends.cli.{module}"), function
        )
        return int(handler(args))
    except ConsoleError as error:
        _print_error(error, getattr(args, "json", False))
        return int(error.exit_code)
    except BrokenPipeError:
        # the reader went away (| head); of a run that is followed the outcome is not known
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.INTERRUPTED if args.follows else Exit.OK)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        failure = ConsoleError("the system refused", f"{where}{error.strerror or error}")
        _print_error(failure, getattr(args, "json", False))
        return int(Exit.ROLLBACK_FAILED if args.handler.startswith("rollback") else Exit.INTERNAL)


def program() -> None:
    """The process `omni-console`: run the command of its arguments, and end with its exit code.

    It does not pass through the interpreter's own ending, which kills daemon threads wherever they
    are: one inside a library in Rust or C++ then aborts the whole process.
    """
    code = main()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left that could be tidied up
    threading._shutdown()  # type: ignore[attr-defined]  # awaits threads that are no daemons
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # which says what could not be written
    os._exit(code)


def _refuse_readonly(args: Any) -> None:
    """`--readonly` in front of a command would promise what the command does not keep."""
    if not getattr(args, "console_readonly", False):
        return
    if args.handler != "console:open_console":
        raise UsageError("--readonly", "it opens the screens, and no command stands behind it")
    args.readonly = True


def _called_by_name(given: list[str]) -> SimpleNamespace | None:
    """The arguments of a command that nothing but its name stands for, as the screens, a bridge or
    a rollback: no parser is loaded for it. None for any other."""
    readonly = given == ["--readonly"]
    usual = defaults(chain_of([] if readonly else given))
    return SimpleNamespace(**usual | {"console_readonly": readonly}) if usual else None


def _parsed(given: list[str]) -> Any:
    from console.frontends.cli.parser import parser_for

    args = parser_for(given).parse_args(given)
    if args.handler == "run:run" and (args.rehearse or args.fault):
        args.handler = "demo:rehearse"
    return args


def _use_utf8() -> None:
    """Start this program again in Python's UTF-8 mode if the locale has another encoding.

    Paths are sealed as text, and a rollback in another locale has to make the same bytes of them.
    What is printed keeps the locale's encoding.
    """
    if sys.getfilesystemencoding().lower() == "utf-8" or "PYTHONUTF8" in os.environ:
        return
    os.environ["PYTHONUTF8"] = "1"
    os.environ.setdefault("PYTHONIOENCODING", f"{sys.getfilesystemencoding()}:replace")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _harden_output() -> None:
    """A terminal that knows only ASCII gets `?`, never a traceback; lines appear as written.

    A descriptor that was closed (`>&-`) goes to /dev/null: else the next file that is opened would
    take its number, and what is printed would go into that.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace", line_buffering=True)


def _print_error(error: ConsoleError, as_json: bool) -> None:
    from console.common import redact

    if as_json:
        print(
            redact.dumped(
                {"error": error.title, "detail": error.detail, "hint": error.hint,
                 "exit_code": int(error.exit_code)}
            )
        )  # fmt: skip
    sys.stderr.write("omni-console: " + "\n".join(error.lines()) + "\n")


if __name__ == "__main__":
    program()
