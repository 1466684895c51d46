"""What the host has: processor, kernel, nodes, ports, disk, cards, engine, compose files."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from console.checks.preflight import host
from console.common.errors import Level
from console.host import machine
from tests.ports import free_port
from tests.testbed.engine import Engine


def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        found, odd = host.ports([taken, 70_000])
    assert found.level is Level.FAIL
    assert f"sport = :{taken}" in found.hint
    assert odd.level is Level.FAIL
    # one that is free now may be another test's in a moment: not all of them are
    assert Level.OK in {host.ports([free_port()])[0].level for _ in range(9)}
    assert host.ports([taken], "203.0.113.1")[0].level is Level.UNKNOWN


@pytest.mark.parametrize(
    ("free", "need", "level"),
    [
        (100 << 30, 10 << 30, Level.OK),
        (100 << 30, 101 << 30, Level.FAIL),
        (100 << 30, 99 << 30, Level.FAIL),
        (10**12, 960 * 10**9, Level.FAIL),
        (10**12, 940 * 10**9, Level.OK),
        (100 << 30, None, Level.UNKNOWN),
    ],
)
def test_the_disk_keeps_a_margin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, need: int | None, level: Level
) -> None:
    monkeypatch.setattr(host, "disk_free", lambda path: free)
    assert host.disk(tmp_path, need).level is level


def test_a_real_disk(tmp_path: Path) -> None:
    found = host.disk(tmp_path / "not/yet", 1 << 60)
    assert found.level is Level.FAIL
    assert machine.disk_free(tmp_path) > 0


@pytest.mark.engine
def test_an_engine_that_answers(engine: Engine) -> None:
    found = host.engine(engine.host)
    assert found.level is Level.OK
    assert engine.host in found.words


@pytest.mark.engine
def test_compose_files(
    tmp_path: Path, engine: Engine, docker_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in docker_env.items():
        monkeypatch.setenv(name, value)
    good, bad, open_ = (tmp_path / f"{name}.yaml" for name in ("good", "bad", "open"))
    good.write_text("services:\n  a: {image: x}\n  b: {image: x, profiles: [p]}\n")
    bad.write_text("services:\n  a: {image: x, ports: {1: 2}}\n")
    open_.write_text("services:\n  a: {image: 'x:$TAG'}\n")
    at: tuple[dict[str, str], str] = ({}, engine.host)
    assert host.compose_file([good], *at)[0].level is Level.OK
    (broken,) = host.compose_file([bad], *at)
    assert broken.level is Level.FAIL
    assert "ports" in broken.words
    (unset,) = host.compose_file([open_], *at)
    assert unset.level is Level.WARN
    assert "$TAG" in unset.words
    (gone,) = host.compose_file([tmp_path / "missing.yaml"], *at)
    assert gone.level is Level.FAIL
    monkeypatch.setenv("PATH", str(tmp_path))
    (nobody,) = host.compose_file([good], *at)
    assert nobody.level is Level.UNKNOWN
