"""An image with Debian's Python, images with packages laid over it, and one for another machine."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping

from tests.testbed import debian
from tests.testbed.cache import Unavailable, fingerprint, locked
from tests.testbed.engine import Engine
from tests.testbed.image import RECIPE, _ensure, _Recipe, recipe_of

PYTHON = "omni-test/python:1"
ARM = "omni-test/arm64:1"
ARM_RECIPE = "2"
PACKAGES = "/opt/packages"
_PYTHON = _Recipe(PYTHON, ("python3", "busybox-static"), debian.codename, True)


def ensure_python_image(engine: Engine) -> str:
    return _ensure(engine, _PYTHON)


def ensure_packages_image(engine: Engine, files: Mapping[str, bytes]) -> str:
    """The tag of an image with Python and files (path below PACKAGES → content) it can import."""
    base = ensure_python_image(engine)
    parts = [f"{name}\0{data.hex()}" for name, data in sorted(files.items())]
    key = fingerprint(_PYTHON.key, *parts)
    tag = f"omni-test/packages:{key}"
    with locked("image-packages"):
        if not recipe_of(engine, tag):
            _commit(engine, base, tag, key, files)
    return tag


def ensure_arm_image(engine: Engine) -> str:
    """The tag of a tiny image for linux/arm64, whatever this machine is."""
    with locked("image-arm64"):
        if recipe_of(engine, ARM) != ARM_RECIPE:
            _docker(engine, _arm_archive(), "load")
    return ARM


def _arm_archive() -> bytes:
    """An image as `docker save` writes it: old engines give an imported one their own platform."""
    layer = _archive({"bin/server": b"\x7fELF, and no program of this machine\n"})
    config = json.dumps(
        {
            "architecture": "arm64",
            "os": "linux",
            "config": {"Entrypoint": ["/bin/server"], "Labels": {RECIPE: ARM_RECIPE}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sha256(layer)}"]},
        }
    ).encode()
    name = f"{_sha256(config)}.json"
    manifest = [{"Config": name, "RepoTags": [ARM], "Layers": ["layer.tar"]}]
    return _archive(
        {"manifest.json": json.dumps(manifest).encode(), name: config, "layer.tar": layer}
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _commit(engine: Engine, base: str, tag: str, key: str, files: Mapping[str, bytes]) -> None:
    made = engine.run("create", "--label", "omni.test=python-image", base, "true").strip()
    try:
        inside = {f"{PACKAGES.lstrip('/')}/{name}": data for name, data in files.items()}
        _docker(engine, _archive(inside), "cp", "-", f"{made}:/")
        change = ("--change", f"ENV PYTHONPATH={PACKAGES}", "--change", f"LABEL {RECIPE}={key}")
        engine.run("commit", *change, made, tag)
    finally:
        engine.run("rm", "-f", "-v", made)


def _archive(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _docker(engine: Engine, data: bytes, *arguments: str) -> None:
    done = subprocess.run(
        [engine.docker, *arguments], input=data, capture_output=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", **engine.env()}, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"docker {arguments[0]} failed: {done.stderr.decode().strip()[-300:]}")
