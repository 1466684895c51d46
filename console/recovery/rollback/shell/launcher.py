"""Writes rollback.sh: a script that a person can read, which runs the sealed copy.

Where no python3 starts, it runs the other script, `without-python.sh`, which does what a shell can.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from console.common.files import write_atomically
from console.recovery.rollback.script import write as without_python
from console.recovery.rollback.sealed_plan import SCRIPT, WITHOUT_PYTHON, SealedPlan

PLACES = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "OMNI_HOST_DIR")
"""Where the run keeps its files: whoever types the script may have other places, or none."""
START_S = 20
"""Seconds in which a python3 has to start: on a thrashing machine it may take long, and the shell
alone is quicker there."""


def without_python_path(script: Path) -> Path:
    """Where the script that needs no Python lies, for a rollback.sh (or SITE.sh) at a path."""
    name = WITHOUT_PYTHON if script.name == SCRIPT else f"{script.stem}.{WITHOUT_PYTHON}"
    return script.with_name(name)


def write(plan: SealedPlan, path: Path) -> None:
    """Write rollback.sh to `path`, and beside it the script that needs no Python. Where no copy
    could be sealed, that one is rollback.sh. Only their owner reads them, as they may hold secrets.
    Raises OSError."""
    otherwise = without_python_path(path)
    text = without_python.render(plan)
    if plan.copy:
        write_atomically(otherwise, text, 0o700)
        text = render(plan, otherwise)
    write_atomically(path, text, 0o700)


def render(plan: SealedPlan, otherwise: Path) -> str:
    """The whole script; `otherwise` is the path of the one that needs no Python. Bytes of a path
    that are not UTF-8 are escaped with `surrogateescape`."""
    values = {
        "RUN_DIR": plan.run_dir,
        "COPY": plan.copy,
        "WITHOUT_PYTHON": str(otherwise),
        # the interpreter behind the virtual environment: it is there when that is not
        "PYTHON": os.path.realpath(sys.executable),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    places = ((name, os.environ.get(name)) for name in PLACES)
    lines += [f"export {name}={shlex.quote(value)}" for name, value in places if value]
    return HEAD + "\n".join(lines) + BODY.replace("@START_S@", str(START_S))


HEAD = """#!/bin/sh
# Brings the baseline back as it was when this run began.
#
# 1. The first python3 that starts, 3.11 or newer, runs COPY: the code of the rollback, as it was
#    when the run began. It needs nothing of the console that is installed now.
# 2. Without one, WITHOUT_PYTHON does what a shell can, and says what it cannot check.
#
# Candidates are stopped, the baseline is started and has to answer. Nothing is removed.
# Exit: 0 the baseline serves, 7 it does not.
set -u
"""
BODY = r"""

starts() {
  timeout -k 2 @START_S@ "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    >/dev/null 2>&1
}

find_python() {
  for python in "$PYTHON" /usr/bin/python3 /usr/local/bin/python3 \
    python3 python3.14 python3.13 python3.12 python3.11
  do starts "$python" && return 0
  done
  return 1
}

# Runs the copy with the words of this call. A closed terminal does not end it; the first Ctrl-C or
# SIGTERM is answered by it with a warning, and the second one ends it.
run_copy() {
  trap '' HUP TSTP PIPE INT QUIT
  "$python" -I -S -B -X utf8 "$COPY" "$RUN_DIR" "$@" &
  child=$!
  trap 'kill -s TERM "$child"' TERM
  # a signal ends the wait, but not the process that is waited for
  while wait "$child"; code=$?; kill -s 0 "$child" 2>/dev/null; do :; done
  trap - HUP TSTP PIPE INT QUIT TERM
  return "$code"
}

# Finds what was moved together with this script, as with a run's directory or a home.
find_moved() {
  case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
  here=$(cd "$here" && pwd)
  for place in "$here/.." "$here/../runs/${RUN_DIR##*/}"; do
    [ -d "$RUN_DIR" ] || [ ! -f "$place/rollback/plan.json" ] || RUN_DIR=$(cd "$place" && pwd)
  done
  for place in "$here/.." "$here/../../.."; do
    if [ ! -f "$COPY/__main__.py" ] && [ -f "$place/sealed/${COPY##*/}/__main__.py" ]; then
      COPY=$(cd "$place/sealed/${COPY##*/}" && pwd)
      XDG_STATE_HOME=$(cd "$place/.." && pwd)
      export XDG_STATE_HOME
    fi
  done
  for place in "${0%.sh}.without-python.sh" "$here/without-python.sh"; do
    [ -f "$WITHOUT_PYTHON" ] || WITHOUT_PYTHON=$place
  done
}

find_moved
if [ -f "$COPY/__main__.py" ] && find_python; then
  run_copy "$@"
  case $? in
    0) exit 0 ;;
    7) exit 7 ;;
  esac
  echo "rollback.sh: $python could not run $COPY to its end: going on without Python" >&2
else
  echo "rollback.sh: no python3 of 3.11 or newer starts here, or $COPY is gone" >&2
fi
if [ ! -f "$WITHOUT_PYTHON" ]; then
  echo "rollback.sh: without-python.sh is not beside it either: type omni-console rollback" >&2
  exit 7
fi
exec /bin/sh "$WITHOUT_PYTHON" "$@"
"""
