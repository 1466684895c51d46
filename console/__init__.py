"""The program. docs/explanation/architecture.md tells what each of its packages is for.

What nobody catches, in whatever process of it, is told by `console.common.crash`: the interpreter
itself would print an exception with the foreign text that it quotes, secrets and all.
"""

import _thread
import sys

VERSION = "0.1.0"


def _crashed(*failure: object) -> None:
    from console.common import crash  # only where something went wrong

    crash.uncaught(*failure)


if sys.excepthook is sys.__excepthook__:  # a test runner has its own
    sys.excepthook = _crashed
if sys.unraisablehook is sys.__unraisablehook__:
    sys.unraisablehook = _crashed
# threading takes its hook from there when it is loaded, which takes longer than help takes to print
if "threading" not in sys.modules:
    _thread._excepthook = _crashed
elif sys.modules["threading"].excepthook is sys.modules["threading"].__excepthook__:
    sys.modules["threading"].excepthook = _crashed  # type: ignore[attr-defined]
