"""Each question of a `check` step and of `requires:`, with an answer that is wanted and one that is
not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from console.common.clock import SystemClock
from console.config.playbook.steps import Check, Step
from console.journal.state import Cause
from console.runner.context import Attempt, StepFailed
from console.runner.executors import check as checks
from console.runtime.docker.client import ImageInfo
from tests.ports import free_port
from tests.runner.unit.conftest import Bench
from tests.runtime.serving import serving

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nready"
IMAGE = ImageInfo("sha256:1", (), "linux", "amd64", 5)
URL = "http://127.0.0.1:{port}/"

CASES: list[tuple[dict[str, Any], bool]] = [
    ({"http": {"url": URL}}, True),
    ({"http": {"url": URL, "matches": "^ready$"}}, True),
    ({"http": {"url": URL, "matches": "late"}}, False),
    ({"http": {"url": URL, "status": 204}}, False),
    ({"http": {"url": "http://127.0.0.1:{free}/"}}, False),
    ({"output": ["echo", "a b"], "matches": "^a b$"}, True),
    ({"output": ["echo", "a b"], "matches": "c"}, False),
    ({"output": ["echo", "a b"], "not_matches": "c"}, True),
    ({"output": ["echo", "a b"], "not_matches": "a"}, False),
    ({"output": ["false"], "not_matches": "a"}, False),
    ({"file": "{here}"}, True),
    ({"file": "{here}", "min_bytes": "4B"}, True),
    ({"file": "{here}", "min_bytes": "5B"}, False),
    ({"file": "{here}.gone"}, False),
    ({"port_free": "{free}"}, True),
    ({"port_free": "{port}"}, False),
    ({"image": "here", "platform": "linux/amd64"}, True),
    ({"image": "here", "platform": "linux/arm64"}, False),
    ({"image": "gone"}, False),
    ({"cpu": "no-such-flag"}, False),
]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(peer: socket.socket) -> None:
        while peer.recv(4096):
            peer.sendall(ANSWER)

    with serving(listener, talk):
        yield listener.getsockname()[1]


@pytest.mark.parametrize(("asked", "holds"), CASES)
def test_a_question(
    bench: Bench, port: int, tmp_path: Path, asked: dict[str, Any], holds: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("four")
    words = {"{port}": str(port), "{free}": str(free_port()), "{here}": str(tmp_path / "file")}

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        for name, word in words.items():
            value = value.replace(name, word) if isinstance(value, str) else value
        return int(value) if isinstance(value, str) and value.isdigit() else value

    context = bench.context
    context.clock = SystemClock()
    context.services = cast("Any", SimpleNamespace(client=None))
    context.run.attempt_log("look", 1).parent.mkdir()
    monkeypatch.setattr(checks, "image_info", lambda _, ref: IMAGE if ref == "here" else None)
    one, attempt = Check(**filled(asked)), Attempt(context, "look", 1, 60.0)
    step = Step(id="look", note="x", requires=[one])
    if holds:
        assert checks.ask(context, one, attempt)
        checks.requires(context, step, attempt)
        return
    with pytest.raises(StepFailed):
        checks.ask(context, one, attempt)
    with pytest.raises(StepFailed) as refused:
        checks.requires(context, step, attempt)
    assert refused.value.cause is Cause.PRECONDITION
