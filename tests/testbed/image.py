"""Images of Debian packages that are laid out without their scripts: no image registry need be
in reach, nor a chroot, and a real llama.cpp takes 70 MB."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import debian
from tests.testbed.cache import Unavailable, command, fingerprint, folder, locked
from tests.testbed.engine import Engine

LLAMA = "omni-test/llama:cpu"
EXTRA = "omni-test/llama-extra:cpu"
BUSY = "omni-test/busy:1"
# Raised by hand when the layout below changes, so that cached tarballs are made anew.
LAYOUT = "2"
RECIPE = "omni-testbed.recipe"
SEARCH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class _Recipe:
    tag: str
    packages: tuple[str, ...]
    suite: Callable[[], str]
    depends: bool

    @property
    def key(self) -> str:
        return fingerprint(LAYOUT, self.tag, *self.packages)


Fill = Callable[[_Recipe, Path], None]
"""Writes an image's files to a tarball that is not there yet, in a directory of its own."""

# curl is in the published llama.cpp server images too, for health checks.
_LLAMA = _Recipe(LLAMA, ("llama.cpp", "dash", "curl", "busybox-static"), lambda: "sid", True)
_EXTRA = _Recipe(EXTRA, (*_LLAMA.packages, "llama.cpp-tools-extra"), lambda: "sid", True)
_BUSY = _Recipe(BUSY, ("busybox-static",), debian.codename, False)


def ensure_llama_image(engine: Engine) -> str:
    """The tag of an image with llama-server, llama-bench, sh, curl and the busybox tools."""
    return _ensure(engine, _LLAMA)


def ensure_extra_image(engine: Engine) -> str:
    """The tag of the same image with llama-perplexity beside llama-server."""
    return _ensure(engine, _EXTRA)


def ensure_busy_image(engine: Engine) -> str:
    return _ensure(engine, _BUSY)


def _ensure(engine: Engine, recipe: _Recipe, fill: Fill | None = None) -> str:
    with locked(f"image-{recipe.tag.split('/')[-1].split(':')[0]}"):
        if not _present(engine, recipe):
            tarball = _tarball(recipe, fill or _laid_out)
            engine.run(
                *("import", "--change", f"ENV {SEARCH}", "--change", 'CMD ["sh"]'),
                *("--change", f"LABEL {RECIPE}={recipe.key}", str(tarball), recipe.tag),
                timeout=300,
            )
    return recipe.tag


def _present(engine: Engine, recipe: _Recipe) -> bool:
    label = recipe_of(engine, recipe.tag)
    # In an engine that is not ours, whoever tagged an image with our name meant it.
    return label is not None and (label == recipe.key or not engine.private)


def recipe_of(engine: Engine, tag: str) -> str | None:
    """The recipe an image was made by; None where there is no such image."""
    form = f'{{{{index .Config.Labels "{RECIPE}"}}}}'
    try:
        return engine.run("image", "inspect", "--format", form, tag).strip()
    except Unavailable:
        return None


def _tarball(recipe: _Recipe, fill: Fill) -> Path:
    name = recipe.tag.replace("/", "-").replace(":", "-")
    target = folder("images") / f"{name}-{recipe.key}.tar"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=folder("work")) as work:
        made = Path(work) / "image.tar"
        fill(recipe, made)
        made.replace(target)
    return target


def _laid_out(recipe: _Recipe, made: Path) -> None:
    """The packages without their scripts; everything in it is root's."""
    root = made.with_name("root")
    packages = debian.fetch(recipe.suite(), recipe.packages, made.parent, depends=recipe.depends)
    debian.unpack(packages, root)
    _finish(root)
    owner = ("--owner=0", "--group=0", "--numeric-owner")
    command(["tar", "-C", str(root), *owner, "-cf", str(made), "."])


def _finish(root: Path) -> None:
    """What package scripts would have done, as far as a test container needs it."""
    for name in ("etc", "proc", "sys", "dev", "run", "root", "var/tmp", "models"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    # llama.cpp takes the backend for the processor it runs on. Where that has AMX, this one keeps a
    # tiny model's MLA matrices in buffers that it cannot multiply from, and the server aborts.
    for backend in (root / "usr/lib").glob("*/ggml/backends*/libggml-cpu-sapphirerapids.so"):
        backend.unlink()
    busybox = next(p for p in (root / "usr/bin/busybox", root / "bin/busybox") if p.exists())
    for applet in command([str(busybox), "--list"]).split():
        _link(root / "usr/bin", applet)


def _link(place: Path, applet: str) -> None:
    # A package's own tool, such as dash as sh, goes before busybox's.
    if not os.path.lexists(place / applet):
        (place / applet).symlink_to("busybox")
