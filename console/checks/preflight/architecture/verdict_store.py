"""Verdicts that were given before, one small file each, by build and architecture.

A build is its digest, so nothing here grows stale. A file that is not whole is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.text import clean

if TYPE_CHECKING:
    from console.checks.preflight.architecture.support import ArchVerdict

FORM = 1
"""Raised by hand when what is kept changes its meaning."""
MOST_BYTES = 64 * 1024


def place() -> Path:
    """Where verdicts are kept."""
    return paths.cache_dir() / "architectures"


def keep(verdict: ArchVerdict, store: Path | None = None) -> None:
    """Remember a verdict; where that cannot be written, it is asked again the next time."""
    if not verdict.engine.key:
        return
    path = _path(verdict.engine.key, verdict.architecture, store)
    text = json.dumps({"form": FORM, **asdict(verdict)})
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.write_text(text, "utf-8")
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def recall(key: str, architecture: str, store: Path | None = None) -> ArchVerdict | None:
    """The verdict of this build on this architecture; None where there is none that is whole."""
    if not key:
        return None
    try:
        with _path(key, architecture, store).open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
        verdict = _verdict(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    same = verdict.engine.key == key and verdict.architecture == architecture
    return verdict if same and found["form"] == FORM else None


def _path(key: str, architecture: str, store: Path | None) -> Path:
    name = hashlib.sha256(f"{key}\0{architecture}".encode()).hexdigest()[:40]
    return (store or place()) / f"{name}.json"


def _verdict(found: dict[str, Any]) -> ArchVerdict:
    """Raises ValueError, KeyError or TypeError for what is no verdict."""
    from console.checks.preflight.architecture.support import ArchVerdict, Identity, Witness

    accepted, agree = found["accepted"], found["agree"]
    if not isinstance(accepted, bool) or not (agree is None or isinstance(agree, bool)):
        raise ValueError("not a verdict")
    engine = found["engine"]
    return ArchVerdict(
        architecture=_text(found["architecture"]),
        accepted=accepted,
        witness=Witness(found["witness"]),
        engine=Identity(*(_text(engine[name]) for name in ("name", "digest", "build", "key"))),
        words=_text(found["words"]),
        said=_text(found["said"]),
        second=_text(found["second"]),
        agree=agree,
        knows=tuple(map(_text, found["knows"])),
        lessons=tuple(map(_text, found["lessons"])),
        remembered=True,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return clean(value)
