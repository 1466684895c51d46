"""Asks a build on this machine: the program of a process service."""

from __future__ import annotations

import os
import posixpath
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.names import HostPlace, Library, LoaderAnswer, Scan
from console.checks.preflight.architecture.support import Identity
from console.common.errors import ServiceError
from console.common.options.start import start
from console.common.text import clean_lines, decode, one_line
from console.common.units import format_duration
from console.host import children
from console.host.children import Cancelled
from console.runtime.docker.oneoff import NO_GPU

ASK_S = 20.0
"""Seconds for one start of a program: it takes under a tenth of one, unless its disk is slow."""
ALLOWED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")


class HostProgram:
    """The program of a process service: its argv, with the probe as its model.

    `libraries` name the files with its table if the program itself does not lead there (a Python
    package).
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        libraries: Sequence[str] = (),
    ) -> None:
        argv, env = start(argv, env)
        self.argv = tuple(argv)
        self.env = _environment(env)
        self._libraries = tuple(libraries)

    @property
    def program(self) -> str:
        """The file that is run, behind what starts it like numactl, links followed. Raises
        ServiceError if there is none."""
        return _program(self._named, self.env)

    @property
    def _named(self) -> tuple[str, ...]:
        """The word that names it; none where there are none."""
        return (self._program_alone or self.argv[:1])[-1:]

    def output(self, argv: Sequence[str]) -> list[str]:
        """What another program of the build wrote, clean, in the build's environment. Raises
        ServiceError if it fails to start or does not end."""
        return _output(argv, self.env)

    def identity(self) -> Identity:
        program = self.program
        library = self._library
        files = (program, *(library.files if library else ()))
        name = one_line(os.path.basename(self._named[0]), 60)
        if library is None:
            # Its library may change beneath it: nothing is remembered of it.
            return Identity(name, _digest(files))
        beside = os.path.basename(library.path)
        name = name if library.path == program else f"{name} with {beside}"
        digest = _digest(files)
        return Identity(name, digest, key=self._key(digest, files))

    def _key(self, digest: str, files: Sequence[str]) -> str:
        """Under what answers are remembered: the files that were read, and those beside them that
        it opens as it runs (ggml's backends). "" where it does not say its version any more: a
        library that it is linked with may be gone."""
        try:
            if self._program_alone and not self.build():
                return ""
            return f"{digest} {names.state_beside(files)}"
        except (ServiceError, OSError):
            return ""

    def build(self) -> str:
        return names.version(self._versions) if self._program_alone else ""

    @cached_property
    def _versions(self) -> list[str]:
        return _output([*self._program_alone, "--version"], self.env)

    @property
    def _program_alone(self) -> tuple[str, ...]:
        """The words that start it without a model; none where the command is not known."""
        call = names.call(self.argv, "", 0)
        return () if call is None else tuple(call.program)

    def ask(
        self, architectures: Sequence[str], cancelled: threading.Event | None = None
    ) -> dict[str, LoaderAnswer]:
        return {
            name: names.read(self.load(names.probe(name), cancelled=cancelled), name)
            for name in architectures
        }

    def load(
        self, model: bytes, words: Sequence[str] = (), cancelled: threading.Event | None = None,
        size: int = 0,
    ) -> list[str]:  # fmt: skip
        """See `Engine`. The file is `size` bytes long, with a hole behind the model's."""
        if cancelled is not None and cancelled.is_set():
            raise Cancelled("the architecture check")
        with tempfile.TemporaryDirectory(prefix="omni-probe-") as folder:
            path = Path(folder) / "probe.gguf"
            path.write_bytes(model)
            if size > len(model):
                os.truncate(path, size)
            call = names.call(self.argv, str(path), _free_port())
            if call is None:
                raise ServiceError(
                    f"{names.NO_BUILD}; {one_line(self.argv[0])} is no llama.cpp program",
                    "none of its words is llama-server or a model name ending in .gguf",
                )
            return _output([*call.argv, *words], self.env)

    def scan(self, name: str, mark: bytes = names.MARK) -> Scan | None:
        library = self._library if mark == names.MARK else self._with(mark)
        if library is None:
            return None
        return Scan(library.path, names.find(HostPlace().read(library.path), name))

    def similar(self, name: str) -> tuple[str, ...]:
        library = self._library
        return names.near(HostPlace().read(library.path), name) if library else ()

    @cached_property
    def _library(self) -> Library | None:
        return self._with(names.MARK)

    def _with(self, mark: bytes) -> Library | None:
        starts = self._libraries or (self.program,)
        libraries = (names.survey(HostPlace(), start, self.env, mark) for start in starts)
        return next((library for library in libraries if library is not None), None)


def demo_engine(argv: Sequence[str]) -> HostProgram | None:
    """The demo's engine as its service runs it, with the compiled module of its package (not
    imported) as the library; None if it is not installed."""
    from importlib.util import find_spec

    try:
        spec = find_spec("xllamacpp")
    except (ImportError, ValueError):
        return None
    places = (spec.submodule_search_locations or ()) if spec else ()
    libraries = (path for place in places for path in sorted(Path(place).glob("*.so")))
    library = next(libraries, None)
    return None if library is None else HostProgram(argv, libraries=(str(library),))


def _output(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """What a command wrote, clean. Raises ServiceError if it fails to start or does not end."""
    shown = one_line(os.path.basename(argv[0]), 60)
    try:
        code, out, _ = children.run(argv, ASK_S, env=env, merge=True)
    except subprocess.TimeoutExpired:
        raise ServiceError(
            f"{shown} did not end within {format_duration(ASK_S)}",
            "it was killed",
            "is its disk slow, or does it serve whatever model it is given?",
        ) from None
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise ServiceError(f"{shown} cannot be run", one_line(words or "")) from None
    lines = [line for line in clean_lines(decode(out), most=2000) if line.strip()]
    return lines if lines or code == 0 else [_ended(code)]


def _ended(code: int) -> str:
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in ALLOWED}
    return {**kept, **env, **NO_GPU}


def _program(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The file that is run. Raises ServiceError if there is none."""
    program = shutil.which(argv[0], path=env.get("PATH", os.defpath)) if argv else None
    if program is None:
        named = one_line(argv[0] if argv else "", 80)
        raise ServiceError(f"There is no program {named}", "not here, and not in PATH")
    return posixpath.realpath(program)


def _digest(files: Sequence[str]) -> str:
    try:
        return names.digest(files)
    except OSError as error:
        raise ServiceError("The build cannot be read", one_line(str(error))) from None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
