"""Where the console's own files are gone, as in the middle of an upgrade or with its virtual
environment removed: the sealed script that brings a baseline back in place of its command."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from console.common import paths
from console.common.errors import ConsoleError
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import ROLLBACK, WITHOUT_PYTHON, site_scripts

IF_INTERRUPTED = "--if-interrupted"
"""Of a script: to roll back only what an interrupted run of this user has left."""
RUN = '"$@"; code=$?; case $code in 1|126|127) ;; *) exit $code ;; esac; '
"""Runs a command, and goes on where it cannot be run, or ends with an internal error."""
NO_SCRIPT = 127
NEWEST = (
    'script=$(ls -t "$0"/*.sh 2>/dev/null | sed "/[.]' + WITHOUT_PYTHON + '\\$/d" | head -n 1); '
    '[ -n "$script" ] || { echo "omni-console cannot be run, and no run has sealed a script: '
    'install it again" >&2; exit $code; }; '
)


def or_script(argv: Sequence[str], script: Path | None, *words: str) -> list[str]:
    """The command, and behind it a sealed script, with these words, where that cannot be run."""
    if script is None:
        return list(argv)
    text = f'{RUN}exec /bin/sh "$0" {shlex.join(words)}'
    return ["/bin/sh", "-c", text, str(script), *argv]


def or_newest_script(argv: Sequence[str], *words: str) -> list[str]:
    """The same for a unit file, with the script that is the newest when it is needed."""
    text = f'{RUN}{NEWEST}exec /bin/sh "$script" {shlex.join(words)}'
    return ["/bin/sh", "-c", text, str(paths.state_dir() / ROLLBACK), *argv]


def script_of_login() -> str:
    """The newest script of the user whose login shell gets this, with what it prints on stdout;
    NO_SCRIPT where there is none."""
    place = '"${XDG_STATE_HOME:-$HOME/.local/state}"/' + f"{paths.APP}/{ROLLBACK}"
    find = NEWEST.replace("$0", "$1").replace("$code", str(NO_SCRIPT))
    text = f'set -- {place}; {find}exec /bin/sh "$script" 2>&1'
    return f"exec /bin/sh -c {shlex.quote(text)}"


def newest_script(site_file: str | None = None) -> Path | None:
    """The script that the newest run has sealed, of a site file where that is named."""
    with contextlib.suppress(OSError):
        for script in sorted(site_scripts(), key=os.path.getmtime, reverse=True):
            if not site_file or _is_of(script, site_file):
                return script
    return None


def _is_of(script: Path, site_file: str) -> bool:
    """Whether a site's script was sealed for a site file, as the plan beside it says."""
    with contextlib.suppress(ConsoleError):
        sealed_for = sealed.read(script.with_suffix(".json")).site_path
        return os.path.realpath(sealed_for) == os.path.realpath(site_file)
    return False
