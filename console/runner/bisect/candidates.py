"""The versions of a bisect in their order, from the good one to the bad one: a list of tags or
package versions, a file of them, or the commits of a git repository."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from console.common.errors import UsageError
from console.common.text import one_line
from console.config.yaml import read_text
from console.host import children

GIT_S = 60.0
"""How long git may take to list commits."""
COMMIT = 12
"""Letters of a commit that are shown."""


def of_words(text: str) -> list[str]:
    """`v1,v2 v3` as versions."""
    return text.replace(",", " ").split()


def of_file(path: Path) -> list[str]:
    """Versions of a file, one a line; empty lines and comments (#) do not count. Raises
    InvalidFile."""
    lines = (line.partition("#")[0].strip() for line in read_text(path, "the list").splitlines())
    return [line for line in lines if line]


def between(versions: Sequence[str], good: str, bad: str) -> tuple[str, ...]:
    """The versions from the good one to the bad one, whichever of them comes first in the list.

    Raises UsageError: one of them is not in the list, or a version stands there twice.
    """
    if twice := [candidate for candidate, times in Counter(versions).items() if times > 1]:
        raise UsageError(f"{one_line(twice[0], 60)} stands in the list twice")
    for name, version in (("--good", good), ("--bad", bad)):
        if version not in versions:
            some = ", ".join(one_line(v, 40) for v in versions[:5])
            tail = " …" if len(versions) > 5 else ""
            raise UsageError(f"{name} {one_line(version, 60)} is not in the list", f"{some}{tail}")
    if good == bad:
        raise UsageError("--good and --bad are the same version", one_line(good, 60))
    first, last = versions.index(good), versions.index(bad)
    step = 1 if first < last else -1
    return tuple(versions[at] for at in range(first, last + step, step))


def of_git(repo: Path, good: str, bad: str) -> tuple[str, ...]:
    """The commits from the good one to the bad one, each by its whole name, along first parents.

    Raises UsageError: git refuses, or the good one does not lead to the bad one.
    """
    begin, end = (_git(repo, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")[0]
                  for ref in (good, bad))  # fmt: skip
    listed = _git(repo, "rev-list", "--first-parent", "--reverse", f"{begin}..{end}")
    if not listed or _git(repo, "merge-base", begin, end) != [begin]:
        hint = f"git -C {one_line(str(repo), 100)} log --first-parent shows the commits"
        raise UsageError(f"{one_line(good, 60)} does not lead to {one_line(bad, 60)}", "", hint)
    return (begin, *listed)


def subject(repo: Path, commit: str) -> str:
    """The first line of a commit's message, clean; "" if git does not tell."""
    try:
        return one_line(" ".join(_git(repo, "log", "-1", "--format=%s", commit)), 100)
    except UsageError:
        return ""


def shown(version: str, *, git: bool) -> str:
    """A version as it is printed: clean, a commit shortened."""
    return one_line(version[:COMMIT] if git else version, 80)


def _git(repo: Path, *words: str) -> list[str]:
    try:
        code, out, err = children.run(["git", "-C", str(repo), *words], GIT_S, env=os.environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError("git cannot be asked", one_line(str(error))) from error
    if code != 0:
        message = one_line(err.decode("utf-8", "replace")) or f"exit {code}"
        raise UsageError(f"git {words[0]} refuses", message)
    return out.decode("utf-8", "replace").splitlines()
