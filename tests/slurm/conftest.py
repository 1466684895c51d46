"""A real Slurm for all tests here, and worlds of real processes on its one node."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from console.runner.slurm.ticket import Held
from tests.runner.e2e.sites import host_site
from tests.runner.e2e.world import World
from tests.testbed.cache import Unavailable
from tests.testbed.models import tiny_llama
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.slurm import Slurm, slurm

LANE = pytest.mark.xdist_group("slurm")
"""One Slurm for all tests, on a worker of their own: they wait more than they compute."""


class Node(World):
    """A world on the node of a Slurm."""

    def __init__(self, root: Path, model: Path, cluster: Slurm) -> None:
        super().__init__(root, model)
        self.cluster = cluster
        self.env |= cluster.env

    @property
    def tickets(self) -> list[Path]:
        """Every ticket with a job, the newest first."""
        found = (self.root / "state/omni-console/slurm").glob("*/job.json")
        return [one.parent for one in sorted(found, key=lambda x: x.stat().st_mtime_ns)][::-1]

    def job(self) -> str:
        """The newest job that was asked for."""
        place = self.until(lambda: self.tickets, "a job was asked for")[0]
        return str(json.loads((place / "job.json").read_text())["job"])

    def holder(self) -> Held:
        """Who holds the newest job's allocation."""
        path = self.tickets[0] / "held.json"
        self.until(path.exists, "the allocation is held")
        told = json.loads(path.read_text())
        return Held(told["job"], told["pid"], told["start"])


@pytest.fixture(scope="session")
def slurm_here() -> Iterator[Slurm]:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        root.chmod(0o755)
        try:
            made = stack.enter_context(slurm(root))
        except Unavailable as error:
            lacking(PREFIX + error.reason)
        yield made


@pytest.fixture
def cluster(slurm_here: Slurm) -> Iterator[Slurm]:
    """A Slurm without jobs, and again afterwards."""
    yield slurm_here
    slurm_here.empty()


@pytest.fixture
def bare(tmp_path: Path, cluster: Slurm) -> Iterator[Node]:
    """A world on the node, whose baseline does not run."""
    model = tmp_path / "tiny.gguf"
    tiny_llama(model)
    made = Node(tmp_path, model, cluster)
    made.site.write_text(host_site(made))
    yield made
    made.close()


@pytest.fixture
def world(bare: Node) -> Node:
    """A world whose baseline serves, on the node."""
    bare.bring_up()
    return bare
