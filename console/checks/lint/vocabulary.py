"""What commands mean: installations, downloads, engine starts, models by their names."""

from __future__ import annotations

import ast
import itertools
import posixpath
import re
from collections.abc import Container, Iterable, Iterator

from console.checks.lint.rule import Facts
from console.checks.lint.unit import Command, Place, Unit, Word
from console.common.options.table import Option, is_same, table

_PIP = re.compile(r"pip(?:3(?:\.\d+)?)?")
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?|pypy3?")
_MOE = re.compile(
    r"deepseek[-_]?(?:coder-)?(?:v2|v3|v4|r1)|mixtral|mi[sx]tral-.*8x|qwen\S*-a\d+b|kimi-?k2|"
    r"minimax-?m[12]|gpt-oss|llama-?4|dbrx|grok|glm-?4\.[5-9]|ernie-4\.5-\d+b-a|olmoe|\d+x\d+b|"
    r"-a\d+b\b|qwen\d*-?moe", re.IGNORECASE,
)  # fmt: skip
_DENSE = re.compile(
    r"distill|llama-?[23]|qwen2(?:\.5)?-(?!moe)|gemma|phi-?[234](?!\.5-moe)|mistral-(?:7b|small|nemo)"
    r"|qwen3-(?:0\.6|1\.7|4|8|14|32)b", re.IGNORECASE,
)  # fmt: skip
_GRAPH = re.compile(
    r"deepseek[-_]?(?:coder-)?(?:v2|v3(?![-_.]?2)|r1)|kimi-?k2|glm-?5|glm-?4\.[5-9]|minimax-?m[23]|"
    r"gpt-oss|ernie-4\.5-\d+b-a|hunyuan|mimo|step-?3\.5|seed-?oss|command-?[ra]\b|cohere|qwen3\.5|"
    r"qwen3-(?!next|vl-\d+b-a|omni)|mixtral|mistral|ministral|devstral|magistral|llama-?[23]\b|"
    r"llama-?3\.|gemma-?4|mellum|laguna|muse-glimmer|distill-llama", re.IGNORECASE,
)  # fmt: skip
"""Names of models whose architecture ik_llama.cpp has split mode graph for. Its list is
is_model_split_supported in src/llama.cpp, here of 8337e4cd (2026-08-15): llama, qwen3, qwen3moe,
qwen3vl, qwen35, qwen35moe, glm4moe, glm-dsa, mistral3, mistral4, command-r, cohere2, cohere2_moe,
mimo2, hunyuan-moe, gpt-oss, ernie4_5-moe, minimax-m2, minimax-m3, seed_oss, step35, laguna, gemma4,
deepseek2, mellum, muse-glimmer."""
_NO_GRAPH = re.compile(
    r"deepseek[-_]?(?:v3[-_.]?2|v4)|distill-qwen-|qwen-?(?:1\.5|2)|qwen3-(?:next|vl-\d+b-a|"
    r"coder-next)|llama-?4|dbrx|grok|phi-?[234]|gemma-?[123]\b|olmo|granite|dots\.?1|\bling-|"
    r"\bring-|internlm|smollm|glm-?4-(?:9|32)b|falcon|arctic|exaone|nemotron", re.IGNORECASE,
)  # fmt: skip
_LATENT = re.compile(
    r"deepseek[-_]?(?:coder-)?(?:v2|v3|r1)(?!.*(?:distill|qwen|llama))|kimi-?k2", re.IGNORECASE
)
_GGUF = re.compile(r"\.gguf\b|gguf|(?:^|[-_./])I?Q[2-8]_(?:K(?:_[SMLX]+)?|[01]|XX?S|NL)\b", re.I)
_ARCH = re.compile(r"(?:^|[^0-9])(?:sm_|compute_)?12(?:0a?|\.0)(?:[^0-9]|$)")
_ARCH_NAMES = (
    "CMAKE_CUDA_ARCHITECTURES", "CPUINFER_CUDA_ARCHS", "TORCH_CUDA_ARCH_LIST", "CUDA_DOCKER_ARCH",
    "CUDA_ARCH", "CUDA_ARCHITECTURES",
)  # fmt: skip
_INSTALLERS = ("apt-get", "apt", "aptitude", "apk", "dnf", "yum", "microdnf", "zypper", "conda",
               "mamba", "micromamba")  # fmt: skip
_VALUED = ("-t", "-o", "-c", "-n", "--target-release", "--virtual", "-p", "--name", "--prefix")
_PIP_VALUED = (
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-r", "--target", "-c",
    "--constraint", "--requirement", "-t", "--prefix", "--root", "--timeout", "--config-settings",
    "-C", "--trusted-host", "--python", "-w", "--wheel-dir",
)  # fmt: skip
"""Options of installers, and of pip, that take a value."""
_PLAIN = ("ubuntu", "debian", "nvidia/cuda", "python", "pytorch/pytorch", "rockylinux", "almalinux",
          "fedora", "nvcr.io/nvidia/cuda")  # fmt: skip
_TORCH_IMAGES = frozenset({
    "pytorch/pytorch", "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/vllm", "nvcr.io/nvidia/sglang",
    "nvcr.io/nvidia/nemo", "nvcr.io/nvidia/tensorrt-llm/release", "rocm/pytorch",
    "rocm/pytorch-nightly", "rocm/vllm", "rocm/vllm-dev", "rocm/sglang-staging",
    "vllm/vllm-openai", "lmsysorg/sglang", "intel/intel-extension-for-pytorch",
    "huggingface/transformers-pytorch-gpu", "approachingai/ktransformers",
})  # fmt: skip
_ARCHIVE = re.compile(r"\.(?:whl|tar\.\w+|tgz|zip)$|/.*[*?]")
ENGINES = {
    "llama": ("llama_cpp", "ik_llama"), "vllm": ("vllm",), "sglang": ("sglang",),
    "": ("llama_cpp", "ik_llama", "vllm", "sglang"),
}  # fmt: skip
"""The tables of options by what `engine` calls their program."""
CUDA = re.compile(r"cuda[:-]?(\d{1,2})\.(\d{1,2})")
"""The version of CUDA in the name of an image."""


def is_plain(base: str) -> bool:
    """Whether an image is a plain system, of whose packages only what is installed is known."""
    name = base.split("@")[0].rsplit(":", 1)[0]
    return name.removeprefix("docker.io/").removeprefix("library/") in _PLAIN


def has_torch(base: str) -> bool:
    """Whether an image is known to bring PyTorch."""
    name = base.split("@")[0].rsplit(":", 1)[0]
    return name.removeprefix("docker.io/") in _TORCH_IMAGES


def is_python(command: Command) -> bool:
    return _PYTHON.fullmatch(command.name) is not None


def module(command: Command) -> str:
    """What `python -m` runs; "" for anything else."""
    if not is_python(command):
        return ""
    texts = [word.text for word in command.args]
    return texts[texts.index("-m") + 1] if "-m" in texts[:-1] else ""


def python_code(command: Command) -> tuple[ast.Module, Place] | None:
    """The code of `python -c CODE` or of a here-document it reads."""
    if not is_python(command):
        return None
    texts = [word.text for word in command.args]
    if "-c" in texts[:-1]:
        word = command.args[texts.index("-c") + 1]
        code, place = word.text, word.place
    elif command.stdin is not None and (not texts or texts == ["-"]):
        code, place = command.stdin.text, command.place
    else:
        return None
    try:
        return ast.parse(code), place
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def plain(words: Iterable[Word], valued: Container[str]) -> Iterator[Word]:
    """Words that are neither an option nor the value of one in `valued`."""
    skip = False
    for word in words:
        if skip or word.text.startswith("-"):
            skip = not skip and word.text in valued
        else:
            yield word


def packages(command: Command) -> tuple[Word, ...]:
    """The packages that apt-get, apk, dnf or conda shall install."""
    verb = "add" if command.name == "apk" else "install"
    texts = [word.text for word in command.args]
    if command.name not in _INSTALLERS or verb not in texts:
        return ()
    return tuple(plain(command.args[texts.index(verb) + 1 :], _VALUED))


def installed(unit: Unit, scope: str) -> frozenset[str]:
    """Package names that a stage's commands install, without version, architecture and release."""
    if scope not in unit.packages:
        unit.packages[scope] = frozenset(
            re.split(r"[=:<>~/]", word.text, maxsplit=1)[0]
            for command in unit.within(scope)
            for word in packages(command)
        )
    return unit.packages[scope]


def pip_words(command: Command, verb: str = "install") -> tuple[Word, ...]:
    """Requirements and paths of a `pip install`, `python -m pip install` or `uv pip install`, or of
    another verb of pip."""
    return tuple(plain(_after_pip(command, verb), _PIP_VALUED))


def _after_pip(command: Command, verb: str) -> tuple[Word, ...]:
    texts = [word.text for word in command.words]
    pip = _PIP.fullmatch(command.name) or module(command) == "pip"
    if not (pip or (command.name == "uv" and "pip" in texts[:3])) or verb not in texts:
        return ()
    return command.words[texts.index(verb) + 1 :]


def pip_files(command: Command) -> list[str]:
    """The files of requirements that a `pip install` reads."""
    words = _after_pip(command, "install")
    given = [value for value, word in command.options("-r", "--requirement") if word in words]
    return given + [w.text[2:] for w in words if w.text.startswith("-r") and len(w.text) > 2]


def pips(unit: Unit) -> Iterator[Word]:
    """The same for every command."""
    return (word for command in unit.commands for word in pip_words(command))


def built_folders(command: Command) -> list[str]:
    """The directories that `pip install . /b` or `python setup.py …` builds from."""
    steps = [step for word in pip_words(command) if (step := local_folder(word.text))]
    if is_python(command) and any(word.text.endswith("setup.py") for word in command.args):
        steps.append(".")
    return [joined(command, step) for step in steps]


def joined(command: Command, step: str) -> str:
    """A directory that a command names."""
    return posixpath.join(command.folder, "" if step in (".", "./") else step)


def local_folder(requirement: str) -> str:
    """The directory that a requirement of pip names, "" for a project, an address or a file."""
    text = re.sub(r"^[\w.\[\]-]+\s*@\s*(?=file:)", "", requirement).removeprefix("file://")
    step = re.sub(r"\[[^\]]*\]$", "", text)
    local = step.startswith((".", "/")) or "/" in step.split("://")[0]
    return step if local and not is_archive(step) else ""


def is_archive(requirement: str) -> bool:
    """Whether a requirement of pip is a file of this machine, like a wheel, or a pattern of it."""
    text = requirement.removeprefix("file://").partition("[")[0]
    return "://" not in text and _ARCHIVE.search(text) is not None


def is_download(command: Command) -> bool:
    """Whether a command fetches a file or checkpoint from the network and keeps it."""
    texts = [word.text for word in command.args]
    if hub_repo(command) or command.name in ("wget", "aria2c"):
        return "--spider" not in texts
    if command.name == "modelscope":
        return "download" in texts
    if command.name == "git" and "clone" in texts:
        return any("huggingface.co" in text for text in texts)
    kept = ("-O", "-o", "--output", "--remote-name")
    short = (text for text in texts if text.startswith("-") and not text.startswith("--"))
    return command.name == "curl" and (
        any(text in kept for text in texts) or any("O" in text for text in short)
    )


def hub_words(command: Command) -> tuple[Word, ...]:
    """Repository and files of a `huggingface-cli download` or `hf download`."""
    texts = [word.text for word in command.args]
    if command.name not in ("huggingface-cli", "hf") or texts[:1] != ["download"]:
        return ()
    words: list[Word] = []
    several = skip = False
    for word in command.args[1:]:
        if word.text.startswith("-"):
            several = word.text in ("--include", "--exclude")
            skip = "=" not in word.text and word.text not in ("--quiet", "--force-download")
        elif skip:
            skip = several
        else:
            words.append(word)
    return tuple(words)


def hub_repo(command: Command) -> str:
    words = hub_words(command)
    return words[0].text if words else ""


def engine(command: Command) -> str:
    """`sglang`, `vllm` or `llama` for a command that starts such a server or benchmark."""
    texts = [word.text for word in command.words[:4]]
    ran = module(command)
    image = command.image.lower()
    bare = command.words[0].text.startswith("-")
    if ran.startswith("sglang.launch_server") or texts[:2] == ["sglang", "serve"]:
        return "sglang"
    if ran.startswith("vllm.entrypoints") or (command.name == "vllm" and "serve" in texts):
        return "vllm"
    if bare and ("vllm" in image or "sglang" in image):
        return "vllm" if "vllm" in image else "sglang"
    if command.name.startswith("llama-") or (bare and "llama" in image):
        return "llama"
    words = [word.text.partition("=")[0] for word in command.words]
    layers = any(is_same(word, "--n-gpu-layers", ENGINES["llama"]) for word in words)
    return "llama" if bare and layers else ""


def given(unit: Unit, command: Command, *names: str) -> Iterator[tuple[str, Place, str]]:
    """(value, place, spelling) of an engine's options in a command, however they are spelled
    (`--split_mode`, `-sm`, `--tp=2`), and of the variables that the engine takes for them. Of an
    engine that is not known, any engine's spellings count."""
    engines = ENGINES.get(engine(command), ENGINES[""])
    options = [
        option
        for of in engines
        for option_name in names
        if (option := table(of).option(option_name))
    ]
    words = _own_words(command) if options else ()
    for word, after in itertools.zip_longest(words, words[1:]):
        spelling, sign, value = word.text.partition("=")
        if " " in spelling:
            spelling, sign, value = word.text.partition(" ")
        if spelling.startswith("-") and _is_one_of(spelling, options, engines):
            value = value.strip() if sign else after.text if after else ""
            yield value, word.place, spelling
    for name in dict.fromkeys(name for option in options for name in option.env):
        for variable in unit.settings(command, name):
            yield variable.value, variable.place, name


def _is_one_of(spelling: str, options: list[Option], engines: tuple[str, ...]) -> bool:
    given = [table(of).option(spelling) for of in engines]
    return any(
        known_option is option for known_option in given if known_option for option in options
    )


def _own_words(command: Command) -> tuple[Word, ...]:
    """The words behind the program, without Python's own (`-m MODULE`)."""
    texts = [word.text for word in command.args]
    if is_python(command) and "-m" in texts:
        return command.args[texts.index("-m") + 2 :]
    return command.args


def model_name(unit: Unit, command: Command) -> str:
    """The model a server is told to load: path or repository."""
    names = ("--model", "--model-path", "--hf-repo")
    model = next((value for value, _, _ in given(unit, command, *names) if value), "")
    if not model and command.name == "vllm" and len(command.args) > 1:
        model = next((w.text for w in command.args[1:] if not w.text.startswith("-")), "")
    return model


def is_moe(name: str) -> bool | None:
    """Whether the name tells of a mixture of experts; None if it does not say."""
    if _DENSE.search(name):
        return False
    return True if _MOE.search(name) else None


def splits_graph(name: str) -> bool | None:
    """Whether a model's name tells of an architecture that ik_llama.cpp lists for split mode graph;
    None if it does not tell."""
    if _NO_GRAPH.search(name):
        return False
    return True if _GRAPH.search(name) else None


def is_latent(name: str) -> bool:
    """Whether a name tells of DeepSeek's architecture with latent attention (deepseek2)."""
    return _LATENT.search(name) is not None


def names_gguf(text: str) -> bool:
    """Whether a name is a GGUF file, or a quantisation that only GGUF has."""
    return _GGUF.search(text) is not None


def for_sm120(unit: Unit, facts: Facts) -> bool | None:
    """Whether this is for a card of compute 12.0: by the site, else by the file's settings."""
    if facts.sm120 is not None:
        return facts.sm120
    for variable in unit.variables:
        if variable.name in _ARCH_NAMES and _ARCH.search(variable.value):
            return True
    for command in unit.commands:
        for name, value, _ in defines(command.args):
            if name in _ARCH_NAMES and _ARCH.search(value):
                return True
    return None


def defines(words: tuple[Word, ...]) -> Iterator[tuple[str, str, Word]]:
    """(name, value, where) of `-DNAME=VALUE`, `-D NAME:TYPE=VALUE` and make's `NAME=VALUE`."""
    after = False
    for word in words:
        text = word.text
        if text == "-D":
            after = True
            continue
        if text.startswith("-D") or after or (text[:1].isalpha() and "=" in text):
            name, sign, value = text.removeprefix("-D").partition("=")
            if sign:
                yield name.partition(":")[0], value, word
        after = False


def truthy(value: str) -> bool:
    return value.strip().strip("\"'").upper() in ("1", "ON", "TRUE", "YES", "Y")
