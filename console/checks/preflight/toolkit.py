"""What a build on this machine needs: programs, the CUDA toolkit's version, headers.

Asked of the machine, not of a table: the programs are looked for where a step would find them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from console.checks.preflight import Finding, Level, gpu
from console.common.errors import ServiceError
from console.common.text import decode, one_line
from console.host import children
from console.host.activation import PLAIN, Activation
from console.host.sample import Card

ASK_S = 20.0
NVCC = "nvcc"
COMPILERS = ("c++", "g++", "clang++")
USUAL = Path("/usr/local/cuda")
_RELEASE = re.compile(r"\brelease (\d+)\.(\d+)")
Pair = tuple[int, int]


def findings(
    tools: Sequence[str], headers: Sequence[str], cuda: Pair | None, cards: Sequence[Card],
    within: Activation = PLAIN,
) -> Iterator[Finding]:  # fmt: skip
    """Whether a step of this user that runs `within` an environment would find each."""
    env = children.kept()
    try:
        env |= within.variables(env.get("PATH", os.defpath))
    except ServiceError as error:
        yield Finding(Level.FAIL, "environment", f"{error.title}: {error.detail}", error.hint)
        return
    for name in dict.fromkeys(tools):
        path = shutil.which(name, path=env["PATH"] if env.get("PATH") else os.defpath)
        if path is None:
            yield _missing(name)
        elif Path(name).name == NVCC:
            yield from _nvcc(path, cuda, cards, env)
        else:
            yield Finding(Level.OK, _title(name), one_line(path))
    for name in dict.fromkeys(headers):
        yield _header(name, env, within.conda)


def _title(name: str) -> str:
    return f"program {one_line(name, 60)}"


def _missing(name: str) -> Finding:
    aside = USUAL / "bin" / name
    if os.access(aside, os.X_OK):
        hint = f"it is at {aside}, which is not on PATH: `export PATH={aside.parent}:$PATH`"
    elif name in (NVCC, "cuobjdump"):
        hint = "install the CUDA toolkit, or name the conda environment that has it"
    else:
        hint = "install it, or name the conda environment that has it"
    return Finding(Level.FAIL, _title(name), "is not on PATH, so a build would not find it", hint)


def _nvcc(
    path: str, cuda: Pair | None, cards: Sequence[Card], env: dict[str, str]
) -> Iterator[Finding]:
    title = _title(NVCC)
    try:
        code, out, _ = children.run([path, "--version"], ASK_S, env=env, merge=True)
    except (OSError, subprocess.TimeoutExpired):
        yield Finding(Level.UNKNOWN, title, f"{one_line(path)} does not say its version")
        return
    match = _RELEASE.search(decode(out))
    if code != 0 or match is None:
        yield Finding(Level.UNKNOWN, title, f"{one_line(path)} does not say its version")
        return
    version = int(match[1]), int(match[2])
    words = f"{one_line(path)} is {version[0]}.{version[1]}"
    if cuda is not None and version < cuda:
        words += f"; {cuda[0]}.{cuda[1]} or newer is wanted"
        yield Finding(Level.FAIL, title, words, "install that toolkit, or put it first on PATH")
        return
    yield Finding(Level.OK, title, words)
    yield from gpu.check_cuda(cards, version, f"nvcc {version[0]}.{version[1]}")


def _header(name: str, env: dict[str, str], prefix: str) -> Finding:
    """Whether the compiler finds a header, in its own places, the toolkit's or the prefix's."""
    title = f"header {one_line(name, 60)}"
    compiler = next(
        (program for program in COMPILERS if shutil.which(program, path=env.get("PATH"))), None
    )
    if compiler is None:
        return Finding(Level.UNKNOWN, title, "no C++ compiler is on PATH to look for it")
    nvcc = shutil.which(NVCC, path=env.get("PATH"))
    places = [str(Path(os.path.realpath(nvcc)).parents[1] / "include")] if nvcc else []
    places += [f"{prefix}/include"] if prefix else []
    places += [str(USUAL / "include")]
    argv = [compiler, "-E", "-x", "c++", *(f"-I{place}" for place in places), "-"]
    source = f"#if !__has_include(<{name}>)\n#error missing\n#endif\n"
    try:
        code, _, _ = children.run(argv, ASK_S, env=env, given=source.encode(errors="replace"))
    except (OSError, subprocess.TimeoutExpired):
        return Finding(Level.UNKNOWN, title, f"{compiler} cannot be asked for it")
    if code != 0:
        hint = "libnccl-dev of NVIDIA's repository has it" if name == "nccl.h" else "install it"
        return Finding(Level.FAIL, title, f"{compiler} does not find it", hint)
    return Finding(Level.OK, title, f"{compiler} finds it")
