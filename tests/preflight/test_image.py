"""Real images: there or not, containers of a moment, and import chains, whole or broken."""

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from console.checks.preflight import Finding, Level
from console.checks.preflight import image as image_checks
from console.checks.preflight.image import (
    check_image,
    check_imports,
    engine_platform,
    look,
    torch_of,
)
from console.common.errors import EngineError
from console.host.children import Cancelled
from console.runtime.docker import oneoff
from console.runtime.docker.engine_state import labels_of
from console.runtime.docker.oneoff import FILES, Moment, created, run, sweep
from console.runtime.spec import ROLE_LABEL, RUN_LABEL
from tests.preflight.conftest import Labels
from tests.testbed import debian
from tests.testbed.engine import Engine
from tests.waiting import some

pytestmark = pytest.mark.engine

SOURCES = {
    "ktransformers/__init__.py": "",
    "ktransformers/local_chat.py": "from ktransformers.models import custom_cache",
    "ktransformers/models/__init__.py": "",
    "ktransformers/models/custom_cache.py":
        "\nfrom ktransformers.server.balance_serve.settings import sched_ext",
    "ktransformers/server/__init__.py": "",
    "ktransformers/server/balance_serve/__init__.py": "",
    "ktransformers/server/balance_serve/settings.py": "import json\nimport sched_ext",
    "sglang/__init__.py": "print('noise on stdout \\x1b[31m')",
    "sglang/launch_server.py": "import ktransformers.local_chat",
    "sglang/lazy.py": "import nonesuch.deep",
    "noisy.py": "print('noise\\n' * 3000); import nonesuch",
    "whole.py": "import json, sys; print(sys.argv)",
    "syntax.py": "def broken(:\n",
    "card.py": "raise RuntimeError('Found no NVIDIA driver on your system.')",
    "leaves.py": "import os, sys; print('cannot go on', file=sys.stderr); os._exit(7)",
    "crash.py": "import ctypes; ctypes.string_at(0)",
    "endless.py": "import time\nwhile True: time.sleep(1)",
    "greedy.py": "held = bytearray(512 << 20)",
    "torch/__init__.py":
        "from types import SimpleNamespace as N\n__version__ = '2.9.1+cu128'\n"
        "version = N(cuda='12.8')\n_C = N(_cuda_getArchFlags=lambda: 'sm_75 sm_90 sm_120')",
}  # fmt: skip
ABI = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"


@pytest.fixture(scope="module")
def chains(
    packages: Callable[[dict[str, bytes]], str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Packages that end as the real ones did; the extension modules are real ELF files."""
    files = {name: text.encode() for name, text in SOURCES.items()}
    return packages({**files, **_extensions(tmp_path_factory.mktemp("extensions"))})


def _extensions(folder: Path) -> dict[str, bytes]:
    gcc = debian.require_program("gcc", ["gcc", "libc6-dev"])

    def compiled(name: str, code: str, *more: str) -> Path:
        source, made = folder / f"{name}.c", folder / name
        source.write_text(code)
        subprocess.run([gcc, "-shared", "-fPIC", "-s", "-o", made, source, *more], check=True)
        return made

    library = compiled("libxxhash.so.9", "int xx(void) { return 1; }", "-Wl,-soname,libxxhash.so.9")
    driver = compiled("libcuda.so.1", "int cu(void) { return 1; }", "-Wl,-soname,libcuda.so.1")
    made = {
        "KTransformersOps.so": compiled(
            "ops.so", f"void {ABI}(void); void *use(void) {{ return (void *){ABI}; }}"
        ),
        "needs_library.so": compiled("needs.so", "int xx(void); int a(void) { return xx(); }",
                                     str(library)),
        "needs_driver.so": compiled("card.so", "int cu(void); int a(void) { return cu(); }",
                                    str(driver)),
    }  # fmt: skip
    return {name: path.read_bytes() for name, path in made.items()}


Ask = Callable[..., tuple[Finding, ...]]


@pytest.fixture
def ask(client: docker.DockerClient, chains: str, mine: Labels) -> Ask:
    def asking(*modules: str) -> tuple[Finding, ...]:
        return check_imports(client, chains, modules, labels=mine)

    return asking


def test_the_chain_that_ends_in_sched_ext(ask: Ask) -> None:
    (found,) = ask("sglang.launch_server")
    assert found.level is Level.FAIL
    assert found.lessons == ("F-018", "F-023", "F-027")
    chain = (
        "sglang.launch_server → ktransformers.local_chat → ktransformers.models.custom_cache → "
        "ktransformers.server.balance_serve.settings ends in ModuleNotFoundError"
    )
    assert chain in found.words
    assert "'sched_ext'" in found.words
    assert "settings.py:2" in found.words


def test_each_kind_of_end_has_its_words(ask: Ask) -> None:
    found = dict(
        zip(
            ("whole", "lazy", "absent", "syntax", "abi", "library", "driver", "card"),
            ask("whole", "sglang.lazy", "nowhere.at.all", "syntax", "KTransformersOps",
                "needs_library", "needs_driver", "card"),
            strict=True,
        )
    )  # fmt: skip
    assert found["whole"].level is Level.OK
    assert "ModuleNotFoundError" in found["lazy"].words
    assert "nonesuch" in found["lazy"].hint
    assert found["absent"].lessons == ("F-011", "F-016")
    assert "SyntaxError" in found["syntax"].words
    assert "syntax.py:1" in found["syntax"].words
    assert found["abi"].lessons == ("F-027", "F-023")
    assert f"undefined symbol: {ABI}" in found["abi"].words
    assert "PyTorch" in found["abi"].hint
    assert found["library"].level is Level.FAIL
    assert "libxxhash.so.9" in found["library"].hint
    for name in ("driver", "card"):
        assert found[name].level is Level.UNKNOWN
        assert found[name].lessons == ("F-014",)
    assert all(one.text.isprintable() for one in found.values())


def test_a_module_that_takes_the_interpreter_along(ask: Ask) -> None:
    left = ask("whole", "leaves", "json")
    assert [one.level for one in left] == [Level.OK, Level.FAIL]
    assert "exit code 7" in left[1].words
    good, loud = ask("whole", "noisy")
    assert good.level is Level.OK, "what another module prints does not hide it"
    assert "nonesuch" in loud.words
    (crashed,) = ask("crash")
    assert "SIGSEGV" in crashed.words


def test_a_check_that_came_to_no_end_is_no_proof(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(image_checks, "IMPORT_S", 0.3)
        (endless,) = ask("endless")
    assert (endless.level, endless.title) == (Level.UNKNOWN, "import endless")
    monkeypatch.setattr(image_checks, "MEMORY", 64 << 20)
    (greedy,) = ask("greedy")
    assert greedy.level is Level.UNKNOWN
    assert "64.0 MiB" in greedy.words


def test_images_without_python(client: docker.DockerClient, llama_image: str, mine: Labels) -> None:
    (found,) = check_imports(client, llama_image, ["sglang"], labels=mine)
    assert found.level is Level.FAIL
    assert "Python" in found.words
    (gone,) = check_imports(client, "omni-test/nonesuch:1", ["sglang"], labels=mine)
    assert gone.level is Level.UNKNOWN


def test_what_pytorch_says_without_a_card(
    client: docker.DockerClient, chains: str, python: str, mine: Labels
) -> None:
    found = some(torch_of(client, chains, labels=mine))
    assert (found.version, found.cuda) == ("2.9.1+cu128", "12.8")
    assert found.archs == ("sm_75", "sm_90", "sm_120")
    assert torch_of(client, python, labels=mine) is None


def test_an_image_that_is_here(client: docker.DockerClient, llama_image: str) -> None:
    (found,) = check_image(client, llama_image)
    assert found.level is Level.OK
    assert engine_platform(client) in found.words


def test_an_image_for_another_machine_only(client: docker.DockerClient, arm: str) -> None:
    image = some(look(client, arm))
    assert image.platform == "linux/arm64"
    (found,) = check_image(client, arm)
    assert (found.level, found.lessons) == (Level.FAIL, ("F-006",))
    assert engine_platform(client) in found.words
    assert "docker manifest inspect" in found.hint


def test_an_image_that_is_not_here(client: docker.DockerClient) -> None:
    (found,) = check_image(client, "omni-test/nonesuch:1")
    assert (found.level, found.hint) == (Level.FAIL, "docker pull omni-test/nonesuch:1")
    (odd,) = check_image(client, "a\x1b[31m b")
    assert odd.level is Level.UNKNOWN
    assert odd.text.isprintable()


def test_what_an_image_runs(engine: Engine, client: docker.DockerClient, arm: str) -> None:
    image = some(look(client, arm))
    assert image.argv() == ["/bin/server"]
    assert image.argv(command=("-m", "x")) == ["/bin/server", "-m", "x"]
    assert image.argv(("sh",)) == ["sh"]
    assert image.cuda is None
    made = engine.run("create", "--label", "omni.test=image", "-e", "CUDA_VERSION=12.8.0", arm)
    try:
        engine.run("commit", made.strip(), "omni-test/cuda:1")
        known = look(client, "omni-test/cuda:1")
    finally:
        engine.run("rm", made.strip())
        engine.run("rmi", "omni-test/cuda:1")
    assert some(known).cuda == (12, 8)


Make = Callable[..., Moment]


@pytest.fixture
def moment(busy_image: str, mine: Labels) -> Make:
    return lambda *argv, **more: Moment(busy_image, argv, labels=mine, **more)


def test_it_has_its_files_and_nothing_of_the_machine(
    client: docker.DockerClient, moment: Make
) -> None:
    script = f"""cat {FILES}/a; touch /x 2>&1; touch /tmp/y && echo writable
    ls /sys/class/net; echo "cards:$CUDA_VISIBLE_DEVICES.$NVIDIA_VISIBLE_DEVICES"; exit 3"""
    ended = run(client, moment("sh", "-c", script, files={"a": b"content\n"}), 30)
    assert ended.code == 3
    text = "\n".join(ended.lines)
    for words in ("content", "Read-only file system", "writable", "lo", "cards:.void"):
        assert words in text
    assert "eth0" not in text


def test_it_is_killed_when_its_time_is_up(client: docker.DockerClient, moment: Make) -> None:
    assert run(client, moment("sh", "-c", "echo begun; sleep 1000"), 0.3).code is None


def test_it_ends_with_the_one_who_asked(client: docker.DockerClient, moment: Make) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        run(client, moment("sleep", "1000"), 60, cancelled=cancelled)


def test_its_limits_are_the_engines(client: docker.DockerClient, moment: Make) -> None:
    with created(client, moment("true", memory=64 << 20, cpus=0.5)) as container:
        found = client.api.inspect_container(container)
    host = found["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (64 << 20, 64 << 20)
    assert (host["NetworkMode"], host["ReadonlyRootfs"]) == ("none", True)
    assert not host["DeviceRequests"]
    assert labels_of(found)[ROLE_LABEL] == "oneoff"


def test_what_cannot_start_is_said_and_gone(client: docker.DockerClient, moment: Make) -> None:
    with pytest.raises(EngineError, match="executable file not found"):
        run(client, moment("nonesuch"), 5)
    with pytest.raises(EngineError, match="No such image"):
        run(client, replace(moment("true"), image="nonesuch:1"), 5)


def test_what_a_killed_console_left_is_removed_later(
    client: docker.DockerClient, busy_image: str, mine: Labels, ours: str
) -> None:
    labels = {**mine, ROLE_LABEL: "oneoff", RUN_LABEL: ours, "omni.service": ours}
    left = client.api.create_container(busy_image, ["sleep", "9"], labels=labels)["Id"]
    client.api.start(left)
    assert sweep(client) == 0, "another console may be at work with it"
    assert sweep(client, now=time.time() + oneoff.LEFT_S + 60) == 1
    assert client.api.containers(all=True, filters={"label": f"{RUN_LABEL}={ours}"}) == []
