"""The shipped check after a reboot decides by all that it asks, not by speed alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.run.world import WorldBase as World
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
BROKEN = {"policy": "no", "neighbour": "exited", "stray": "old-trial\\n", "swap": "/swap.img"}


@pytest.mark.parametrize(
    "broken",
    [(), ("stray",), tuple(BROKEN)],
    ids=["all is well", "one is not back", "none is back"],
)
def test_what_did_not_come_back_is_no_go(
    world: World, nvml: Nvml, tmp_path: Path, broken: tuple[str, ...]
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("docker", DOCKER), ("swapon", SWAPON)):
        told = WELL | {key: BROKEN[key] for key in broken}
        (programs / name).write_text(text.format(**told))
        (programs / name).chmod(0o755)
    site = json.loads(world.site.read_text())
    world.site.write_text(json.dumps(site | {"gpus": [{"uuid": RTX_5090.uuid}]}))
    cards = nvml.env(nvml.write(tmp_path / "cards", (RTX_5090,)))
    done = world.console(
        "run", "reboot-recovery", "--json", "--input", f"url={world.base_url}",
        "--input", f"reports={tmp_path}", **cards,
        PATH=f"{programs}:{os.environ['PATH']}",
    )  # fmt: skip
    decision, code = ("no_go", 3) if broken else ("go", 0)
    assert done.json["decision"] == decision, done.json["because"]
    assert done.code == code, done
    asked = ("policy", "swap", "neighbour", "stray", "speed")
    wanted = ["NO-GO" if name in broken else "GO" for name in asked]
    [gate] = [one for one in world.view().verdicts if one.step == "as-before"]
    assert [row["verdict"] for row in gate.criteria] == wanted
