"""Each question of a `check` step and of `requires:`, with an answer that is wanted and one that is
not."""

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

HERE, GONE = {"file": "{here}"}, {"file": "{here}.gone"}
ECHO, AMD = {"output": ["echo", "a b"]}, {"image": "here", "platform": "linux/amd64"}
HOLDS: list[dict[str, Any]] = [
    {"http": {"url": URL}}, {"http": {"url": URL, "matches": "^ready$"}}, HERE, AMD,
    {**ECHO, "matches": "^a b$"}, {**ECHO, "not_matches": "c"}, {**HERE, "min_bytes": "4B"},
    {"port_free": "{free}"},
]  # fmt: skip
FAILS: list[dict[str, Any]] = [
    {"http": {"url": URL, "matches": "late"}}, {"http": {"url": URL, "status": 204}}, GONE,
    {"http": {"url": "http://127.0.0.1:{free}/"}}, {**ECHO, "matches": "c"}, {"image": "gone"},
    {**ECHO, "not_matches": "a"}, {"output": ["false"], "not_matches": "a"}, {"cpu": "no-such"},
    {**HERE, "min_bytes": "5B"}, {"port_free": "{port}"}, {**AMD, "platform": "linux/arm64"},
]  # fmt: skip
CASES = [*((one, True) for one in HOLDS), *((one, False) for one in FAILS)]


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
