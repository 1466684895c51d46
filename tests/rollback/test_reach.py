"""A container that its engine publishes nowhere, on a real engine: who answers at its address?"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from console.host.ports import port_of
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.look import Looker
from console.recovery.rollback.script import write
from console.recovery.rollback.sealed_plan import Proof
from console.recovery.rollback.stages import verify
from console.runtime import reach
from console.runtime.probe import Health, health
from tests.forward import forward
from tests.ports import free_port
from tests.rollback.conftest import DASH, standin
from tests.rollback.test_ladder_engine import Yard, only_real, yard  # noqa: F401
from tests.testbed.engine import Engine
from tests.waiting import until

pytestmark = only_real
by = pytest.mark.parametrize("by", ["procedure", "script"])


@pytest.fixture
def unpublished(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:  # noqa: F811
    """The yard whose baseline was made anew without its port, and serves in its own network."""
    base, engine = yard.plan.baseline, yard.engine
    assert isinstance(engine, Engine)
    monkeypatch.setattr(verify, "HUNG_S", 2.0)
    yard.remove(base.container_id)
    identity = engine.run(
        "run", "-d", "--name", base.container_name, "--label", yard.label,
        "-v", f"{yard.plan.run_dir}/models:/models:ro", yard.image,
        "llama-server", "-m", "/models/tiny.gguf",
        "--host", "0.0.0.0", "--port", "8080", "-c", "512", "-t", "1",
    ).strip()  # fmt: skip
    quick = replace(base, container_id=identity, ready_timeout_s=3.0, completion=Proof(timeout_s=5))
    yard.plan = replace(yard.plan, baseline=quick)
    until(lambda: serves_inside(yard), "it serves")
    return yard


def inner(yard: Yard) -> tuple[int, str]:  # noqa: F811
    """Port and host at which the container answers in its own network."""
    networks = yard.raw.inspect(yard.plan.baseline.container_id)["NetworkSettings"]["Networks"]
    return 8080, next(iter(networks.values()))["IPAddress"]


def serves_inside(yard: Yard) -> bool:  # noqa: F811
    port, host = inner(yard)
    return health(f"http://{host}:{port}", "/health")[0] is Health.SERVING


def started(yard: Yard) -> str:  # noqa: F811
    return str(yard.raw.inspect(yard.plan.baseline.container_id)["State"]["StartedAt"])


def outcome(yard: Yard, by: str) -> tuple[bool, str]:  # noqa: F811
    """Whether a rollback ends with a baseline that serves, and what it says; by the procedure, or
    by the script that needs no Python."""
    if by == "procedure":
        result = yard.roll_back()
        return result.serving, result.detail
    assert isinstance(yard.engine, Engine)
    env = {**os.environ, "DOCKER_HOST": yard.engine.host}
    script = [str(DASH), str(write.write(yard.plan, yard.plan.rollback_dir))]
    done = subprocess.run(script, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 7), done
    return done.returncode == 0, done.stdout


@contextmanager
def stranger(url: str, lines: Path) -> Iterator[None]:
    argv = standin(port_of(url), "--lines", str(lines)).argv
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            until(lambda: health(url, "/health")[0] is Health.SERVING, "the stranger serves")
            yield
        finally:
            child.kill()


@by
@pytest.mark.parametrize(
    "says",
    [{}, {"message": {"content": "G" * 40}}, {"raw": ""}, {"status": 500, "error": "no"}],
    ids=["a completion", "garbage", "nothing", "an error"],
)
def test_what_another_server_says_at_its_address_is_no_word_of_it(
    unpublished: Yard, tmp_path: Path, says: dict[str, object], by: str
) -> None:
    plan, before = unpublished.plan, started(unpublished)
    lines = tmp_path / "lines.json"
    with stranger(plan.baseline.url, lines):
        lines.write_text(json.dumps(says))
        serves, words = outcome(unpublished, by)
        seen = Looker().look(plan)
    assert not serves, words
    assert reach.NOTHING_CAME in words
    assert started(unpublished) == before, "what is well was not restarted"
    assert seen.word is Word.UNKNOWN
    assert reach.PUBLISHED_NOWHERE in seen.detail
    state = evidence.state(plan, seen)
    assert state.word is not Word.SERVING


@by
def test_where_nobody_listens_it_is_not_restarted(unpublished: Yard, by: str) -> None:
    before = started(unpublished)
    serves, words = outcome(unpublished, by)
    assert not serves
    assert reach.PUBLISHED_NOWHERE in words
    assert started(unpublished) == before
    seen = Looker().look(unpublished.plan)
    assert (seen.word, reach.HINT in seen.detail) == (Word.DOWN, True)


@by
def test_one_behind_a_proxy_is_proven(unpublished: Yard, by: str) -> None:
    before = started(unpublished)
    with forward(port_of(unpublished.plan.baseline.url), *inner(unpublished)):
        serves, words = outcome(unpublished, by)
        assert Looker().look(unpublished.plan).word is Word.SERVING
    assert serves, words
    assert started(unpublished) == before


def test_a_garbled_one_behind_a_proxy_is_restarted(
    unpublished: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken back of what a rollback may do to its own baseline."""
    before = started(unpublished)
    base = replace(unpublished.plan.baseline, completion=Proof(timeout_s=5, expect="^never this$"))
    unpublished.plan = replace(unpublished.plan, baseline=base)
    with forward(port_of(base.url), *inner(unpublished)):
        unpublished.roll_back()
    assert started(unpublished) != before


def test_one_of_the_hosts_network_at_another_port_is_not_who_answers(
    yard: Yard,  # noqa: F811
    tmp_path: Path,
) -> None:
    base, engine, port = yard.plan.baseline, yard.engine, free_port()
    assert isinstance(engine, Engine)
    yard.remove(base.container_id)
    identity = engine.run(
        "run", "-d", "--name", base.container_name, "--label", yard.label, "--network", "host",
        "-v", f"{yard.plan.run_dir}/models:/models:ro", yard.image,
        "llama-server", "-m", "/models/tiny.gguf",
        "--host", "127.0.0.1", "--port", str(port), "-c", "512", "-t", "1",
    ).strip()  # fmt: skip
    yard.plan = replace(yard.plan, baseline=replace(base, container_id=identity))
    until(lambda: health(f"http://127.0.0.1:{port}", "/health")[0] is Health.SERVING, "it serves")
    with stranger(base.url, tmp_path / "lines.json"):
        seen = Looker().look(yard.plan)
    assert seen.word is Word.DOWN, seen
    assert "something else answers there" in seen.detail
