"""What the engine knows about a local image; nothing is ever pulled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.common.errors import ServiceError
from console.common.text import clean, one_line
from console.runtime.docker.client import NotFound, ask

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """A local image. `id` is `sha256:…`; `repo_digests` name what a registry would serve."""

    id: str
    repo_digests: tuple[str, ...]
    os: str
    architecture: str
    size_bytes: int


def image_info(client: docker.DockerClient, ref: str) -> ImageInfo | None:
    """The image behind a tag, digest or id; None where the engine has none by that name."""
    api: Any = client.api
    try:
        found: dict[str, Any] = ask(
            f"Looking at image {one_line(ref)}", lambda: api.inspect_image(ref)
        )
    except NotFound:
        return None
    return ImageInfo(
        id=clean(str(found.get("Id", ""))),
        repo_digests=tuple(clean(str(digest)) for digest in found.get("RepoDigests") or ()),
        os=clean(str(found.get("Os", ""))),
        architecture=clean(str(found.get("Architecture", ""))),
        size_bytes=int(found.get("Size") or 0),
    )


def require_image(client: docker.DockerClient, ref: str) -> ImageInfo:
    """The local image, or a ServiceError that names the command to fetch it with."""
    found = image_info(client, ref)
    if found is None:
        raise ServiceError(
            f"The image {one_line(ref)} is not on this machine",
            "nothing is pulled during a run",
            pull_hint(ref),
        )
    return found


def pull_hint(ref: str) -> str:
    """The command that fetches an image; a run says instead which of its steps builds it."""
    return f"docker pull {one_line(ref)}"
