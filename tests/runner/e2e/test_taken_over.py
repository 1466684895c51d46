"""Whole runs on a baseline that the console did not start: taken over by hand, and a unit."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from console.host import process
from tests.rollback.test_units import SYSTEMCTL
from tests.runner.e2e.sites import book, host_site
from tests.runner.e2e.world import World
from tests.waiting import some, until

TRIAL = book("id: up, service: {start: cand}", "id: serves, service: {wait: cand}")


def test_a_run_stops_what_was_taken_over_and_brings_it_back(bare: World) -> None:
    argv = bare.engine(bare.model, bare.base_port)
    child = subprocess.Popen(argv, env=bare.env, stdin=-3, stdout=-3, stderr=-3)
    until(bare.serves, "the baseline serves")
    written = bare.write("trial.yaml", TRIAL)
    refused = bare.go(written)
    assert (refused.code, "omni-console adopt" in refused.json["hint"]) == (5, True), refused
    done = bare.console("adopt", "--json")
    assert (done.code, done.json["pid"]) == (0, child.pid), done
    done = bare.go(written)
    assert done.code == 0, f"{done}\n{bare.where()}"
    assert child.wait(60) is not None
    assert some(bare.baseline())[0] != child.pid
    assert bare.serves()


def test_a_stop_that_is_refused_is_no_outage(bare: World) -> None:
    """Another site has taken the server over since the run began."""
    pid, start = bare.bring_up()
    records = next(bare.root.glob("state/**/services/*/baseline.json")).parent
    plant = f"mkdir {records.parent}/other && cp {records}/baseline.json {records.parent}/other/"
    steps = f'id: plant, run: [sh, -c, "{plant}"]', "id: up, service: {start: cand}"
    done = bare.go(bare.write("trial.yaml", book(*steps)))
    assert done.code != 0, done
    assert "recorded baseline of site other" in str(done)
    assert process.alive(pid, start)
    shown = bare.console("show")
    assert "left alone" in shown.out
    assert "DOWN" not in shown.out, shown


def test_a_run_stops_a_unit_and_brings_it_back(bare: World) -> None:
    """With a stand-in for systemctl, which every process of this world finds first."""
    place, tools = bare.root / "units", bare.root / "tools"
    for one in (place, tools):
        one.mkdir()
    (place / "llama.service").write_text(json.dumps(bare.engine(bare.model, bare.base_port)))
    words = shlex.join([sys.executable, "-S", str(SYSTEMCTL), str(place)])
    (tools / "systemctl").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (tools / "systemctl").chmod(0o755)
    bare.env["PATH"] = f"{tools}:{bare.env['PATH']}"
    site = json.loads(host_site(bare))
    site["baseline"] = {"unit": {"name": "llama.service"}, "url": bare.base_url}
    bare.site.write_text(json.dumps(site))
    subprocess.run(["systemctl", "start", "llama.service"], env=bare.env, check=True)
    until(bare.serves, "the unit serves")
    first = pid_of(place)
    assert bare.console("adopt", "llama").code == 0
    done = bare.go(bare.write("trial.yaml", TRIAL))
    assert done.code == 0, f"{done}\n{bare.where()}"
    assert bare.serves()
    assert pid_of(place) not in (0, first)
    acted = [line for line in (place / "said").read_text().splitlines() if "--no-block" in line]
    assert [next(w for w in line.split() if w[0] != "-") for line in acted] == ["stop", "start"]
    process.send(pid_of(place), some(process.start_time(pid_of(place))), 9)
    done = bare.console("rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done


def pid_of(place: Path) -> int:
    return int((place / "llama.service.pid").read_text())
