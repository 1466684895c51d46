"""Which plan a rollback acts on while runs, site files and what the runs sealed disagree."""

from __future__ import annotations

import json
import sys

import pytest

from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.run.e2e.sites import book, host_site
from tests.run.scenes import LONG, is_back, is_cut_over, roll_back, stay
from tests.run.world import WorldBase as World
from tests.services.made_engine import IMAGE, Refused, made_engine


def test_a_changed_site_file_forgets_no_candidate_container(bare: World) -> None:
    """The baseline is a process, and the candidate answers at its very port."""
    with made_engine() as engine:
        site = json.loads(host_site(bare, engine.host))
        serve = ["env", "-u", "OMNI_RUN", "-u", "OMNI_STEP", sys.executable, "-S", str(STANDIN)]
        site["services"]["box"] = {
            "container": {"image": IMAGE, "command": [*serve, str(bare.base_port)]},
            "url": bare.base_url, "exclusive": True,
        }  # fmt: skip
        bare.site.write_text(json.dumps(site))
        bare.bring_up()
        bare.detach(bare.write("b.yaml", book("id: up, service: {start: box}", LONG)))
        bare.step("long", "running")

        def refuse(call: str) -> None:
            if "/stop" in call or "/kill" in call:
                raise Refused(500, "did not receive an exit event")

        engine.answer = refuse
        assert bare.console("rollback").code == 7
        bare.over()
        engine.answer = lambda call: None
        bare.site.write_text(json.dumps(site, indent=2))
        done = bare.console("rollback", "--json")
        assert (done.code, done.json["nothing_to_do"]) == (0, False), done
        assert not [one.name for one in engine.containers.values() if one.job.running]
        assert bare.baseline() is not None


@pytest.mark.parametrize("ladder", ["warm", "dead"])
def test_a_run_in_its_outage_whose_plan_and_script_are_lost(outage: World, ladder: str) -> None:
    if ladder == "dead":
        outage.kill("ladder")
        outage.until(lambda: not outage.pids("ladder"), "the ladder is dead")
    outage.run.sealed.unlink()
    outage.run.script.unlink()
    roll_back(outage, OMNI_SITE="")


def test_a_site_file_with_an_old_date_is_a_changed_one(world: World) -> None:
    """It was prepared before the run and is moved into its place after it."""
    place = world.root / "config/omni-console/site.yaml"
    place.parent.mkdir()
    place.write_text(world.site.read_text())
    world.env["OMNI_SITE"] = ""
    site, port = json.loads(place.read_text()), free_port()
    site["baseline"] |= {
        "process": {"argv": world.engine(world.model, port)}, "url": f"http://127.0.0.1:{port}"
    }  # fmt: skip
    prepared = world.write("site.new.yaml", json.dumps(site))
    assert world.go(world.write("b.yaml", book("id: n, note: hello"))).code == 0
    prepared.rename(place)
    done = world.console("rollback", "--json")
    assert (done.code, done.json["nothing_to_do"]) == (0, False), done
    assert world.serves(site["baseline"]["url"])


def test_a_rollback_of_one_site_leaves_the_cutover_of_another(world: World) -> None:
    stay(world)
    site, port = json.loads(world.site.read_text()), free_port()
    url = f"http://127.0.0.1:{port}"
    process = {"argv": world.engine(world.model, port)}
    site |= {"name": "other", "baseline": {**site["baseline"], "process": process, "url": url}}
    other = world.write("other.yaml", json.dumps(site))
    done = world.console("rollback", "--json", "--site", str(other))
    assert (done.code, done.json["serving"]) == (0, True), done
    assert world.serves(url)
    is_cut_over(world)
    assert f"omni-console rollback --site {world.site}" in done.err
    roll_back(world)
    is_back(world)
