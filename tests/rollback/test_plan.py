"""The sealed plan and live.jsonl: what is written can be read back, and garbage is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.common.errors import InvalidFile
from console.host import process
from console.host.process import ProcessSpec
from console.recovery.rollback import live
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.live import Live
from console.recovery.rollback.sealed_plan import (
    Baseline,
    Candidate,
    EngineAddress,
    Proof,
    SealedPlan,
)
from console.runtime.spec import Handle
from tests.disk import nearly_full
from tests.rollback.conftest import Stage

FULL = SealedPlan(
    run_id="r1",
    run_dir="/state/runs/r1",
    baseline=Baseline(
        name="deepseek-r1",
        kind="process",
        url="http://127.0.0.1:8000",
        ready_path="/healthz",
        ready_timeout_s=1200.0,
        completion=Proof("m", "say \udcff", 4, 60.0),
        container_id="ab" * 32,
        container_name="r1",
        image_id="sha256:cd",
        compose_argv=("docker", "compose", "up"),
        compose_env=(("A", "b c"),),
        process=ProcessSpec(("llama-server", "a b", ""), (("K", "v"),), "/nvme"),
        records_dir="/state/services",
        log="/state/log",
        reference_tok_s=10.9,
        tolerance=0.2,
    ),
    site_name="example",
    site_path="/etc/site.yaml",
    sealed_at=1.5,
    candidates=(Candidate("cand", "container", "id", "name"),),
    engine=EngineAddress("/run/docker.sock", "unix:///run/docker.sock", "/cfg"),
    protected=("qdrant",),
    gpus=("GPU-1",),
    exclusive=True,
    memory_file="/state/restore.json",
    finish_argv=("omni-console", "finish"),
    finish_env=("HOOK_TOKEN",),
    grace_s=12.0,
    lease_s=1800.0,
)


def test_round_trip(tmp_path: Path) -> None:
    path, before = tmp_path / "rollback" / "plan.json", os.umask(0o077)
    try:
        sealed.write(replace(FULL, run_id="r2"), path)
        sealed.write(FULL, path)
    finally:
        os.umask(before)
    assert sealed.read(path) == FULL
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["plan.json"]
    sealed.write(FULL.name_first, path)
    assert sealed.read(path).baseline.ways == (FULL.baseline.container_name, "ab" * 32)


def changed(path: str, *new: object) -> dict[str, Any]:
    """The plan as JSON with another value at this place or, without `new`, with none."""
    value: dict[str, Any] = json.loads(json.dumps(FULL.to_json()))
    at: Any = value
    *parents, last = path.split(".")
    for key in parents:
        at = at[key]
    del at[last]
    for one in new:
        at[last] = one
    return value


GARBAGE = [
    None,
    [],
    {},
    changed("schema"),
    changed("run_id"),
    changed("baseline"),
    changed("baseline.url"),
    changed("baseline.process"),
    changed("baseline.kind", "vm"),
    changed("baseline.process.argv", []),
    changed("baseline.process.argv", ["a\0b"]),
    changed("baseline.ready_timeout_s", "900"),
    changed("baseline.ready_timeout_s", -1),
    changed("baseline.ready_timeout_s", float("nan")),
    changed("grace_s", True),
    changed("protected", "qdrant"),
    changed("candidates", [{}]),
    changed("baseline.compose_env", [["A"]]),
    changed("exclusive", 1),
    changed("engine", []),
]


def test_a_plan_without_what_came_later_is_read() -> None:
    assert SealedPlan.from_json(changed("keep", ["helper"])).keep == ("helper",)
    assert SealedPlan.from_json(changed("keep")).keep == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20), None],
    ids=["empty", "broken off", "no text", "deep", "too large", "missing"],
)
def test_unreadable_file(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "plan.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InvalidFile) as caught:
        sealed.read(path)
    assert ("No such file" in str(caught.value)) == (data is None)


def test_container_baseline_needs_a_container() -> None:
    value = changed("baseline.kind", "container")
    assert SealedPlan.from_json(value).baseline.kind == "container"
    value["baseline"].update(container_id="", container_name="")
    assert SealedPlan.from_json(value).baseline.compose_argv, "compose knows it by its labels"
    value["baseline"].update(compose_argv=[])
    with pytest.raises(InvalidFile):
        SealedPlan.from_json(value)


def test_live_lines_are_as_the_script_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    assert live.read(path) == []
    live.append(path, Live("runner", "runner", 12, 345))
    live.append(path, live.of_handle(Handle("cand", "container", container="abc")))
    live.append(path, live.of_handle(Handle("host", "process", pid=6, start=7)))
    tried = Handle("tried", "container", container="abd")
    live.append(path, live.of_handle(tried, expendable=True))
    lines = path.read_text().splitlines()
    assert lines[0].startswith('{"pid":12,"start":345,"kind":"runner","name":"runner"')
    assert lines[0].endswith(f'"boot":"{process.boot_id()}"}}')
    assert lines[1].startswith('{"container":"abc",')
    sed = ["sed", "-n", r's/^{"pid":\([0-9]*\),"start":\([0-9]*\),.*/\1 \2/p', str(path)]
    assert subprocess.check_output(sed, text=True).split("\n")[:2] == ["12 345", "6 7"]
    assert live.read(path) == [
        Live("runner", "runner", 12, 345),
        Live("container", "cand", container="abc"),
        Live("process", "host", 6, 7),
        Live("container", "tried", container="abd", expendable=True),
    ]


@settings(max_examples=30)
@given(cut=st.integers(0, 400))
def test_live_survives_a_torn_tail(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("live") / "live.jsonl"
    entries = [Live("step", f"s{i}", 100 + i, 5) for i in range(5)]
    for entry in entries:
        live.append(path, entry)
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    whole = data.count(b"\n")
    assert live.read(path)[:whole] == entries[:whole]
    live.append(path, Live("step", "next", 200, 5))
    assert live.read(path)[-1] == Live("step", "next", 200, 5)


def test_live_says_that_a_line_was_not_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "live.jsonl"
    first, lost, later = (Live("process", name, 100, 5) for name in ("first", "lost", "later"))
    live.append(path, first)
    with monkeypatch.context() as patch:
        nearly_full(patch, 40)
        with pytest.raises(OSError, match="No space left"):
            live.append(path, lost)
    assert live.read(path) == [first]
    live.append(path, later)
    assert live.read(path) == [first, later]


def test_live_ignores_lines_that_name_nobody(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    for line in (
        '{"kind": "runner", "pid": 1e999, "start": 5}',
        '{"pid":1,"start":5,"kind":"step"}', '{"pid":-4,"start":5,"kind":"step"}',
        '{"pid":0,"start":5,"kind":"step"}', '{"pid":44,"start":0,"kind":"step"}',
        '{"container":"","kind":"container"}', '{"pid":"x","start":5,"kind":"step"}', "[]", "null",
        "{}",
    ):  # fmt: skip
        path.write_text(line + "\n")
        assert live.read(path) == [], line


def test_a_site_file_has_changed_by_what_it_says(stage: Stage) -> None:
    """Its date does not count where the run has a copy: `mv` and `cp -p` keep an old date."""
    site, copy = stage.root / "site.yaml", Path(stage.plan.run_dir) / "site.yaml"
    for text, date, there, changed in (
        ("a", 9.0, True, False), ("b", 1.0, True, True), ("\ufeffa", 9.0, True, False),
        ("b", 1.0, False, False), ("a", 9.0, False, True),
    ):  # fmt: skip
        copy.write_text("a")
        site.write_text(text)
        os.utime(site, (date, date))
        if not there:
            copy.unlink()
        assert replace(stage.plan, sealed_at=5.0).is_older_than(site) is changed, (text, date)
    site.unlink()
    os.mkfifo(site)
    assert stage.plan.is_older_than(site), "it is not waited for"
    site.unlink()
    assert not stage.plan.is_older_than(site)
