"""Images as the engine has them: there or not, for which platform, with which CUDA."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.common.errors import EngineError
from console.common.finding import Finding, Level
from console.common.text import clean, one_line
from console.runtime.docker.client import NotFound, ask
from console.runtime.docker.images import pull_hint

if TYPE_CHECKING:
    import docker

ONLY_ARM = ("F-006",)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_SAME = {"x86_64": "amd64", "aarch64": "arm64", "armv8": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """A local image: its id (`sha256:…`), its platform and what it runs by itself.

    `argv` is entrypoint and command; `cuda` is CUDA_VERSION as NVIDIA's base images set it.
    """

    ref: str
    id: str
    os: str
    architecture: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def platform(self) -> str:
        return f"{self.os}/{self.architecture}"

    @property
    def cuda(self) -> tuple[int, int] | None:
        found = _VERSION.match(self.env.get("CUDA_VERSION", ""))
        return (int(found[1]), int(found[2])) if found else None

    def argv(self, entrypoint: tuple[str, ...] = (), command: tuple[str, ...] = ()) -> list[str]:
        """What a container of it runs; an entrypoint that is given drops the image's command."""
        own = () if entrypoint else self.command
        return [*(entrypoint or self.entrypoint), *(command or own)]


def look(client: docker.DockerClient, ref: str) -> Image | None:
    """The image by tag, digest or id; None where the engine has none. Raises EngineError."""
    api: Any = client.api
    try:
        found: dict[str, Any] = ask(
            f"Looking at image {one_line(ref)}", lambda: api.inspect_image(ref)
        )
    except NotFound:
        return None
    config = found.get("Config") or {}
    pairs = (str(pair).partition("=") for pair in config.get("Env") or ())
    return Image(
        ref=one_line(ref),
        id=clean(str(found.get("Id", ""))),
        os=clean(str(found.get("Os", ""))),
        architecture=clean(str(found.get("Architecture", ""))),
        entrypoint=tuple(map(str, config.get("Entrypoint") or ())),
        command=tuple(map(str, config.get("Cmd") or ())),
        env={name: value for name, _, value in pairs},
    )


def engine_platform(client: docker.DockerClient) -> str:
    """The platform of the engine's machine, like `linux/amd64`. Raises EngineError."""
    found: dict[str, Any] = ask("Asking the engine's version", client.api.version)
    arch = clean(str(found.get("Arch", "")))
    return f"{clean(str(found.get('Os', '')))}/{_SAME.get(arch, arch)}"


def check(client: docker.DockerClient, ref: str) -> tuple[Finding, ...]:
    """Whether the image is here and made for this machine. Never raises what the engine raises."""
    title = f"image {one_line(ref, 60)}"
    try:
        image = look(client, ref)
        platform = engine_platform(client)
    except EngineError as error:
        return (Finding(Level.UNKNOWN, title, f"not known: {error}", error.hint),)
    if image is None:
        words = "is not on this machine; nothing is pulled during a run"
        return (Finding(Level.FAIL, title, words, pull_hint(ref)),)
    return (_platform(image, platform, title),)


def _platform(image: Image, platform: str, title: str) -> Finding:
    if image.platform == platform:
        return Finding(Level.OK, title, f"is here, for {image.platform}")
    if not image.architecture:
        return Finding(Level.UNKNOWN, title, f"does not say its platform; this is {platform}")
    words = (
        f"is for {image.platform}, this machine is {platform}: its programs end with "
        "`exec format error`"
    )
    hint = (
        f"`docker manifest inspect {image.ref}` lists what the registry has; with no {platform} "
        "there, build it from source or take another image (an issue marked as resolved proves "
        "nothing)"
    )
    return Finding(Level.FAIL, title, words, hint, ONLY_ARM)
