"""The shipped check after a reboot decides by all that it asks, not by speed alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run.e2e.world import World
from tests.testbed.nvml import RTX_5090, Nvml

DOCKER = """\
#!/bin/sh
case "$*" in
    *RestartPolicy*) echo "{policy}" ;;
    *State.Status*) echo "{neighbour}" ;;
    ps*) printf '{stray}' ;;
esac
"""
SWAPON = "#!/bin/sh\necho '{swap}'\n"
WELL = {"policy": "unless-stopped", "neighbour": "running", "stray": "", "swap": "/nvme/swap200g"}


@pytest.mark.parametrize(
    ("broken", "code", "decision"),
    [
        ({}, 0, "go"),
        ({"policy": "no"}, 3, "no_go"),
        ({"neighbour": "exited"}, 3, "no_go"),
        ({"stray": "old-trial\\n"}, 3, "no_go"),
        ({"swap": "/swap.img"}, 3, "no_go"),
    ],
)
def test_one_thing_that_did_not_come_back_is_no_go(
    world: World, nvml: Nvml, tmp_path: Path, broken: dict[str, str], code: int, decision: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("docker", DOCKER), ("swapon", SWAPON)):
        (programs / name).write_text(text.format(**WELL | broken))
        (programs / name).chmod(0o755)
    site = json.loads(world.site.read_text())
    world.site.write_text(json.dumps(site | {"gpus": [{"uuid": RTX_5090.uuid}]}))
    cards = nvml.env(nvml.write(tmp_path / "cards", (RTX_5090,)))
    done = world.console(
        "run", "reboot-recovery", "--json", "--input", f"url={world.base_url}",
        "--input", f"reports={tmp_path}", **cards,
        PATH=f"{programs}:{world.env['PATH']}",
    )  # fmt: skip
    assert done.json["decision"] == decision, done.json["because"]
    assert done.code == code, done
