"""Whom logind ends at the logout, by its own answer."""

from collections.abc import Sequence
from typing import Any

import pytest

from console.host import children, systemd


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ("b true\nas 0\nas 0\n", True),
        ("b false\nas 0\nas 0\n", False),
        ('b true\nas 0\nas 2 "root" "ann"\n', False),
        ('b true\nas 2 "eve" "ann"\nas 1 "root"\n', True),
        ('b true\nas 1 "eve"\nas 1 "root"\n', False),
        ('b true\nas 1 "ann"\nas 1 "ann"\n', False),
        ("", False),
        ('b true\nas 1 "ann\n', False),
    ],
)
def test_whose_processes_logind_ends(
    monkeypatch: pytest.MonkeyPatch, answer: str, ends: bool
) -> None:
    def run(argv: Sequence[str], seconds: float, **_: Any) -> tuple[int, bytes, bytes]:
        return 0, answer.encode(), b""

    monkeypatch.setattr(children, "run", run)
    assert systemd._ends_processes_of("ann") == ends


@pytest.mark.parametrize("refusal", [FileNotFoundError("busctl"), None])
def test_a_logind_that_does_not_answer_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, refusal: OSError | None
) -> None:
    def run(argv: Sequence[str], seconds: float, **_: Any) -> tuple[int, bytes, bytes]:
        if refusal is not None:
            raise refusal
        return 1, b"b true\nas 0\nas 0\n", b"no such service"

    monkeypatch.setattr(children, "run", run)
    assert not systemd._ends_processes_of("ann")
