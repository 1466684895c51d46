"""Hosts that answer over a real ssh, and a host's side alone."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from console.config.site.site import load_site
from console.fleet import known, starts
from console.fleet.bridge import Bridge
from console.fleet.inventory import Host
from console.frontends.cli.fleet import commands, rollout
from console.journal import lock
from tests.clock import FakeClock
from tests.fleet.far import SITE, Far
from tests.fleet.hosts import Operator, hosts
from tests.fleet.standin import BOOK, Fleet, ToldHost, Typed
from tests.testbed.cache import Unavailable
from tests.testbed.models import tiny_llama
from tests.testbed.plugin import PREFIX, lacking


@pytest.fixture
def operator(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Operator]:
    """An operator of the hosts whose names are the parameter."""
    model = tmp_path / "tiny.gguf"
    tiny_llama(model)
    with ExitStack() as stack:
        try:
            made = stack.enter_context(hosts(tmp_path, model, request.param))
        except Unavailable as error:
            lacking(PREFIX + error.reason)
        yield made


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    site, clock = tmp_path / "site.yaml", FakeClock()
    site.write_text(SITE)
    made = Far(tmp_path, clock, Bridge(lambda: {"baseline": {}}, lambda: load_site(site), clock))
    monkeypatch.setattr(starts, "begin", made.begin)
    monkeypatch.setattr(lock, "runner_alive", lambda run: made.alive)
    monkeypatch.setattr(lock, "closer_alive", lambda run: False)
    return made


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Fleet(tmp_path, FakeClock())


@pytest.fixture
def fars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, ToldHost]:
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("OMNI_FLEET", str(tmp_path / "fleet.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text("schema: omni.fleet/v1\nhosts: {a: {}, b: {}}\n")
    (tmp_path / "trial.yaml").write_text(BOOK)
    made = {name: ToldHost(name) for name in "ab"}

    def line(host: Host, control: object) -> ToldHost:
        return made[host.name]

    for module in (commands, rollout, known):
        monkeypatch.setattr(module, "Line", line)
    monkeypatch.setattr(sys, "stdin", Typed(None))
    monkeypatch.setattr(rollout, "SystemClock", FakeClock)
    return made
