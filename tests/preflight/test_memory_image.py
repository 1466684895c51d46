"""What a build in an image says of a model's memory, asked inside a real container."""

from collections.abc import Callable

import docker
import pytest

from console.checks.preflight import Level
from console.checks.preflight.architecture import in_image, memory, whole_header
from console.checks.preflight.architecture.in_image import ImageBuild
from console.checks.preflight.architecture.memory import MIB, Reserved
from console.models.gguf.skeleton import skeleton
from console.models.sizing.assessment import HOST, Assessment
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.loader_plan import LlamaPlan, Strategy
from tests.preflight.conftest import Labels
from tests.sizing.known import KNOWN
from tests.sizing.test_known import recorded

pytestmark = pytest.mark.engine

Packages = Callable[[dict[str, bytes]], str]
HEADER = KNOWN["DeepSeek-R1"]()
SERVER = ("/opt/packages/llama-server", "-m", "/m/x.gguf")
TELLS = (
    b'#!/bin/sh\nfor last; do :; done\necho "said $*" $(stat -c %s "$last")\necho "Host 1 2 3"\n'
)


def summed() -> Assessment:
    found = Assessment(Strategy.RESIDENT)
    for name in ("weights", "cache", "compute"):
        found.add(name, 361_035 * MIB, HOST)
    found.limit(HOST, 1 << 42)
    return found


@pytest.mark.parametrize("name", ["llama-fit-params", "llama"])
def test_the_tool_of_an_image_gets_a_file_with_a_hole(
    client: docker.DockerClient, packages: Packages, mine: Labels, name: str
) -> None:
    """345 GiB long, in a container that may write 256 MiB; beside the server or as a command of
    llama.cpp's one program."""
    image = packages({"llama-server": b"#!/bin/sh\nexit 1\n", name: TELLS})
    build = ImageBuild(client, image, command=SERVER, labels=mine)
    head, size = skeleton(HEADER)
    lines = build.measured(head, size, ["-c", "4096"])
    command = "fit-params " if name == "llama" else ""
    assert lines[0] == f"said {command}-c 4096 -m /tmp/omni-model.gguf {size}"
    assert size > 345 << 30
    [one] = memory.findings(build, HEADER, LlamaPlan(ctx=4096, parallel=1), summed())
    assert (one.level, one.words[:15]) == (Level.OK, "weights 1.0 MiB")


def test_an_image_without_the_tool_or_a_shell_says_nothing(
    client: docker.DockerClient, packages: Packages, mine: Labels, arm: str
) -> None:
    bare = packages({"llama-server": b"#!/bin/sh\nexit 1\n"})
    build = ImageBuild(client, bare, command=SERVER, labels=mine)
    assert memory.findings(build, HEADER, LlamaPlan(), summed()) == []
    for ref in (arm, "omni-test/nonesuch:1"):
        build = ImageBuild(client, ref, command=SERVER, labels=mine)
        assert all(
            one.level is Level.WARN for one in memory.findings(build, HEADER, LlamaPlan(), summed())
        )


def test_a_tool_that_never_ends_or_takes_too_much_is_stopped(
    client: docker.DockerClient, packages: Packages, mine: Labels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_image, "ASK_S", 0.5)
    image = packages({"llama-fit-params": b"#!/bin/sh\nexec sleep 1000\n",
                      "llama-server": b"#!/bin/sh\n"})  # fmt: skip
    build = ImageBuild(client, image, command=SERVER, labels=mine)
    [one] = memory.findings(build, HEADER, LlamaPlan(), summed())
    assert (one.level, "did not end" in one.words) == (Level.WARN, True), one.words


LOADS = b"""#!/bin/sh
while [ "$1" != -m ]; do shift; done
echo "size $(stat -c %s "$2")"
echo "llama_model_load: error loading model: missing tensor 'blk.0.attn_q.weight'"
exit 1
"""


def test_a_build_in_an_image_is_asked_about_the_whole_header(
    client: docker.DockerClient, packages: Packages, mine: Labels, arm: str
) -> None:
    """As a program of this machine is; without a shell to make the file nothing is known."""
    image = packages({"llama-server": LOADS})
    build = ImageBuild(client, image, command=SERVER, labels=mine)
    head, size = skeleton(HEADER)
    assert build.load(head, size=size)[0] == f"size {size}"
    assert build.load(head)[0] == f"size {len(head)}"
    said = whole_header.ask_loader(HEADER, build)
    assert (said.accepted, "missing tensor" in said.line) == (False, True)
    bare = ImageBuild(client, arm, command=SERVER, labels=mine)
    assert whole_header.ask_loader(HEADER, bare).accepted is None


@pytest.mark.full
def test_a_real_build_in_an_image_says_what_it_says_outside(
    client: docker.DockerClient, extra_image: str, mine: Labels
) -> None:
    build = ImageBuild(client, extra_image, command=("llama-server", "-m", "/x.gguf"), labels=mine)
    arguments = "-c 32768 -np 1"
    head, size = skeleton(HEADER)
    said = memory.read(build.measured(head, size, memory.arguments(llama_plan(arguments.split()))))
    assert isinstance(said, Reserved), said
    weights, cache, compute = recorded()["DeepSeek-R1"][arguments]
    assert said == Reserved(weights * MIB, cache * MIB, compute * MIB)
