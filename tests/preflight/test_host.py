"""What the host has: processor, kernel, nodes, ports, disk, cards, engine, compose files."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from console.fit.machine import Card, Machine
from console.preflight import host, machine
from console.preflight.cards import Cards
from console.preflight.finding import Level
from tests.benchmark.scripted import free_port
from tests.testbed.engine import Engine

ZEN5 = frozenset(["avx2", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"])


def test_the_processor_and_a_method() -> None:
    zen = Machine(cpu_flags=ZEN5, cpu_name="AMD Ryzen Threadripper PRO 9995WX 96-Cores")
    (plain,) = host.processor(zen)
    assert "AVX-512 VNNI" in plain.words
    assert "without AMX" in plain.words
    _, method = host.processor(zen, "AMXINT8")
    assert (method.level, method.lessons) == (Level.FAIL, ("S-013",))
    assert host.processor(zen, "FP8")[1].level is Level.OK
    assert host.processor(zen, "NEWEST")[1].level is Level.UNKNOWN
    old = Machine(cpu_flags=frozenset({"avx2"}))
    assert host.processor(old, "FP8")[1].level is Level.FAIL
    assert host.processor(old, "LLAMAFILE")[1].level is Level.OK
    dark = Machine(given={"cpu_flags": "/proc/cpuinfo: Permission denied"})
    assert [one.level for one in host.processor(dark, "AMXINT8")] == [Level.UNKNOWN] * 2


def test_sched_ext_is_two_things(tmp_path: Path) -> None:
    assert host.kernel(release="6.8.0-45-generic").level is Level.OK
    old = host.kernel(sched_ext=True, root=tmp_path, release="6.8.0-45-generic")
    assert (old.level, old.lessons) == (Level.FAIL, ("F-018", "F-023"))
    assert "6.12" in old.words
    bare = host.kernel(sched_ext=True, root=tmp_path, release="6.14.0")
    assert "CONFIG_SCHED_CLASS_EXT" in bare.words
    (tmp_path / "sys/kernel/sched_ext").mkdir(parents=True)
    assert host.kernel(sched_ext=True, root=tmp_path, release="6.14.0").level is Level.OK


def test_nodes() -> None:
    assert host.numa(Machine(numa_nodes=1)).level is Level.OK
    many = host.numa(Machine(numa_nodes=4))
    assert (many.level, many.lessons) == (Level.WARN, ("S-005",))
    assert host.numa(Machine()).level is Level.UNKNOWN


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


def test_named_cards() -> None:
    there = Cards((Card("a", "GPU-1"), Card("b", "GPU-2")))
    assert host.cards_present(["GPU-1"], there)[0].level is Level.OK
    (missing,) = host.cards_present(["GPU-1", "GPU-9"], there)
    assert missing.level is Level.FAIL
    assert "GPU-1, GPU-2" in missing.hint
    (dark,) = host.cards_present(["GPU-1"], Cards(words="no NVIDIA driver"))
    assert dark.level is Level.UNKNOWN
    assert host.cards_present([], there) == ()


def test_no_engine(tmp_path: Path) -> None:
    found = host.engine(f"unix://{tmp_path}/no.sock")
    assert found.level is Level.FAIL
    assert found.hint


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
    asked = {"host": engine.host}
    assert host.compose_file([good], "a", **asked)[0].level is Level.OK
    assert host.compose_file([good], "b", profiles=["p"], **asked)[0].level is Level.OK
    (hidden,) = host.compose_file([good], "b", **asked)
    assert hidden.level is Level.FAIL
    assert "profile" in hidden.hint
    (broken,) = host.compose_file([bad], **asked)
    assert broken.level is Level.FAIL
    assert "ports" in broken.words
    (unset,) = host.compose_file([open_], "a", **asked)
    assert unset.level is Level.WARN
    assert "$TAG" in unset.words
    (gone,) = host.compose_file([tmp_path / "missing.yaml"], **asked)
    assert gone.level is Level.FAIL
    monkeypatch.setenv("PATH", str(tmp_path))
    (nobody,) = host.compose_file([good], **asked)
    assert nobody.level is Level.UNKNOWN
