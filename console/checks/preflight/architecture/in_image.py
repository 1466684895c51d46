"""Asks the build inside an image: the service's own program, in a short-lived container.

The container gets no card. A build that cannot even start without the driver's library gets that
library, still without a card, from the engine's NVIDIA runtime if there is one.
"""

from __future__ import annotations

import base64
import json
import posixpath
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.names import Library, LoaderAnswer, Scan
from console.checks.preflight.architecture.support import Identity
from console.checks.preflight.image import Image, look
from console.common.errors import EngineError, ServiceError
from console.common.options.start import start
from console.common.text import one_line
from console.host.children import within
from console.runtime.docker import oneoff
from console.runtime.docker.client import NotFound, ask, pull_hint, send
from console.runtime.docker.oneoff import FILES, Moment, Outcome

if TYPE_CHECKING:
    import docker

T = TypeVar("T")

ASK_S = 30.0
SCAN_S = 60.0
"""Seconds for reading all files out of an image in one scan."""
PORT = 8080
"""A port inside the container, where nothing else listens."""
LINKS = 8
STAT = "X-Docker-Container-Path-Stat"
GO_TYPE = 0x8F280000
"""The engine's bits for folders, links, devices, pipes and sockets: Go's os.ModeType."""
AT_ONCE = 4
DRIVER = ("libcuda.so", "libnvidia-ml.so")
NVIDIA = {"NVIDIA_VISIBLE_DEVICES": "none", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""`none`: the driver's libraries, no card."""
PROGRAM = "llama-server"
"""The program to ask if neither service nor image names one."""


MEASURE = """
file=/tmp/omni-model.gguf; size=$1; program=$2; shift 2
cp "$0" "$file" && truncate -s "$size" "$file" || exit 125
for one in "$program" llama-server llama /app/llama-server /app/llama; do
  one=$(command -v "$one") && one=$(readlink -f "$one") || continue
  folder=${one%/*}
  [ -x "$folder/llama-fit-params" ] && exec "$folder/llama-fit-params" "$@" "$file"
  [ -x "$folder/llama" ] && exec "$folder/llama" fit-params "$@" "$file"
done
exit 127
"""
"""Makes the hole inside, where an archive would fill it, and finds the tool beside the program or
as a command of llama.cpp's one program. Needs a shell and `truncate` in the image."""
LOAD = """
file=$1; size=$2; shift 2
cp "$0" "$file" && truncate -s "$size" "$file" || exit 125
exec "$@"
"""
"""Starts a program with a file that ends with a hole, which is made inside as for MEASURE."""
HOLED = "/tmp/omni-model.gguf"
NO_HOLE = "a file as long as the model cannot be made in it"
NO_FILE, NO_TOOL = 125, 127
_SIGNALLED = "it was ended by signal {}"


class ImageBuild:
    """The build in a local image. `entrypoint`, `command` and `env` are the service's own; empty
    means the image's."""

    def __init__(
        self,
        client: docker.DockerClient,
        ref: str,
        *,
        entrypoint: Sequence[str] = (),
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.client = client
        self.ref = ref
        self.env = start((*entrypoint, *command), env).env
        self.labels = dict(labels or {})
        self._given = (tuple(entrypoint), tuple(command))
        self._runtime = ""
        self._surveyed: dict[bytes, Library | None] = {}

    def identity(self) -> Identity:
        image, call = self._image, names.call(self._words(), "", PORT)
        program = " ".join((call.program or call.argv) if call else ())
        name = f"{one_line(program, 60)} of image {image.ref}"
        return Identity(name, image.id, key=f"{image.id} {program}")

    def build(self) -> str:
        call = names.call(self._words(), "", PORT)
        if call is None or not call.program:
            return ""
        return names.version(self._run((*call.program, "--version"), {}, None).lines)

    def ask(
        self, architectures: Sequence[str], cancelled: threading.Event | None = None
    ) -> dict[str, LoaderAnswer]:
        def answer(name: str) -> LoaderAnswer:
            return names.read(self.load(names.probe(name), cancelled=cancelled), name)

        with ThreadPoolExecutor(AT_ONCE, "probe") as pool:
            return dict(zip(architectures, pool.map(answer, architectures), strict=True))

    def load(
        self, model: bytes, words: Sequence[str] = (), cancelled: threading.Event | None = None,
        size: int = 0,
    ) -> list[str]:  # fmt: skip
        """See `Engine`. The file is `size` bytes long, with a hole behind the model's, which takes
        a shell and `truncate` in the image. Raises ServiceError without them."""
        probe = f"{FILES}/probe.gguf"
        holed = size > len(model)
        call = names.call(self._words(), HOLED if holed else probe, PORT)
        assert call is not None  # PROGRAM stands where nothing is known
        argv = (*call.argv, *words)
        if holed:
            argv = ("sh", "-c", LOAD, probe, HOLED, str(size), *argv)
        try:
            ended = self._run(argv, {"probe.gguf": model}, cancelled)
        except NotFound:
            if not holed:
                raise
            raise ServiceError("The image has no shell", NO_HOLE) from None
        if holed and ended.code == NO_FILE:
            raise ServiceError("The image has no `truncate`", NO_HOLE)
        lines = [line for line in ended.lines if line.strip()]
        if ended.oom:
            return [*lines, "it ran out of the memory it was given"]
        if ended.code is None:
            return [*lines, f"it did not end; its last words: {lines[-1] if lines else ''}"]
        return [*lines, _SIGNALLED.format(ended.code - 128)] if ended.code > 128 else lines

    def measured(self, head: bytes, size: int, words: Sequence[str]) -> Sequence[str]:
        """What the image's llama-fit-params says of a file that begins with `head` and is `size`
        bytes long; nothing if there is none, no shell to make the file, or no such image here.
        Raises EngineError."""
        if look(self.client, self.ref) is None:
            return ()
        call = names.call(self._words(), "", PORT)
        program = (call.program or call.argv[:1])[-1] if call else PROGRAM
        script = ("sh", "-c", MEASURE, f"{FILES}/model.gguf", str(size), program, *words, "-m")
        try:
            ended = self._run(script, {"model.gguf": head}, None)
        except NotFound:
            return ()
        if ended.code is None:
            return ("it did not end",)
        if ended.oom:
            return ("it ran out of the memory it was given",)
        if ended.code in (NO_FILE, NO_TOOL):
            return ()
        lines = [line for line in ended.lines if line.strip()]
        return lines or (f"it ended with exit code {ended.code}",)

    def scan(self, name: str, mark: bytes = names.MARK) -> Scan | None:
        def reading(place: ImagePlace) -> Scan | None:
            library = self._library(place, mark)
            if library is None:
                return None
            presence = names.find(place.read(library.path), name)
            return Scan(f"{library.path} in the image", presence)

        return self._within(reading)

    def similar(self, name: str) -> tuple[str, ...]:
        def reading(place: ImagePlace) -> tuple[str, ...]:
            library = self._library(place)
            return names.near(place.read(library.path), name) if library else ()

        return self._within(reading)

    @cached_property
    def _image(self) -> Image:
        image = look(self.client, self.ref)
        if image is None:
            title = f"The image {one_line(self.ref)} is not on this machine"
            raise ServiceError(title, "its build cannot be asked", pull_hint(self.ref))
        return image

    def _words(self) -> list[str]:
        """What the service runs; PROGRAM if that is neither llama.cpp nor has a model."""
        words = self._image.argv(*self._given)
        return words if names.call(words, "", PORT) else [PROGRAM]

    def _run(
        self,
        argv: tuple[str, ...],
        files: Mapping[str, bytes],
        cancelled: threading.Event | None,
    ) -> Outcome:
        env = {key: value for key, value in self.env.items() if not key.startswith("LLAMA_ARG_")}
        moment = Moment(self._image.id, argv, {**env, **oneoff.NO_GPU}, files, labels=self.labels)
        if not self._runtime:
            ended = oneoff.run(self.client, moment, ASK_S, cancelled=cancelled)
            if not needs_driver(ended.lines) or "nvidia" not in runtimes(self.client):
                return ended
            self._runtime = "nvidia"
        with_driver = replace(moment, env={**moment.env, **NVIDIA}, runtime=self._runtime)
        return oneoff.run(self.client, with_driver, ASK_S, cancelled=cancelled)

    def _within(self, reading: Callable[[ImagePlace], T]) -> T:
        """Apply `reading` to the files of a container that is never started."""
        moment = Moment(self._image.id, ("true",), labels=self.labels)
        with oneoff.created(self.client, moment) as container:
            place = ImagePlace(self.client, container)
            return within(SCAN_S, "Reading files out of the image", lambda: reading(place))

    def _library(self, place: ImagePlace, mark: bytes = names.MARK) -> Library | None:
        if mark not in self._surveyed:
            call = names.call(self._words(), "", PORT)
            path = self._program(place, (call.program or call.argv[:1])[-1]) if call else None
            env = {**self._image.env, **self.env}
            library = names.survey(place, path, env, mark) if path is not None else None
            self._surveyed[mark] = library
        return self._surveyed[mark]

    def _program(self, place: ImagePlace, name: str) -> str | None:
        if "/" in name:
            return name
        folders = self._image.env.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
        paths = [posixpath.join(folder, name) for folder in folders if folder.startswith("/")]
        return next((path for path in paths if place.has(path)), None)


class ImagePlace:
    """The files of a container, whether it runs or not."""

    def __init__(self, client: docker.DockerClient, container: str) -> None:
        self.client = client
        self.container = container

    def has(self, path: str) -> bool:
        return self._real(path) is not None

    def read(self, path: str) -> Iterator[bytes]:
        real = self._real(path)
        if real is None:
            return
        # The library's own `get_archive` leaves its connection open when reading stops early.
        response = ask(
            "Reading a file of the image", lambda: self._request("get", real, stream=True)
        )
        try:
            yield from _one_file(response.iter_content(names.CHUNK))
        finally:
            response.close()

    def _real(self, path: str) -> str | None:
        """Where the links of a path lead to; None if that is no regular file."""
        for _ in range(LINKS):
            looking = partial(self._request, "head", path)
            try:
                head = ask("Looking for a file of the image", looking)
                stat = json.loads(base64.b64decode(head.headers[STAT]))
                mode, target = int(stat["mode"]), str(stat["linkTarget"])
            except NotFound:
                return None
            except (ValueError, KeyError, TypeError) as error:
                words = one_line(str(error))
                raise EngineError("The engine's answer cannot be read", words) from None
            if not target:
                return None if mode & GO_TYPE else path
            path = target
        return None

    def _request(self, method: str, path: str, **more: Any) -> Any:
        archive = f"/containers/{self.container}/archive"
        return send(self.client, method, archive, params={"path": path}, **more)


def _one_file(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The content of an archive's only file, as a stream. Raises EngineError."""
    try:
        with tarfile.open(fileobj=cast(IO[bytes], _Stream(pieces)), mode="r|") as tar:
            entry = tar.next()
            file = tar.extractfile(entry) if entry else None
            while file is not None and (block := file.read(names.CHUNK)):
                yield block
    except tarfile.TarError as error:
        raise EngineError("The engine's archive is damaged", one_line(str(error))) from None


class _Stream:
    """Pieces of any size as a file that is read once, from beginning to end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            have += len(piece)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


def needs_driver(lines: Iterable[str]) -> bool:
    """Whether a program failed to start because the NVIDIA driver's library was missing."""
    signs = ("error while loading shared libraries", "cannot open shared object")
    return any(
        any(sign in line for sign in signs) and any(name in line for name in DRIVER)
        for line in lines
    )


def runtimes(client: docker.DockerClient) -> tuple[str, ...]:
    """The engine's runtimes by name. Raises EngineError."""
    engine_info: dict[str, Any] = ask("Asking the engine's runtimes", client.api.info)
    return tuple(map(str, engine_info.get("Runtimes") or ()))
