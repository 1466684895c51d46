"""The process of the watch: `python -P -OO -m console.watch.daemon PLAN [WORDS]`.

It has a budget of 20 MB, and half of what Python's HTTP client loads is TLS and compression, which
the watch of a plain http:// address never uses; a hash by OpenSSL loads as much. So this module
says that they are not there before anything else is loaded; the libraries that ask for them do
without. WORDS are about a site file that cannot be used: an earlier plan goes on.

Exit codes: 0 after SIGTERM or SIGINT, 2 if the plan cannot be used, 8 if the site has a watch.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

NEVER = ("bz2", "lzma", "_hashlib")
TLS = "ssl"


def main(arguments: list[str]) -> int:
    if not arguments:
        sys.stderr.write("usage: python -m console.watch.daemon PLAN [WORDS]\n")
        return 2
    for name in NEVER:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    from console.common.errors import ConsoleError
    from console.watch import plan

    try:
        watch_plan = plan.read(Path(arguments[0]))
        if not watch_plan.sealed.baseline.url.startswith("https:"):
            sys.modules.setdefault(TLS, None)  # type: ignore[arg-type]
        from console.watch import loop

        return loop.run(watch_plan, " ".join(arguments[1:]))
    except ConsoleError as error:
        sys.stderr.write("\n".join(error.lines()) + "\n")
        return int(error.exit_code)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `loop` takes it: no traceback
    sys.exit(main(sys.argv[1:]))
