"""Faults of builds: flags that cost speed, incomplete sources, missing packages."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

from console.checks.lint import shell, vocabulary
from console.checks.lint.rule import ERROR, INFO, WARNING, Facts, rule
from console.checks.lint.unit import (
    Command,
    Hit,
    Kind,
    Severity,
    Stage,
    Unit,
    Variable,
    Where,
    Word,
    spot,
)

_NO_VMM = ("GGML_CUDA_NO_VMM", "LLAMA_CUDA_NO_VMM")
_TEXT_ONLY = ("echo", "printf", "grep", "rg", "sed", "awk")
"""Programs whose arguments are only text."""
_CUDA_ON = ("GGML_CUDA", "LLAMA_CUDA", "LLAMA_CUBLAS", "GGML_CUBLAS")
_KT = re.compile(r"(?:ktransformers|kt[-_]kernel)(?:$|[\[=<>~!@ ])|git\+\S*/ktransformers\b")
_ASKS = frozenset(
    {"torch.cuda.get_arch_list", "torch.cuda.is_available", "torch.cuda.device_count",
     "torch.cuda.get_device_name", "torch.cuda.get_device_properties", "torch.cuda.init",
     "torch.cuda.current_device", "torch.cuda.get_device_capability", "torch.cuda.mem_get_info",
     "tensorflow.config.list_physical_devices", "tf.config.list_physical_devices",
     "cupy.cuda.runtime.getDeviceCount", "cp.cuda.runtime.getDeviceCount"}
)  # fmt: skip


@rule(
    "ggml-cuda-no-vmm", ERROR, "F-003",
    title="CUDA virtual memory is built out of llama.cpp",
    why="Without VMM the transfers between cards lost two thirds of the speed: 10.75 tok/s fell to "
    "3.68. It is set to get past a linker error in an image build.",
    fix="leave it out; build on the host with its driver and package the binary",
)  # fmt: skip
def no_vmm(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if command.name not in _TEXT_ONLY:
            for name, value, word in _on(command.words, _NO_VMM):
                yield Hit(word.place, f"{name}={value}")
    for variable in _variables(unit):
        if variable.name in _NO_VMM and vocabulary.truthy(variable.value):
            yield Hit(variable.place, f"{variable.name}={variable.value}")
        elif any(name in variable.value for name in _NO_VMM):
            for name, value, _ in _on(_words(variable), _NO_VMM):
                yield Hit(variable.place, f"{variable.name} carries {name}={value}")


def _on(words: tuple[Word, ...], names: tuple[str, ...]) -> Iterator[tuple[str, str, Word]]:
    """Definitions that switch on any of `names`: name, value, place."""
    return (
        definition
        for definition in vocabulary.defines(words)
        if definition[0] in names and vocabulary.truthy(definition[1])
    )


def _variables(unit: Unit) -> Iterator[Variable]:
    """Variables of the file, then those of single commands."""
    yield from unit.variables
    yield from (variable for command in unit.commands for variable in command.env)


@rule(
    "cuda-build-inside-image", WARNING, "F-003 S-001",
    title="llama.cpp is compiled for CUDA inside an image build",
    why="An image build has no driver: it ends in linker errors, or in the flag that cures them "
    "and costs two thirds of the speed. What serves was built on the host and packaged.",
    fix="build on the host, COPY the binary into the image; or link against the CUDA stubs, and "
    "measure before it replaces anything",
)  # fmt: skip
def inside_image(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if command.where is not Where.BUILD or command.name not in ("cmake", "make"):
            continue
        for name, value, word in _on(command.args, _CUDA_ON):
            yield Hit(word.place, f"{command.name} with {name}={value} in an image build")
    for variable in _variables(unit) if unit.source.kind is Kind.DOCKERFILE else ():
        if variable.name == "CMAKE_ARGS":  # by which pip builds llama-cpp-python
            for name, value, _ in _on(_words(variable), _CUDA_ON):
                yield Hit(variable.place, f"CMAKE_ARGS with {name}={value} in an image build")


def _words(variable: Variable) -> tuple[Word, ...]:
    """A variable's value, split into words as a shell does."""
    try:
        texts = shlex.split(variable.value)
    except ValueError:
        texts = variable.value.split()
    return tuple(Word.made(text, variable.place) for text in texts)


@rule(
    "shallow-clone-with-submodules", ERROR, "F-013",
    title="A shallow clone of a repository with submodules",
    why="Submodules are pinned to commits that a shallow history does not have: the build fails "
    "later, or an image without its engine is exported.",
    fix="git clone --recursive, without --depth",
)  # fmt: skip
def shallow_clone(unit: Unit, facts: Facts) -> Iterator[Hit]:
    fetches = [fetch for fetch in unit.commands if _git(fetch) == "submodule"][:50]
    for command in unit.commands:
        verb = _git(command)
        shallow = command.has("--depth", "--shallow-since", "--shallow-exclude")
        if verb == "submodule" and command.has("--depth"):
            yield Hit(command.place, "submodules are fetched with --depth", WARNING)
        if verb != "clone":
            continue
        recursive = command.has("--recursive", "--recurse-submodules")
        kt = any("kvcache-ai/ktransformers" in word.text.lower() for word in command.args)
        if command.has("--shallow-submodules"):
            words = "--shallow-submodules: only where the host serves any commit, as GitHub does"
            yield Hit(command.place, words, None if kt else INFO)
        elif not shallow:
            continue
        elif recursive:
            yield Hit(command.place, "--depth together with submodules", WARNING)
        elif _fetched_later(fetches, command):
            yield Hit(command.place, "--depth, and its submodules are fetched afterwards", INFO)
        elif kt:
            yield Hit(command.place, "ktransformers is cloned with --depth; it has submodules")


def _fetched_later(fetches: list[Command], clone: Command) -> bool:
    """Whether `git submodule` runs in the clone, in the same script."""
    words = [word.text for word in clone.args if not word.text.startswith("-")]
    folder = words[-1].rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    return any(
        folder in (*fetch.folder.split("/"), *(word.text for word in fetch.args))
        for fetch in fetches
        if fetch.script == clone.script
    )


def _git(command: Command) -> str:
    if command.name != "git":
        return ""
    return next((word.text for word in vocabulary.plain(command.args, ("-C", "-c"))), "")


@rule(
    "build-time-gpu-validation", ERROR, "F-014",
    title="An image build asks for the GPU",
    why="There is no GPU while an image is built: get_arch_list() is empty there whatever the "
    "wheel was compiled for, and an assertion on it fails every build.",
    fix="ask in CMD or ENTRYPOINT, which run with --gpus all",
)  # fmt: skip
def build_time(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if command.where is not Where.BUILD or "device" in command.wrappers:
            continue
        if command.name == "nvidia-smi" and not command.tolerated:
            yield Hit(command.place, "nvidia-smi in an image build")
        code = vocabulary.python_code(command)
        if code is None:
            continue
        nodes, aliases = ast.walk(code[0]), _aliases(code[0])
        gpu_calls = sorted({name for node in nodes if (name := _dotted(node, aliases)) in _ASKS})
        if gpu_calls:
            grave = None if _fails_without_card(code[0]) and not command.tolerated else WARNING
            yield Hit(command.place, f"{gpu_calls[0]}() in an image build", grave)


def _aliases(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            aliases |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
        elif isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return aliases


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    """`a.b.c` of an attribute or a name, "" for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([aliases.get(node.id, node.id), *reversed(names)])


def _fails_without_card(tree: ast.Module) -> bool:
    """Whether the code fails if there is no card."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    ends = {"exit", "sys.exit", "os._exit", "torch.cuda.init", "torch.cuda.current_device",
            "torch.cuda.get_device_name", "torch.cuda.get_device_properties"}  # fmt: skip
    aliases = _aliases(tree)
    return any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(tree)) or any(
        _dotted(call, aliases) in ends for call in calls
    )


def _kt_builds(unit: Unit, part: str) -> Iterator[tuple[Command, Stage]]:
    """Commands that build part of the ktransformers repository, with their Dockerfile stage."""
    cloned = any("ktransformers" in word.text for c in unit.commands for word in c.args)
    for command in unit.commands:
        stage = unit.stage(command.scope)
        if stage is None or command.where is not Where.BUILD:
            continue
        for folder in vocabulary.built_folders(command):
            known = cloned or "ktransformers" in folder or part == "kt-kernel"
            if known and part in folder.split("/"):
                yield command, stage
                break


def _level(stage: Stage) -> Severity:
    """ERROR if the base is a plain system without such packages, else WARNING."""
    return ERROR if vocabulary.is_plain(stage.base) else WARNING


@rule(
    "kt-kernel-without-hwloc", ERROR, "F-015",
    title="kt-kernel is built without hwloc and pkg-config",
    why="Its CMakeLists asks FindHWLOC, which needs pkg-config and hwloc.pc; minimal images have "
    "neither.",
    fix="apt-get install pkg-config libhwloc-dev before it",
)  # fmt: skip
def hwloc(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command, stage in _kt_builds(unit, "kt-kernel"):
        if lacks := _lacks_hwloc(unit, command):
            yield Hit(command.place, f"kt-kernel is built and {lacks} not installed", _level(stage))
    for command in unit.commands:
        if unit.stage(command.scope) is None or command.where is not Where.BUILD:
            continue
        for word in vocabulary.pip_words(command):
            if _KT.match(word.text) and (lacks := _lacks_hwloc(unit, command)):
                words = f"{word.text} is compiled where no wheel fits, and {lacks} not installed"
                yield Hit(word.place, words, WARNING)


def _lacks_hwloc(unit: Unit, command: Command) -> str:
    """Which of the two packages a command's stage does not install, "" if it has both."""
    there = vocabulary.installed(unit, command.scope)
    pairs = (
        ("pkg-config", {"pkg-config", "pkgconf", "pkgconf-pkg-config"}),
        ("libhwloc-dev", {"libhwloc-dev", "hwloc-devel", "hwloc-dev"}),
    )
    return " and ".join(name for name, names in pairs if not names & there)


@rule(
    "ktransformers-archive-without-cmake", ERROR, "F-016",
    title="The archive package of ktransformers is built without cmake",
    why="Model loading, server and command line moved to archive/, which compiles C++ extensions "
    "and calls cmake.",
    fix="apt-get install cmake before it",
)  # fmt: skip
def archive_cmake(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command, stage in _kt_builds(unit, "archive"):
        pips = [
            word.text
            for neighbour in unit.within(command.scope)
            for word in vocabulary.pip_words(neighbour)
        ]
        if "cmake" not in vocabulary.installed(unit, command.scope) and "cmake" not in pips:
            yield Hit(command.place, "archive/ is built and cmake not installed", _level(stage))


@rule(
    "ktransformers-archive-third-party", ERROR, "F-017",
    title="The archive package of ktransformers does not find third_party",
    why="Its CMake files look for ../../third_party, which stayed at the top of the repository.",
    fix="rm -rf archive/third_party && cp -r third_party archive/ before it",
)  # fmt: skip
def third_party(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command, _ in _kt_builds(unit, "archive"):
        copied = any(
            neighbour.name in ("cp", "ln", "mv", "rsync")
            and any("third_party" in word.text for word in neighbour.args)
            for neighbour in unit.within(command.scope)
        )
        if not copied:
            yield Hit(command.place, "archive/ is built and third_party not copied into it")


@rule(
    "kt-kernel-without-main-package", ERROR, "F-011 F-016",
    title="The ktransformers command without its package",
    why="kt-kernel brings kernels, not model loading: an image with it alone ends in "
    "ModuleNotFoundError: No module named 'ktransformers'.",
    fix="install archive/ as well, or serve through SGLang",
)  # fmt: skip
def main_package(unit: Unit, facts: Facts) -> Iterator[Hit]:
    if unit.source.kind is not Kind.DOCKERFILE or not list(_kt_builds(unit, "kt-kernel")):
        return
    whole = [word.text for word in vocabulary.pips(unit)]
    if list(_kt_builds(unit, "archive")) or any(text.startswith("ktransformers") for text in whole):
        return
    for command in unit.commands:
        ran = vocabulary.module(command)
        if command.where is Where.START and (ran or command.name).startswith("ktransformers"):
            yield Hit(command.place, f"{ran or command.name} runs, and only kt-kernel is installed")


@rule(
    "kt-kernel-cuda-archs", WARNING, "F-011",
    title="kt-kernel is built for other cards",
    why="Its setup.py takes the architectures from CPUINFER_CUDA_ARCHS, by default 80;86;89;90, "
    "and not from CMAKE_CUDA_ARCHITECTURES.",
    fix='ENV CPUINFER_CUDA_ARCHS="120" before it',
    needs="cards of compute 12.0", when=vocabulary.for_sm120,
)  # fmt: skip
def kt_archs(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command, _ in _kt_builds(unit, "kt-kernel"):
        given = [setting.value for setting in unit.settings(command, "CPUINFER_CUDA_ARCHS")]
        if not any("120" in archs for archs in given):
            state = f"is {given[-1]}" if given else "is not set"
            yield Hit(command.place, f"kt-kernel is built and CPUINFER_CUDA_ARCHS {state}")


@rule(
    "commented-out-install", INFO, "F-011",
    title="An installation that is commented out",
    why="A phase 1 image whose engine was a comment was taken for the whole one: "
    "ModuleNotFoundError in phase 2.",
    fix="remove the comment, or install it, and tag the image by its phase",
)  # fmt: skip
def commented_out(unit: Unit, facts: Facts) -> Iterator[Hit]:
    if unit.source.kind is not Kind.DOCKERFILE:
        return
    before = {remark.place.line: remark.text.lower() for remark in unit.comments}
    for comment in unit.comments:
        text = comment.text.lstrip("# \t")
        if not text.startswith("RUN "):
            continue
        read = shell.parse(spot(text.removeprefix("RUN ").rstrip("\\ "), comment.place))
        commands = [Command(command.words, Where.BUILD) for command in read.commands]
        if not any(_installs(command) for command in commands):
            continue
        instruction = text.rstrip(" &\\")
        above = before.get(comment.place.line - 1, "")
        grave = any(word in above for word in ("placeholder", "todo", "phase", "later", "runtime"))
        yield Hit(comment.place, f"commented out: {instruction}", WARNING if grave else None)


def _installs(command: Command) -> bool:
    return (
        bool(vocabulary.pip_words(command) or vocabulary.packages(command))
        or _git(command) == "clone"
    )
