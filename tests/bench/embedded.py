"""A real llama.cpp server in a process of its own."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.children import running
from tests.waiting import until

TEMPLATE = 11
"""Tokens of a chat template around a prompt."""
SERVES = re.compile(r"engine: serving \S+ on (http://\S+)\n")


class Counter:
    """What a server would count: so many tokens a word, and those of its template."""

    def __init__(self, per_word: float) -> None:
        self.per_word = per_word
        self.seen: list[int] = []
        """Of every prompt, in order."""

    def tokens(self, prompt: str) -> int:
        self.seen.append(round(len(prompt.split()) * self.per_word) + TEMPLATE)
        return self.seen[-1]


def served(write: Callable[[Path], int]) -> Any:
    """A module's fixture: the address of a real server with the model that `write` writes."""

    @pytest.fixture(scope="module")
    def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        model: Path = tmp_path_factory.mktemp("served") / "model.gguf"
        write(model)
        with embedded(model) as found:
            yield found

    return url


@contextmanager
def embedded(model: Path, *flags: str) -> Iterator[str]:
    """The demo's engine on this model, with one thread; its address, once it serves."""
    log = model.with_suffix(".log")
    argv = [sys.executable, "-m", "console.rehearsal.demo.engine", "--model", str(model)]
    argv += ["--port", "0", "--threads", "1", "--ctx", "4096", *flags]
    with log.open("wb") as out, running(argv, stdout=out, stderr=out) as server:

        def serves() -> re.Match[str] | None:
            assert server.poll() is None, log.read_text()[-2000:]
            return SERVES.search(log.read_text())

        yield until(serves, "the server is ready", where=log.read_text)[1]
