"""The stand-in image, made from the running interpreter: nothing is downloaded, it works offline.

There is one base image, and on top of it one tag for every image of a playbook, with what it stands
in for and the fault in it. Tags lie under `omni-rehearsal/`, so no real one is touched. Stand-in
files that a playbook expects, and a made-up checkpoint, are made here, too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import console
from console.common.errors import EngineError, UsageError
from console.common.units import parse_bytes
from console.rehearsal import workspace as place
from console.rehearsal.demo import model, passage
from console.rehearsal.inside.settings import HOLDS, MODEL, VARIABLE, Settings, packed
from console.rehearsal.workspace import PREFIX, Mapping
from console.runtime.docker.client import ask, image_info
from console.runtime.spec import REHEARSAL_LABEL

if TYPE_CHECKING:
    import docker

TOOLS = (
    "sh", "awk", "basename", "cat", "chmod", "cp", "cut", "date", "df", "dirname", "du", "echo",
    "env", "expr", "false", "find", "free", "grep", "head", "hostname", "id", "ldd", "ls", "mkdir",
    "mktemp", "mv", "nproc", "printf", "pwd", "readlink", "realpath", "rm", "sed", "seq", "sleep",
    "sort", "stat", "sync", "tail", "tee", "test", "timeout", "touch", "tr", "true", "uname",
    "uniq", "wc", "which", "xargs",
)  # fmt: skip
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter",
            "turtledemo", "site-packages", "dist-packages", "pydoc_data"}  # fmt: skip
LEFT_OUT_ENDS = (".a", ".opt-1.pyc", ".opt-2.pyc")
HINT = "pip install 'omni-console[demo]'"
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")

Files = dict[str, Path]
"""Path inside the image → file of this machine."""

LABEL = REHEARSAL_LABEL
LAYOUT = "3"
"""Version of the image's layout: increase it when the layout changes."""
IMPORT_S = 300.0
_SERVER = (
    "import torch\nfrom console.rehearsal.inside.server import main\n"
    "if __name__ == '__main__':\n    raise SystemExit(main('{name}'))\n"
)
MODULES = {
    "torch/__init__.py": "from console.rehearsal.inside.torch import *\n"
    "from console.rehearsal.inside.torch import __version__, cuda, version\n",
    "kt_kernel/__init__.py": "from console.rehearsal.inside.kt_kernel import *\n"
    "from console.rehearsal.inside.kt_kernel import __version__\n",
    "kt_kernel/tools/__init__.py": "",
    "kt_kernel/tools/convert_cpu_weights.py": "from console.rehearsal.inside.kt_kernel import "
    "convert\nif __name__ == '__main__':\n    raise SystemExit(convert())\n",
    "ktransformers/__init__.py": "__version__ = '0.5.1.stand.in'\n",
    "ktransformers/local_chat.py": "import kt_kernel\nimport torch\n",
    "ktransformers/server/__init__.py": "",
    "ktransformers/server/main.py": "import console.rehearsal.inside.balance_serve\n"
    + _SERVER.format(name="ktransformers.server.main"),
    "sglang/__init__.py": "__version__ = '0.5.7.stand.in'\n",
    "sglang/launch_server.py": _SERVER.format(name="sglang.launch_server"),
    "vllm/__init__.py": "__version__ = '0.stand.in'\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/openai/__init__.py": "",
    "vllm/entrypoints/openai/api_server.py": _SERVER.format(name="vllm"),
}
"""Python modules of the stand-in image, by path; each announces that it stands in."""
COMMANDS = ("llama-server", "llama-bench", "llama-sweep-bench", "vllm", "cuobjdump",
            "nvidia-smi")  # fmt: skip
PYTHONS = ("/usr/local/bin/python", "/usr/local/bin/python3", "/usr/local/bin/python3.11",
           "/usr/bin/python3", "/opt/venv/bin/python", "/opt/venv/bin/python3")  # fmt: skip
SEARCH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def interpreter() -> Path:
    """The program behind this interpreter, outside any virtual environment."""
    return Path(sys.executable).resolve()


def engine() -> Path:
    """The package that holds llama.cpp. Raises UsageError without the extra."""
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            "a rehearsal needs the demo's engine", "the package xllamacpp is missing", HINT
        )
    return Path(spec.submodule_search_locations[0])


def files() -> Files:
    """What an image needs to run this interpreter: itself, its libraries, a few tools; everything
    except this project's own code and the model."""
    image_files: Files = {str(interpreter()): interpreter()}
    standard = Path(sysconfig.get_path("stdlib"))
    image_files |= {str(path): path for path in _tree(standard)}
    image_files |= {f"/opt/rehearsal/packages/xllamacpp/{p.relative_to(engine())}": p
              for p in _tree(engine())}  # fmt: skip
    for tool in TOOLS:
        where = shutil.which(tool, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if where is not None:
            image_files[f"/usr/bin/{tool}"] = Path(where).resolve()
    programs = [path for path in image_files.values() if _is_program(path)]
    return image_files | {str(path): path.resolve() for path in _libraries(programs)}


def _tree(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        yield from (Path(folder, name) for name in names if not name.endswith(LEFT_OUT_ENDS))


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries of all these programs, as the system's own loader finds them."""
    done = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )  # fmt: skip
    return {Path(name) for name in _LIBRARY.findall(done.stdout)}


def stands_for(image: str) -> str:
    """The stand-in's tag for an image: `omni/kt:lazarus` → `omni-rehearsal/omni-kt:lazarus`."""
    if image.startswith(PREFIX):
        return image
    name, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        name, tag = image, "latest"
    name = re.sub(r"[^a-z0-9]+", "-", name.lower().partition("@")[0]).strip("-")
    return f"{PREFIX}{name}:{re.sub(r'[^A-Za-z0-9_.-]', '-', tag)[:100] or 'latest'}"


def base_tag() -> str:
    """The base image's tag for this interpreter, engine and code. Raises UsageError."""
    return f"{PREFIX}stand-in:{_key()}"


def ensure_base(client: docker.DockerClient, cache: Path, say: Callable[[str], None]) -> str:
    """The base image's tag, made first if this interpreter has none. Raises ConsoleError."""
    tag = base_tag()
    if image_info(client, tag) is not None:
        return tag
    say("making the stand-in image from this interpreter (once; about a minute) …")
    cache.mkdir(parents=True, exist_ok=True)
    weights = cache / "stand-in.gguf"
    model.write_llama(weights, model.ModelSpec(
        "stand-in", blocks=4, width=384, heads=6, feed_forward=512, seed=21,
        context=131_072, spare=131_072,
    ))  # fmt: skip
    with tempfile.TemporaryFile(dir=cache) as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            _fill(tar, {**files(), **_own(), MODEL: weights})
        file.seek(0)
        _import(client, file, tag)
    return tag


def ensure_stand_in(client: docker.DockerClient, base: str, tag: str, settings: Settings) -> None:
    """Make a tag on the base with these settings. Raises EngineError."""
    recipe = io.BytesIO(dockerfile(base, settings).encode())
    api: Any = client.api

    def build() -> None:
        lines = list(api.build(fileobj=recipe, tag=tag, rm=True, decode=True))
        broken = [str(line["error"]) for line in lines if "error" in line]
        if broken:
            raise EngineError(f"the stand-in image {tag} cannot be made", broken[-1])

    ask(f"Making the stand-in image {tag}", build, IMPORT_S)


def dockerfile(base: str, settings: Settings) -> str:
    """A Dockerfile that gives the base its settings."""
    return f"FROM {base}\nENV {VARIABLE}={packed(settings)}\nLABEL {LABEL}=stand-in\n"


def _key() -> str:
    """Identifies the base image's contents: this Python, the engine, the stand-ins' code and what
    makes their model."""
    from importlib import metadata

    engine()
    parts = [LAYOUT, sys.version, metadata.version("xllamacpp"), json.dumps(MODULES)]
    parts += [path.read_text() for _, path in sorted(_own().items())]
    parts += [Path(str(module.__file__)).read_text() for module in (model, passage)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _own() -> Files:
    root = Path(next(iter(console.__path__)))
    wanted = [root / "__init__.py", root / "rehearsal/__init__.py",
              root / "rehearsal/demo/__init__.py", root / "rehearsal/demo/engine.py"]  # fmt: skip
    wanted += sorted((root / "rehearsal/inside").glob("*.py"))
    return {f"/opt/rehearsal/packages/console/{p.relative_to(root)}": p for p in wanted}


def _fill(tar: tarfile.TarFile, files: Files) -> None:
    for name in ("tmp", "proc", "sys", "dev", "run", "root", "models", "workspace"):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        tar.addfile(entry)
    for inside, path in sorted(files.items()):
        entry = tarfile.TarInfo(inside.lstrip("/"))
        entry.size, entry.mode = path.stat().st_size, 0o755 if os.access(path, os.X_OK) else 0o644
        entry.mtime = int(path.stat().st_mtime)  # or Python would compile everything at each start
        with path.open("rb") as source:
            tar.addfile(entry, source)
    for name, text in _made():
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.size, entry.mode = len(text.encode()), 0o755
        tar.addfile(entry, io.BytesIO(text.encode()))
    for name, target in _links(set(files)):
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        tar.addfile(entry)


def _made() -> Iterator[tuple[str, str]]:
    yield "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"
    yield "/etc/group", "root:x:0:\n"
    for name, text in MODULES.items():
        yield f"/opt/rehearsal/modules/{name}", text
    for name in (*COMMANDS, "entry"):
        where = "/opt/rehearsal/entry" if name == "entry" else f"/usr/local/bin/{name}"
        module = f"{interpreter()} -m console.rehearsal.inside.command"
        yield where, f'#!/usr/bin/sh\nexec {module} {name} "$@"\n'


def _links(taken: set[str]) -> Iterator[tuple[str, str]]:
    """Names by which the interpreter and the shell are called."""
    for name in PYTHONS:
        if name not in taken:
            yield name, str(interpreter())
    yield "/bin", "usr/bin"
    if not any(name.startswith("/lib64/") for name in taken):
        yield "/lib64", "usr/lib64"


def _import(client: docker.DockerClient, file: Any, tag: str) -> None:
    name, _, version = tag.rpartition(":")
    changes = [
        f"ENV PATH={SEARCH}", "ENV PYTHONPATH=/opt/rehearsal/modules:/opt/rehearsal/packages",
        "ENV PYTHONDONTWRITEBYTECODE=1", "ENV PYTHONUNBUFFERED=1", "WORKDIR /workspace",
        'ENTRYPOINT ["/opt/rehearsal/entry"]', f"LABEL {LABEL}=base",
    ]  # fmt: skip
    api: Any = client.api
    ask(
        "Making the stand-in image",
        lambda: api.import_image(src=file, repository=name, tag=version, changes=changes),
        IMPORT_S,
    )


GGUF_ENGINES = ("llama.cpp", "ik_llama.cpp")
WIDTH, EXPERT_WIDTH, LAYERS, EXPERTS, VOCABULARY, HEADS, HEAD = 512, 128, 6, 64, 8192, 8, 64
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
    "hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "moe_intermediate_size": EXPERT_WIDTH,
    "num_hidden_layers": LAYERS, "num_experts": EXPERTS, "num_experts_per_tok": 8,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD,
    "vocab_size": VOCABULARY, "max_position_embeddings": 32_768, "tie_word_embeddings": False,
}  # fmt: skip


def put_expected(path: Path, least: Any, mapping: Mapping) -> None:
    """Make a file of at least `least` bytes; for an engine's program, its other files too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name in COMMANDS:
        for name in COMMANDS:
            place.script(_in_a_container(path.with_name(name), mapping), path.with_name(name))
        (path.parent / "libggml-cuda.so").write_text("stand-in of a rehearsal\n")
    elif not path.suffix and path.name in ("lib", "bin", "include"):
        path.mkdir(exist_ok=True)
        return
    else:
        path.write_text("stand-in of a rehearsal\n")
    wanted = parse_bytes(least) if isinstance(least, str) else int(least or 0)
    if path.stat().st_size < wanted:
        _pad_script(path, wanted)


def python(path: Path) -> None:
    """Stands in for the interpreter of a missing environment: this one, with stand-in modules."""
    modules = place.directory() / "modules"
    for name, text in MODULES.items():
        file = modules / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    place.script(f'PYTHONPATH={shlex.quote(str(modules))} exec {sys.executable} "$@"', path)


def _pad_script(path: Path, size: int) -> None:
    """Pad a script to a size: comments after `exit` are never read."""
    with path.open("a") as file:
        file.write("exit\n#" + "." * (size - os.fstat(file.fileno()).st_size) + "\n")


def _in_a_container(program: Path, mapping: Mapping) -> str:
    """Run a command in the stand-in image, under the candidate's quota; a rollback ends it."""
    settings_text = packed(mapping.for_image(str(program)))
    return (
        f"exec docker run --rm --init --cpus {mapping.cpus:.4f} --network none "
        f'--label {place.role_label()}=oneoff --label "omni.run=$OMNI_RUN" '
        f"-v {shlex.quote(str(place.holds()))}:{HOLDS} -e {VARIABLE}={settings_text} "
        f'{mapping.base} {program.name} "$@"'
    )


CHECKPOINT_WORD = "stand-in"
"""The repository in a checkpoint step that means the made-up checkpoint."""


def put_checkpoint(gguf: bool) -> Path:
    """Make a small checkpoint for `source=stand-in`, readable by a preflight without a hub; return
    its directory. Raises OSError.

    Names, config.json and headers are realistic; the weights are holes. A preflight's verdict on it
    says nothing about a real one.
    """
    where = place.work() / "checkpoint" / ("gguf" if gguf else "bf16")
    where.mkdir(parents=True, exist_ok=True)
    if gguf:
        model.write_llama(where / "stand-in-F16.gguf", model.ModelSpec(
            "stand-in", blocks=2, width=128, heads=2, feed_forward=128, seed=22, context=131_072,
        ))  # fmt: skip
        return where
    (where / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    head, size = _header()
    with (where / "model.safetensors").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return where


def _header() -> tuple[bytes, int]:
    """A safetensors header, preceded by its length, and the size of the weights after it."""
    table, at = {}, 0
    for name, shape in _tensors().items():
        size = 2 * shape[0] * shape[1]
        table[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text, at


def _tensors() -> dict[str, tuple[int, int]]:
    """Matrices by name; anything smaller than a matrix is left out."""
    inner = HEADS * HEAD
    made = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH)}
    for n in range(LAYERS):
        at = f"model.layers.{n}"
        for part in ("q_proj", "k_proj", "v_proj"):
            made[f"{at}.self_attn.{part}.weight"] = (inner, WIDTH)
        made[f"{at}.self_attn.o_proj.weight"] = (WIDTH, inner)
        made[f"{at}.mlp.gate.weight"] = (EXPERTS, WIDTH)
        for expert in range(EXPERTS):
            prefix = f"{at}.mlp.experts.{expert}"
            made[f"{prefix}.gate_proj.weight"] = (EXPERT_WIDTH, WIDTH)
            made[f"{prefix}.up_proj.weight"] = (EXPERT_WIDTH, WIDTH)
            made[f"{prefix}.down_proj.weight"] = (WIDTH, EXPERT_WIDTH)
    return made
