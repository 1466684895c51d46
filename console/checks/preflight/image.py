"""Local images in the engine: whether they exist, their platform, CUDA and Python modules."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.checks.preflight import Finding, Level
from console.checks.preflight.gpu import parse_archs
from console.common.errors import EngineError
from console.common.text import clean, one_line
from console.common.units import format_bytes, format_duration
from console.runtime.docker import oneoff
from console.runtime.docker.client import ask, known, pull_hint
from console.runtime.docker.oneoff import FILES, Moment, Outcome

if TYPE_CHECKING:
    import docker

ONLY_ARM = ("F-006",)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_SAME = {"x86_64": "amd64", "aarch64": "arm64", "armv8": "arm64"}

IMPORT_S = 180.0
"""Seconds to import PyTorch and an engine from a cold disk."""
MEMORY = 8 << 30
SCRIPT = "omni_imports.py"
PYTHONS = ("python3", "python")
WRITABLE = {
    "PYTHONDONTWRITEBYTECODE": "1", "TRITON_CACHE_DIR": "/tmp/triton", "HF_HOME": "/tmp/hf",
    "NUMBA_CACHE_DIR": "/tmp/numba", "XDG_CACHE_HOME": "/tmp/cache", "HF_HUB_OFFLINE": "1",
}  # fmt: skip
CHAIN = ("F-018",)
SCHED_EXT = ("F-018", "F-023", "F-027")
ABI = ("F-027", "F-023")
NOT_INSTALLED = ("F-011", "F-016")
NO_CARD = ("F-014",)
_NO_PYTHON = ("executable file not found", "no such file or directory", "not a directory")
_NO_GPU = (
    "libcuda.so", "libnvidia-ml.so", "no nvidia driver", "no cuda gpus are available",
    "no cuda-capable device", "cuda driver version is insufficient", "cuda driver initialization",
    "cuda unknown error", "torch not compiled with cuda", "0 active drivers",
)  # fmt: skip
_LIBRARY = re.compile(r"(\S+\.so[\w.]*): cannot open shared object file")
_SYMBOL = re.compile(r"(\S+): undefined symbol: (\S+)")


@dataclass(frozen=True, slots=True)
class Image:
    """A local image: its id (`sha256:…`), its platform and its default command.

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
        match = _VERSION.match(self.env.get("CUDA_VERSION", ""))
        return (int(match[1]), int(match[2])) if match else None

    def argv(self, entrypoint: tuple[str, ...] = (), command: tuple[str, ...] = ()) -> list[str]:
        """What a container of it runs; a given entrypoint discards the image's command."""
        own = () if entrypoint else self.command
        return [*(entrypoint or self.entrypoint), *(command or own)]


def look(client: docker.DockerClient, ref: str) -> Image | None:
    """The image by tag, digest or id; None if the engine has none. Raises EngineError."""
    api: Any = client.api
    inspection = known(f"image {one_line(ref)}", lambda: api.inspect_image(ref))
    if inspection is None:
        return None
    config = inspection.get("Config") or {}
    pairs = (str(pair).partition("=") for pair in config.get("Env") or ())
    return Image(
        ref=one_line(ref),
        id=clean(str(inspection.get("Id", ""))),
        os=clean(str(inspection.get("Os", ""))),
        architecture=clean(str(inspection.get("Architecture", ""))),
        entrypoint=tuple(map(str, config.get("Entrypoint") or ())),
        command=tuple(map(str, config.get("Cmd") or ())),
        env={name: value for name, _, value in pairs},
    )


def engine_platform(client: docker.DockerClient) -> str:
    """The platform of the engine's machine, like `linux/amd64`. Raises EngineError."""
    version_info: dict[str, Any] = ask("Asking the engine's version", client.api.version)
    arch = clean(str(version_info.get("Arch", "")))
    return f"{clean(str(version_info.get('Os', '')))}/{_SAME.get(arch, arch)}"


def check_image(client: docker.DockerClient, ref: str) -> tuple[Finding, ...]:
    """Whether the image is here and made for this machine; never raises an engine's error."""
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


@dataclass(frozen=True, slots=True)
class Imported:
    """How far one module's import got. `chain` are the modules from the requested one down to where
    it ended; `kind` is the exception's class, empty if all went well."""

    module: str
    chain: tuple[str, ...] = ()
    kind: str = ""
    message: str = ""
    missing: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Torch:
    """What PyTorch in an image reports of itself, without a card."""

    version: str
    cuda: str
    archs: tuple[str, ...] | None


def check_imports(
    client: docker.DockerClient,
    ref: str,
    modules: Sequence[str],
    *,
    python: str = "",
    cancelled: threading.Event | None = None,
    labels: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Whether `import sglang.launch_server` and the like succeed, one finding per module. A one-off
    without GPU and network imports the modules one by one and reports how far each got. A kernel
    that imports proves little, but a server with a missing module serves nothing. `python` is the
    image's interpreter (default: the first found). Raises Cancelled; engine errors become
    findings."""
    title = f"imports in {one_line(ref, 50)}"
    try:
        ended, nonce = _run(client, ref, modules, python, cancelled, labels or {})
    except EngineError as error:
        return (_no_python(error, title),)
    attempts = _read_imports(ended, nonce)
    findings = [_finding(attempt) for attempt in attempts if attempt.kind or attempt.chain]
    rest = [name for name in modules if name not in {attempt.module for attempt in attempts}]
    if rest:
        findings.append(_cut_off(rest[0], ended))
    return tuple(findings)


def torch_of(
    client: docker.DockerClient, ref: str, labels: Mapping[str, str] | None = None
) -> Torch | None:
    """The PyTorch of an image: its CUDA and the cards it has kernels for, without using a card.
    None if it has none that can be imported. Raises EngineError."""
    ended, nonce = _run(client, ref, ["--torch"], "", None, labels or {})
    for record in _records(ended, nonce):
        if isinstance(record.get("torch"), str):
            archs = parse_archs(str(record.get("archs") or ""))
            return Torch(one_line(record["torch"], 40), one_line(str(record["cuda"]), 20), archs)
    return None


def _run(
    client: docker.DockerClient,
    ref: str,
    arguments: Sequence[str],
    python: str,
    cancelled: threading.Event | None,
    labels: Mapping[str, str],
) -> tuple[Outcome, str]:
    nonce = os.urandom(8).hex()
    image = look(client, ref)
    first = image.argv()[:1] if image else []
    own = [word for word in first if os.path.basename(word).startswith("python")]
    pythons = [python] if python else [*own, *PYTHONS]
    for at, name in enumerate(pythons):
        moment = Moment(
            ref, (name, f"{FILES}/{SCRIPT}", nonce, *arguments), WRITABLE,
            {SCRIPT: SOURCE.encode()}, memory=MEMORY, cpus=4.0, labels=labels,
        )  # fmt: skip
        try:
            return oneoff.run(client, moment, IMPORT_S, cancelled=cancelled), nonce
        except EngineError as error:
            if at + 1 == len(pythons) or not _lacks_program(error):
                raise
    raise AssertionError("there is always a last interpreter")


def _lacks_program(error: EngineError) -> bool:
    words = error.detail.lower()
    return "exec" in words and any(sign in words for sign in _NO_PYTHON)


def _no_python(error: EngineError, title: str) -> Finding:
    if _lacks_program(error):
        words = "there is no Python in the image, so none of its modules can be imported"
        hint = "is it the right image? `docker image history` shows what was installed"
        return Finding(Level.FAIL, title, words, hint)
    return Finding(Level.UNKNOWN, title, f"not known: {error}", error.hint)


def _records(ended: Outcome, nonce: str) -> list[dict[str, Any]]:
    """What the probe wrote, without what the modules themselves print."""
    records = []
    for line in ended.lines:
        _, mark, text = line.partition(f"{nonce} ")
        try:
            value = json.loads(text) if mark else None
        except ValueError:
            continue
        if isinstance(value, dict):
            records.append(value)
    return records


def _read_imports(ended: Outcome, nonce: str) -> list[Imported]:
    return [
        Imported(
            module=one_line(str(record["module"]), 100),
            chain=tuple(one_line(str(name), 100) for name in record.get("chain") or ()),
            kind=one_line(str(record.get("kind") or ""), 60),
            message=one_line(str(record.get("message") or ""), 300),
            missing=one_line(str(record.get("missing") or ""), 100),
            place=one_line(str(record.get("place") or ""), 160),
        )
        for record in _records(ended, nonce)
        if "module" in record
    ]


def _finding(attempt: Imported) -> Finding:
    title = f"import {attempt.module}"
    if not attempt.kind:
        return Finding(Level.OK, title, "its whole chain imports")
    chain, last = " → ".join(_short(attempt.chain)), f"{attempt.kind}: {attempt.message}"
    words = f"{chain} ends in {last}" + (f" ({attempt.place})" if attempt.place else "")
    low = attempt.message.lower()
    if any(sign in low for sign in _NO_GPU):
        hint = "no card is visible to this check: not proof, the real start with cards decides"
        return Finding(Level.UNKNOWN, title, words, hint, NO_CARD)
    if attempt.missing:
        return Finding(Level.FAIL, title, words, *_missing(attempt))
    symbol, library = _SYMBOL.search(attempt.message), _LIBRARY.search(attempt.message)
    if symbol:
        hint = "compiled against another PyTorch: rebuild the extension inside this image"
        return Finding(Level.FAIL, title, words, hint, ABI)
    if library:
        hint = f"the image lacks the package that brings {one_line(library[1], 60)}"
        return Finding(Level.FAIL, title, words, hint, CHAIN)
    hint = "the module itself fails; `docker run` with this import shows the whole traceback"
    return Finding(Level.FAIL, title, words, hint, CHAIN)


def _missing(attempt: Imported) -> tuple[str, tuple[str, ...]]:
    if attempt.missing == "sched_ext":
        return (
            "a C++ extension of KTransformers itself (csrc/balance_serve): no package and no "
            "kernel brings it; SGLang with kt-kernel, or llama.cpp, do without",
            SCHED_EXT,
        )
    if attempt.missing == attempt.module.partition(".")[0]:
        return (
            f"{attempt.missing} is not installed in this image: was the phase that installs "
            "it built?",
            NOT_INSTALLED,
        )
    return f"the image lacks the package that brings {attempt.missing}", CHAIN


def _short(chain: Sequence[str]) -> list[str]:
    """Shorten a long chain to its ends."""
    names = list(dict.fromkeys(chain))
    return names if len(names) <= 8 else [*names[:3], "…", *names[-4:]]


def _cut_off(module: str, ended: Outcome) -> Finding:
    """The first module without a report: the interpreter ended, or was ended, there."""
    title = f"import {module}"
    last = next((line for line in reversed(ended.lines) if line.strip()), "")
    if ended.code is None:
        words = f"did not end within {format_duration(IMPORT_S)}; it was killed"
        return Finding(Level.UNKNOWN, title, words, "a cold disk? try it again with a longer time")
    if ended.oom:
        words = f"ran out of the {format_bytes(MEMORY)} that this check gives it"
        return Finding(Level.UNKNOWN, title, words, "give the check more memory")
    number = ended.code - 128 if ended.code > 128 else 0
    if number in (signal.SIGILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        name = signal.Signals(number).name
        hint = (
            "SIGILL: built for a processor with instructions this one lacks"
            if number == signal.SIGILL
            else "a library of the chain crashes; `faulthandler` (python -X) names the module"
        )
        return Finding(Level.FAIL, title, f"ended the interpreter with {name}: {last}", hint)
    words = f"ended the interpreter with exit code {ended.code}: {last or 'no words'}"
    return Finding(Level.FAIL, title, words, "the module calls exit, or the interpreter is broken")


# Text and not a function: it runs inside an image, under its Python, which may be an old one.
SOURCE = r'''
import importlib, json, os, sys

nonce = sys.argv[1]
out = os.dup(1)


def say(**record):
    os.write(out, ("\n%s %s\n" % (nonce, json.dumps(record))).encode())


def chain_of(module, error):
    """Modules on the way to where it failed; what importlib and this program do is left out."""
    names, place, seen = [module], "", error.__traceback__
    while seen is not None:
        frame = seen.tb_frame
        name, path = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if path != __file__ and not path.startswith("<frozen") and name != "importlib":
            if name and name != names[-1]:
                names.append(name)
            place = "%s:%d" % (path, seen.tb_lineno)
        seen = seen.tb_next
    return names, place


def attempt(module):
    try:
        importlib.import_module(module)
    except BaseException as error:
        names, place = chain_of(module, error)
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if isinstance(error, SyntaxError):
            place = "%s:%s" % (error.filename, error.lineno)
        say(module=module, chain=names, kind=type(error).__name__, message=str(error)[:2000],
            missing=missing, place=place)
    else:
        say(module=module, chain=[module])


def torch():
    import torch
    archs = None
    try:
        archs = torch._C._cuda_getArchFlags()
    except Exception:
        pass
    say(torch=str(torch.__version__), cuda=str(torch.version.cuda), archs=archs)


sys.path[0:1] = [""]
sys.argv[0] = "-c"
if sys.argv[2:] == ["--torch"]:
    torch()
else:
    for name in sys.argv[2:]:
        attempt(name)
sys.stdout.flush()
os._exit(0)
'''
