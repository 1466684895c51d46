"""What rehearsals say, word for word: what stands in for what, what cannot be rehearsed."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.cli import main
from console.common.errors import ServiceError, UsageError
from console.config.playbook.steps import CriterionModel
from console.rehearsal.inside.settings import Settings
from console.rehearsal.prepare import FAULTS
from console.rehearsal.rewrite import Rewriter
from console.rehearsal.speed import calibrate, target_speeds
from console.rehearsal.workspace import Mapping
from tests.rehearsal.test_rewrite import BOOK, PORTS
from tests.rehearsal.test_speed import Box

SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: base, url: "http://127.0.0.1:8000"}
services: {fast: {process: {argv: [x]}, url: "http://127.0.0.1:8001"},
           slow: {process: {argv: [x]}, url: "http://127.0.0.1:8002"}}
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "OMNI_HOST_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")


def test_what_cannot_be_rehearsed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    told = {}
    for argv in (
        "run demo --rehearse --fault meteor", "plan demo --rehearse --fault meteor",
        "run demo --fault slow", "plan demo --fault slow",
        "run demo --rehearse", "plan demo --rehearse", "rollback --rehearse",
    ):  # fmt: skip
        code = main(argv.split())
        told[argv] = [code, capsys.readouterr().err.replace(str(tmp_path), "HERE")]
    assert told == snapshot
    assert not (tmp_path / "XDG_STATE_HOME/omni-console/runs").exists()


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_what_stands_in_for_what(fault: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    settings = Settings(unsteady=8.0)
    mapping = Mapping("base:1", fault, PORTS, cpus=0.25, ram_below=4 << 30, settings=settings)
    rewriter = Rewriter(mapping)
    made = rewriter(BOOK, Path("/books"))
    notes = [note.replace(str(tmp_path), "HERE") for note in rewriter.notes]
    said = [made["title"], *notes]
    for image, tag in rewriter.images.items():
        said = [line.replace(tag, f"[{image}]") for line in said]
    assert said == snapshot


def test_how_fast_a_stand_in_has_to_be(snapshot: SnapshotAssertion) -> None:
    told: list[str] = []
    box, slow = Box(0.008), Box(0.008, most=4.0)
    calibrate(box.measure, box.limit, 0.009, 10.9, told.append)
    with pytest.raises(ServiceError) as speed:
        calibrate(slow.measure, slow.limit, 0.009, 10.9, told.append)
    with pytest.raises(UsageError) as grey:
        target_speeds([CriterionModel(metric="bench.ttft_s", go="< 2s")], 10.0).speed("grey")
    assert [*told, *speed.value.lines(), *grey.value.lines()] == snapshot
