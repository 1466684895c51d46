"""Import chains in a real image: whole, ending in a missing module, broken, cut off."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from console.checks.preflight import image as image_checks
from console.checks.preflight.image import check_imports, torch_of
from console.common.errors import Finding, Level
from tests.preflight.conftest import Labels
from tests.testbed import debian

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
def image(
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
def ask(client: docker.DockerClient, image: str, mine: Labels) -> Ask:
    def asking(*modules: str) -> tuple[Finding, ...]:
        return check_imports(client, image, modules, labels=mine)

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
    client: docker.DockerClient, image: str, python: str, mine: Labels
) -> None:
    found = torch_of(client, image, labels=mine)
    assert found is not None
    assert (found.version, found.cuda) == ("2.9.1+cu128", "12.8")
    assert found.archs == ("sm_75", "sm_90", "sm_120")
    assert torch_of(client, python, labels=mine) is None
