"""The oracle inside a real llama.cpp image: the same verdicts as whole models get there."""

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from console.checks.preflight import Level
from console.checks.preflight.architecture import in_image, names, whole_header
from console.checks.preflight.architecture.in_image import ImageBuild, needs_driver, runtimes
from console.checks.preflight.architecture.names import Presence
from console.checks.preflight.architecture.support import Witness, accepts
from console.checks.preflight.architecture.tensor_types import cache_findings, verdict_on
from console.models.gguf.header import Tensor
from console.models.gguf.read import read_header
from tests.preflight.conftest import Labels
from tests.testbed import debian
from tests.testbed.engine import Engine
from tests.waiting import some

pytestmark = pytest.mark.engine

ASKED = ("deepseek2", "deepseek3_2", "deepseek32", "llama", "qwen3moe", "gptj")
BENCH = (
    'for f in /m/*.gguf; do llama-bench -m "$f" -p 4 -n 1 -r 1 >/dev/null 2>&1 && echo "$f"; done'
)
SHELL = ("sh", "-c", "exec llama-server -m /models/x.gguf --device CUDA0 -ngl 99")


@pytest.fixture
def build(client: docker.DockerClient, llama_image: str, mine: Labels) -> ImageBuild:
    """The build as a service with a card calls it."""
    return ImageBuild(client, llama_image, command=SHELL, labels=mine)


def test_the_loader_says_what_happens_to_whole_models(
    engine: Engine, build: ImageBuild, llama_image: str, models: dict[str, Path], mine: Labels
) -> None:
    (label,) = mine.items()
    with tempfile.TemporaryDirectory() as folder:
        for name in ASKED:
            (Path(folder) / f"{name}.gguf").write_bytes(models[name].read_bytes())
        ran = engine.run(
            *("run", "--rm", "--network", "none", "--label", "=".join(label)),
            *("-v", f"{folder}:/m:ro", llama_image, "sh", "-c", BENCH + "; true"),
        )
    loaded = {Path(line).stem for line in ran.split()}
    answers = build.ask(ASKED)
    assert {name for name, said in answers.items() if said.accepted} == loaded
    assert {name for name, said in answers.items() if said.accepted is False} == {*ASKED} - loaded
    assert "deepseek2" in loaded
    assert "deepseek3_2" not in loaded


def test_the_lesson_before_the_download(build: ImageBuild) -> None:
    verdict = accepts("deepseek3_2", build)
    assert (verdict.accepted, verdict.witness, verdict.agree) == (False, Witness.LOADER, True)
    assert verdict.lessons == ("F-008",)
    assert "deepseek2" in verdict.knows
    assert verdict.engine.digest.startswith("sha256:")
    assert verdict.engine.build.startswith("build ")
    assert "llama-server of image" in verdict.words
    again = accepts("deepseek3_2", build)
    assert (again.remembered, again.knows) == (True, verdict.knows)


def test_a_whole_header_is_asked_of_the_build_in_the_image(
    build: ImageBuild, models: dict[str, Path]
) -> None:
    for name in ("llama", "qwen3moe"):
        whole = read_header(str(models[name])).header
        assert whole_header.ask_loader(whole, build).accepted is True
        some_tensors = replace(whole, tensors=some(whole.tensors)[:-1])
        assert whole_header.ask_loader(some_tensors, build).accepted is False


def test_types_are_asked_of_the_build_in_the_image(build: ImageBuild) -> None:
    tensors = [Tensor(f"t{n}", (256,), n, "", None) for n in (0, 12, 14, 144)]
    assert verdict_on(tensors[:3], "llama", build).finding().level is Level.OK
    found = verdict_on(tensors, "llama", build)
    assert [one.number for one in found.refused] == [144]
    assert "invalid ggml type 144" in found.finding().text
    assert some(build.scan("iq4_ks", names.TYPE_MARK)).presence is Presence.ABSENT
    assert some(build.scan("q4_K", names.TYPE_MARK)).presence is Presence.WHOLE
    (refused,) = cache_findings(("q8_0", "q8_KV"), build)
    assert "q8_KV" in refused.text


def test_the_library_is_found_without_a_shell_or_ldd(build: ImageBuild) -> None:
    scan = some(build.scan("qwen2"))
    assert Path(scan.path.split()[0]).name.startswith("libllama.so")
    assert scan.presence is not Presence.ABSENT
    absent = some(build.scan("deepseek3_2"))
    assert absent.presence is Presence.ABSENT


def test_an_image_without_a_program(
    client: docker.DockerClient, busy_image: str, arm: str, mine: Labels
) -> None:
    for ref, words in (
        (busy_image, "executable file not found"),
        (arm, "exec format error"),
        ("omni-test/nonesuch:1", "is not on this machine"),
    ):
        verdict = accepts("llama", ImageBuild(client, ref, labels=mine))
        assert verdict.accepted is None
        assert words in verdict.words
        assert verdict.finding().level is Level.UNKNOWN


def test_a_program_that_serves_whatever_it_is_given(
    client: docker.DockerClient, busy_image: str, mine: Labels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_image, "ASK_S", 0.3)
    wrapper = ("sh", "-c", 'echo listening; sleep "$1"', "run.sh", "1000", "-m", "/m/x.gguf")
    build = ImageBuild(client, busy_image, entrypoint=wrapper[:1], command=wrapper[1:], labels=mine)
    verdict = accepts("llama", build)
    assert verdict.accepted is None


def test_a_build_that_wants_the_drivers_library(
    client: docker.DockerClient,
    packages: Callable[[dict[str, bytes]], str],
    mine: Labels,
    tmp_path: Path,
) -> None:
    """Linked against libcuda: the dynamic linker's own words, and no card in this engine."""
    gcc = debian.require_program("gcc", ["gcc", "libc6-dev"])
    source, driver, program = (tmp_path / name for name in ("p.c", "libcuda.so.1", "llama-server"))
    source.write_text("int cuInit(unsigned); int main(void) { return cuInit(0); }\n")
    empty = tmp_path / "d.c"
    empty.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    soname = "-Wl,-soname,libcuda.so.1"
    subprocess.run([gcc, "-shared", "-fPIC", soname, "-o", driver, empty], check=True)
    subprocess.run([gcc, "-o", program, source, driver], check=True)
    image = packages({"llama-server": program.read_bytes()})
    command = ("/opt/packages/llama-server", "-m", "/m/x.gguf")
    verdict = accepts("llama", ImageBuild(client, image, command=command, labels=mine))
    assert verdict.accepted is None
    assert "libcuda.so.1" in verdict.words
    assert needs_driver([verdict.words])
    assert not needs_driver([verdict.words.replace("libcuda", "libfoo")])
    assert "runc" in runtimes(client)
