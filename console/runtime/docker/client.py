"""The container engine through its library: connecting, images, errors in the operator's words."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from console.common.errors import EngineError, ServiceError
from console.common.text import clean, clean_lines, one_line
from console.host.children import within
from console.runtime.engine_address import address, socket_of

if TYPE_CHECKING:
    import docker
    import requests


T = TypeVar("T")

CONNECT_S = 1.8
"""Seconds in all to find out that the engine is unusable."""
CALL_S = 10.0
"""Total deadline of an ordinary call, seconds."""
RECEIVE_S = 60
"""The library's own timeout from byte to byte, seconds; the total deadline is `ask`'s."""


class EngineLost(EngineError):
    """A connection to the engine could not be made, or broke off."""


class NotFound(EngineError):
    """The engine has no container, image or network by that name or id."""


class NameTaken(EngineError):
    """A container with this name exists."""


def engine_host(host: str | None = None) -> str:
    """The engine's address: as given, else the one that the docker command means. Raises
    EngineError for a docker context that cannot be read."""
    return address(host or "").host


def engine_socket(host: str | None = None) -> str:
    """The path of the engine's socket; raises EngineError if it is not a unix address."""
    return socket_of(address(host or ""))


def connect(host: str | None = None) -> docker.DockerClient:
    """A client with an API version agreed with the engine; raises EngineError within 3 s."""
    meant = engine_host(host)
    with contextlib.suppress(ImportError):  # `_build` says so
        import docker  # noqa: F401 - on a busy machine it takes seconds, which are not the engine's
    begin = time.monotonic()
    if meant.startswith("unix://"):
        _knock(engine_socket(meant))
    left = CONNECT_S - (time.monotonic() - begin)
    return ask(f"The container engine at {one_line(meant)}", lambda: _build(meant), left)


def ask(what: str, call: Callable[[], T], seconds: float = CALL_S) -> T:
    """One call to the engine under a total deadline, its errors translated.

    `what` starts a sentence: "Stopping omni-x". Raises EngineError, EngineTimeout, NotFound or
    NameTaken.
    """
    try:
        return within(seconds, what, call)
    except EngineError:
        raise
    except Exception as error:  # the library raises its own, requests', urllib3's and json's
        raise translate(error, what) from error


def is_podman(client: docker.DockerClient) -> bool:
    """Whether the engine is Podman, which differs from Docker wherever this is called."""
    from console.runtime.engine_api import podman

    return bool(podman(ask("Asking the engine's version", client.api.version)))


def send(client: docker.DockerClient, method: str, path: str, **options: Any) -> requests.Response:
    """A request for which the library has no method, made of its public parts alone.

    Raises what the library raises: call it through `ask`.
    """
    from docker.errors import create_api_error_from_http_exception
    from requests import HTTPError

    api = client.api
    url = f"{api.base_url}/v{api.api_version}{path}"
    response = api.request(method, url, **{"timeout": RECEIVE_S, **options})
    try:
        response.raise_for_status()
    except HTTPError as error:
        create_api_error_from_http_exception(error)
    return response


def translate(error: Exception, what: str) -> EngineError:
    """An exception of the engine's library as an EngineError with clean text."""
    status, words = _status(error), _words(error)
    if status == 404:
        return NotFound(f"{what} failed", words)
    if status == 409 and "already in use" in words:
        return NameTaken(f"{what} failed", words)
    if status is not None:
        return EngineError(f"{what} failed", words, _hint(words))
    kind = type(error).__name__
    if kind in ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ChunkedEncodingError"):
        if "BadStatusLine" in words:
            return EngineError(f"{what} gave no sensible answer", words, _NOT_AN_ENGINE)
        if _hint(words):
            return EngineError(f"{what} failed", words, _hint(words))
        return EngineLost(f"{what} failed", words, _GONE)
    return EngineError(f"{what} gave no sensible answer", words, _hint(words) or _NOT_AN_ENGINE)


def inspect(client: docker.DockerClient, ref: str) -> dict[str, Any] | None:
    """What the engine knows about a container by id or name; None if there is none."""
    return known(f"container {one_line(ref)}", lambda: client.api.inspect_container(ref))


def known(what: str, call: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The engine's answer about an object; None if it has no such object."""
    try:
        return ask(f"Looking at {what}", call)
    except NotFound:
        return None


_START = "start it with `sudo systemctl start docker`, or set DOCKER_HOST to where it listens"
_GONE = "has the engine just stopped? `systemctl status docker` says"
_NOT_AN_ENGINE = "is DOCKER_HOST the address of a Docker engine?"
_HINTS = (
    (
        "could not select device driver",
        "install the NVIDIA Container Toolkit, then restart the engine",
    ),
    (
        "unresolvable CDI devices",
        "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` describes the cards",
    ),
    ("port is already allocated", "`docker ps` shows which container publishes the port"),
    ("address already in use", "`ss -ltnp` shows which process listens on the port"),
    ("no space left on device", "`docker system df` shows what takes the space"),
    ("ermission denied", "add yourself to the docker group, then log in again"),
)


def _hint(words: str) -> str:
    return next((hint for sign, hint in _HINTS if sign in words), "")


def _words(error: Exception) -> str:
    """The engine's own explanation if there is one, else the exception's, as clean lines."""
    text = str(getattr(error, "explanation", None) or error) or type(error).__name__
    return "\n".join(line for line in clean_lines(text, 500, 8) if line.strip())


def _status(error: Exception) -> int | None:
    """The HTTP status of the library's error; only errors answered by the engine have one."""
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None


def _knock(path: str) -> None:
    """Find out why a socket cannot be reached; the library has one message for all causes."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(1.0)
    try:
        probe.connect(path)
    except FileNotFoundError:
        raise EngineError("No container engine", f"there is no socket at {path}", _START) from None
    except ConnectionRefusedError:
        words = f"nothing listens at {path}"
        raise EngineError("The container engine is not running", words, _START) from None
    except PermissionError:
        raise EngineError(
            "No permission to use the container engine",
            f"{path} may not be opened",
            "`sudo usermod -aG docker $USER`, then log in again",
        ) from None
    except TimeoutError:
        words = "The container engine does not accept connections"
        raise EngineError(words, f"{path} is full", _GONE) from None
    except OSError as error:
        raise EngineError("No container engine", f"{path}: {error.strerror}", _START) from None
    finally:
        probe.close()


def _build(host: str) -> docker.DockerClient:
    """The client with the newest API version that both sides speak. Raises EngineError if the
    engine lacks what every run needs."""
    try:
        import docker
        from docker.utils import kwargs_from_env
    except ImportError as error:
        raise EngineError(
            "The docker library cannot be loaded", one_line(str(error)), "reinstall omni-console"
        ) from None
    options = kwargs_from_env({**os.environ, "DOCKER_HOST": host})
    client = docker.DockerClient(version="auto", timeout=RECEIVE_S, **options)
    from console.runtime.engine_api import podman, too_old

    version = client.api.version()
    if why := too_old(version):
        client.close()
        raise EngineError(f"Podman {podman(version)} cannot be used", why)
    return client


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """A local image. `id` is `sha256:…`; `repo_digests` name what a registry would serve."""

    id: str
    repo_digests: tuple[str, ...]
    os: str
    architecture: str
    size_bytes: int


def image_info(client: docker.DockerClient, ref: str) -> ImageInfo | None:
    """The image behind a tag, digest or id; None if the engine has none by that name. Never pulls
    it."""
    api: Any = client.api
    image = known(f"image {one_line(ref)}", lambda: api.inspect_image(ref))
    if image is None:
        return None
    return ImageInfo(
        id=clean(str(image.get("Id", ""))),
        repo_digests=tuple(clean(str(digest)) for digest in image.get("RepoDigests") or ()),
        os=clean(str(image.get("Os", ""))),
        architecture=clean(str(image.get("Architecture", ""))),
        size_bytes=int(image.get("Size") or 0),
    )


def require_image(client: docker.DockerClient, ref: str) -> ImageInfo:
    """The local image, or a ServiceError that names the command to fetch it with."""
    image = image_info(client, ref)
    if image is None:
        raise ServiceError(
            f"The image {one_line(ref)} is not on this machine",
            "nothing is pulled during a run",
            pull_hint(ref),
        )
    return image


def pull_hint(ref: str) -> str:
    """The command that fetches an image; a run names its own build step instead."""
    return f"docker pull {one_line(ref)}"
