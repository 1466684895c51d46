"""A new figure of the cards' gauges is a field and a record: the reader, rows, panels and curves,
what a run keeps, levels and a rehearsal's stand-in all go over the records."""

import re

import pytest

from console.host.gpu.figures import FIGURES
from tests.copied import ROOT, changed, copied_tree, python

PLACE = "console/host/gpu/figures.py"
FIELD = "    power_w: float | None = None\n", "    fan: float | None = None\n"
RECORD = """    Figure(
        "fan", "fan", Query("nvmlDeviceGetFanSpeed", 0.01, 1.0, (30, 90)), peak=True, kept="fan",
        curve=Curve("fan", "second", lambda gpu: 1.0), limits=(0.85, 0.95),
        words=lambda gpu: f"fan {gpu.fan * 100:.0f} %", cells=9, gives_way=True, brief=3,
    ),
    Figure(
        "power_limit","""
LOOK = """
import sys, threading
from dataclasses import asdict
from pathlib import Path
sys.path.insert(0, "console/rehearsal/standins")
sys.argv = ["x"]
from console.host.gpu import figures
from console.host.gpu.child import Session
from console.host.sample import History, NO_MARKS, Sample, gpu_levels
from console.journal.samples import GaugeFile, gauges
from console.journal.run_dir import RunDir
from console.render.cells import UNICODE, plain
from console.render.gauges import gpu_brief, gpu_rows
from console.render.panels import machine_panels
from console.runner.peaks import Peaks, _line
from console.common.clock import SystemClock
import pynvml
from types import SimpleNamespace
pynvml.settings = lambda: SimpleNamespace(cards=[{"uuid": "GPU-a", "name": "X", "total": 1 << 36}])
pynvml._used = lambda card: 1 << 35
(gpu,), trouble = Session(lambda: pynvml).look(1.0)
print(gpu.fan, gpu.temperature_c, gpu.why, trouble)
line = b'{"gpus": [%s], "trouble": ""}' % __import__("json").dumps(asdict(gpu)).encode()
report = figures.parse(line, 1.0)
print(report.gpus == (gpu,), gpu_levels(gpu)["fan"].name)
sample, history = Sample(1.0, None, (), report), History()
history.take(sample, 1000.0)
print(plain(gpu_rows(report, 100, 1.0, UNICODE, history)[0]))
print(plain(gpu_brief(report, 1.0, UNICODE)))
panel = machine_panels(sample, history, 1.0, UNICODE, NO_MARKS, lambda width: ())[0](60, 8)
print(*(plain(row) for row in panel), sep="\\n")
run = RunDir(Path("run"))
peaks = Peaks(run, lambda: "up", SystemClock())
peaks.take(sample)
print(peaks.figures()["gpu"]["GPU-a"]["seen"] if "why" in peaks.figures()["gpu"]["GPU-a"]
      else peaks.figures()["gpu"]["GPU-a"])
later = History()
later.load(gauges(run))
print(_line(sample, 1.0, "up")["fan"], later.curve("fan", 1, "GPU-a"))
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a program with one more figure shows."""
    field, more = FIELD
    text = changed(PLACE, field, field + more)[PLACE]
    before = '    Figure(\n        "power_limit",'
    assert before in text
    places = {PLACE: text.replace(before, RECORD, 1)}
    tree = copied_tree(tmp_path_factory.mktemp("tree"), places)
    (tree / "run").mkdir()
    done = python(tree, "-c", LOOK)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_place_goes_over_the_records(shown: str) -> None:
    reader, parsed, row, brief, *panel, peaks, kept = shown.splitlines()
    assert reader == "0.9 60.0  "
    assert parsed == "True WARN"
    assert "fan 90 % !" in row or "fan 90 %!" in row, row
    assert "fan 90 %" in brief
    assert "fan 90 %" in panel[0]
    assert any(line.rstrip("│ ").endswith("fan") for line in panel), panel
    assert "'fan': 0.9" in peaks
    assert kept == "{'GPU-a': 0.9} [0.9]"


def test_contributing_names_this_place_and_no_other() -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    row = next(row for row in rows if row.startswith("| a figure of the GPU gauges |"))
    assert re.findall(r"`([\w/]+/\w+\.\w+)`", row) == [PLACE]
    assert "fan" not in {figure.name for figure in FIGURES}
