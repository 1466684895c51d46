"""Faults against this machine: its kernels, kills, endless waits, and its cards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.checks.lint import commands, vocabulary
from console.checks.lint.rule import ERROR, INFO, WARNING, Facts, rule
from console.checks.lint.unit import Command, Container, Hit, Kind, Unit, Where

_KERNEL = re.compile(r"linux-(?:image|headers|modules)(?:-unsigned)?-6\.1[2-9]")
_PGREP = re.compile(r"\bpgrep\b.*?\s(?:-\w*f\w*|--full)\b|\bps\b.*\|\s*grep\b")
_LONG = frozenset({"cmake", "make", "ninja", "cargo"})
_WHEELS = re.compile(r"/whl/(?:nightly/|test/)?cu(\d{2})(\d)\b")
_FLAGS = ("AVX512F", "AVX512VL", "AVX512BW", "AVX512CD", "AVX512DQ")
OLDEST = (12, 8)


_SPLIT_MODE = "LLAMA_ARG_SPLIT_MODE"


@rule(
    "kernel-6.12-ppa", ERROR, "F-018 F-023 D-002",
    title="A kernel from outside the distribution for sched_ext",
    why="A 6.12 kernel of a PPA breaks the NVIDIA driver (no DKMS fixes), gets no security "
    "updates, and the machine that serves has to boot it. What is missing is a module of "
    "ktransformers, not the kernel's scheduler of that name.",
    fix="stay on the distribution's kernel; SGLang instead of balance_serve",
)  # fmt: skip
def kernel(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if command.name in ("add-apt-repository", "apt-add-repository"):
            for word in command.args:
                if re.fullmatch(r"ppa:[\w.+-]+/(?:sched-ext\S*|mainline)", word.text):
                    yield Hit(word.place, word.text)
        for word in vocabulary.packages(command):
            if _KERNEL.match(word.text):
                yield Hit(word.place, word.text)


@rule(
    "pkill-f-as-rollback", WARNING, "D-003",
    title="Processes are ended by a pattern",
    why="`pkill -f sglang` ends whatever has that word in its command line: the editor, the log "
    "that is followed, a second trial, the baseline. It waits for no memory to come back.",
    fix="a service with `process:`, which is stopped by its pid; `omni-console rollback`",
)  # fmt: skip
def by_pattern(unit: Unit, facts: Facts) -> Iterator[Hit]:
    grave = ERROR if unit.source.kind is Kind.PLAYBOOK else None
    for at, command in enumerate(unit.commands):
        if command.where is not Where.HOST or command.has("-0"):
            continue
        if command.name == "killall" or _is_pkill_f(command) or _of_pattern(unit, at):
            yield Hit(command.place, command.line, grave)


def _is_pkill_f(command: Command) -> bool:
    flags = "".join(w.text[1:] for w in command.args if re.fullmatch(r"-[a-zA-Z0-9]+", w.text))
    return command.name == "pkill" and ("f" in flags or command.has("--full"))


def _of_pattern(unit: Unit, at: int) -> bool:
    """A `kill` of what `pgrep -f` or `ps | grep` found, as an argument or through a pipe."""
    kill = unit.commands[at]
    if kill.name != "kill":
        return False
    if "xargs" not in kill.wrappers:
        return any(_PGREP.search(word.text) for word in kill.args)
    before = [
        command for command in unit.commands[max(0, at - 4) : at] if command.script == kill.script
    ]
    has_pgrep = any(_PGREP.search(command.line) for command in before)
    return has_pgrep or {"ps", "grep"} <= {command.name for command in before}


@rule(
    "missing-timeout", WARNING, "F-019 D-004",
    title="Something that may hang or takes long, without a timeout of its own",
    why="A request to a server that hangs holds a test up for ever: an hour becomes a night. A "
    "build or a download in a playbook is ended after ten minutes, the default.",
    fix="curl --max-time SECONDS; `timeout: 2h` at the step",
)  # fmt: skip
def no_timeout(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if command.name == "curl" and command.looped and not _bounded(command) and _asks(command):
            yield Hit(command.place, "curl to an engine in a loop, without --max-time")
    if unit.source.kind is Kind.PLAYBOOK:
        yield from _steps(unit)


def _asks(command: Command) -> bool:
    return re.search(r"/v1/|completions?\b|/generate\b|/infill\b", command.line) is not None


def _bounded(command: Command) -> bool:
    short = any(re.fullmatch(r"-[a-zA-Z]*m\d*", word.text) for word in command.args)
    return short or command.has("--max-time") or "timeout" in command.wrappers


def _steps(unit: Unit) -> Iterator[Hit]:
    for step in unit.steps:
        if step.timed or step.kind not in ("run", "script"):
            continue
        inside = (command for command in unit.commands if command.scope == step.id)
        long = next((command for command in inside if _takes_long(command)), None)
        if long is not None:
            yield Hit(step.place, f"step {step.id} runs {long.line[:60]} and names no timeout")


def _takes_long(command: Command) -> bool:
    texts = [word.text for word in command.args]
    call = commands.engine_call(command.words)
    return (
        (command.name == "cmake" and "--build" in texts)
        or (command.name in _LONG - {"cmake"} and "-h" not in texts)
        or (call is not None and call.verb == "build")
        or bool(vocabulary.hub_repo(command))
        or any(
            re.match(r"(torch|vllm|sglang)\b", word.text) for word in vocabulary.pip_words(command)
        )
        or "convert_cpu_weights" in command.line
    )


@rule(
    "cuda-too-old-for-sm120", ERROR, "F-012",
    title="CUDA older than 12.8 for a Blackwell card",
    why="12.1 and 12.4 lack compute_120, 12.6 has only a preview: nvcc stops, or the wheel has no "
    "kernel for the card.",
    fix="nvidia/cuda:12.8.0-devel-… or newer, and PyTorch from the cu128 index",
    needs="cards of compute 12.0", when=vocabulary.for_sm120,
)  # fmt: skip
def old_cuda(unit: Unit, facts: Facts) -> Iterator[Hit]:
    named = [
        (image.place, vocabulary.CUDA.search(image.ref), f"{image.ref} is CUDA")
        for image in unit.images
    ]
    pips = (command for command in unit.commands if vocabulary.pip_words(command))
    words = (word for command in pips for word in command.args)
    named += [(word.place, _WHEELS.search(word.text), "wheels for CUDA") for word in words]
    for place, match, subject in named:
        if match and (int(match[1]), int(match[2])) < OLDEST:
            yield Hit(place, f"{subject} {match[1]}.{match[2]}")


@rule(
    "prebuilt-engine-on-sm120", WARNING, "F-001",
    title="A ready-made ktransformers on a Blackwell card",
    why="Its kernels were compiled for sm_75, sm_86 and sm_89: no kernel image is available for "
    "execution on the device.",
    fix="build kt-kernel from source with CPUINFER_CUDA_ARCHS=120",
    needs="cards of compute 12.0",
)  # fmt: skip
def prebuilt(unit: Unit, facts: Facts) -> Iterator[Hit]:
    words = (word for command in unit.commands for word in command.args)
    if not vocabulary.for_sm120(unit, facts) and not any(
        "sm_120" in argument.text for argument in words
    ):
        return
    for word in vocabulary.pips(unit):
        if re.fullmatch(r"ktransformers(?:\[.*\])?(?:[=<>~!].*)?", word.text):
            yield Hit(word.place, f"pip install {word.text}")


@rule(
    "gvisor-with-gpu", ERROR, "F-004",
    title="gVisor in front of a GPU",
    why="runsc does not pass /dev/nvidia* through: the container starts and sees no card.",
    fix="the standard runtime for what computes; gVisor for code that is not trusted",
)  # fmt: skip
def gvisor(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for container in unit.containers:
        if container.runtime not in ("runsc", "gvisor", "io.containerd.runsc.v1"):
            continue
        if container.gpus is not None or _sees_gpus(container):
            place = container.runtime_place or container.place
            yield Hit(
                place, f"{container.name} asks for a GPU under the runtime {container.runtime}"
            )


def _sees_gpus(container: Container) -> bool:
    names = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    return any(v.name in names and v.value not in ("", "none", "void", "-1") for v in container.env)


def _asymmetric(unit: Unit, facts: Facts) -> bool | None:
    return facts.asymmetric


@rule(
    "tensor-parallel-asymmetric-cards", ERROR, "F-002 S-003",
    title="Tensor parallelism over cards of different size",
    why="It cuts every matrix in equal parts: the smaller card decides. On 96 GB beside 32 GB it "
    "was 40 % slower, where it fitted at all.",
    fix="a pipeline split by memory: llama.cpp with --tensor-split 75,25, or "
    "--pipeline-parallel-size",
    needs="the memory of every card", when=_asymmetric,
)  # fmt: skip
def tensor_parallel(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        name = vocabulary.engine(command)
        if name in ("sglang", "vllm"):
            options = ("--tensor-parallel-size", "--tp-size")
            for value, place, spelling in vocabulary.given(unit, command, *options):
                if value.isdecimal() and int(value) > 1:
                    yield Hit(place, f"{spelling} {value}")
        elif name == "llama":
            for value, place, _ in vocabulary.given(unit, command, "--split-mode"):
                if value in ("row", "tensor"):
                    yield Hit(place, f"--split-mode {value}", WARNING)


@rule(
    "split-mode-graph-moe", WARNING, "F-024 F-002",
    title="Split mode graph for an architecture that it may not have",
    why="ik_llama.cpp splits the graph of the architectures that it lists (in August 2026 31, with "
    "most mixtures of experts; DeepSeek only since then). For any other, and in a build before its "
    "own, it changes to `layer` by itself, whose buffers (100 GB on a card of 96) may not fit.",
    fix="its log says whether it fell back; --split-mode layer with --tensor-split is sure",
)  # fmt: skip
def split_graph(unit: Unit, facts: Facts) -> Iterator[Hit]:
    seen = set()
    for command in unit.commands:
        if vocabulary.engine(command) not in ("llama", ""):
            continue
        for value, place, spelling in vocabulary.given(unit, command, "--split-mode"):
            if value == "graph" and place not in seen:
                seen.add(place)
                what = f"{spelling}=graph" if spelling.isupper() else "--split-mode graph"
                yield from _graph(vocabulary.model_name(unit, command), Hit(place, what))
    for variable in unit.variables:
        if (variable.name, variable.value) == (_SPLIT_MODE, "graph") and variable.place not in seen:
            near = [v.value for v in unit.variables
                    if v.name == "LLAMA_ARG_MODEL" and v.scope == variable.scope]  # fmt: skip
            yield from _graph(near[0] if near else "", Hit(variable.place, f"{_SPLIT_MODE}=graph"))


def _graph(model: str, hit: Hit) -> Iterator[Hit]:
    """The architecture stands in the file; here it is known by the model's name alone."""
    name = model.rsplit("/", 1)[-1]
    listed = vocabulary.splits_graph(name)
    listed = vocabulary.splits_graph(model) if listed is None else listed
    if listed is False:
        yield Hit(hit.place, f"{hit.what} for {name}, whose architecture is not on its list")
    elif listed is None:
        of = f"whether {name} has" if name else "which models have"
        yield Hit(hit.place, f"{hit.what}; {of} an architecture of its list is not known", INFO)
    elif vocabulary.is_latent(name) or vocabulary.is_latent(model):
        yield Hit(hit.place, f"{hit.what} for {name}: only builds since August 2026 have it", INFO)


@rule(
    "dynamo-single-node", WARNING, "F-025",
    title="NVIDIA Dynamo on one machine with unequal cards",
    why="It plans for fleets of equal nodes: with one machine there is nothing to disaggregate.",
    fix="llama.cpp on a single node",
    needs="the memory of every card", when=_asymmetric,
)  # fmt: skip
def dynamo(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for image in unit.images:
        if "ai-dynamo" in image.ref:
            yield Hit(image.place, image.ref)
    for command in unit.commands:
        if command.name == "dynamo" or vocabulary.module(command).startswith("dynamo."):
            yield Hit(command.place, command.line)
        for word in vocabulary.pip_words(command):
            if word.text.startswith("ai-dynamo"):
                yield Hit(word.place, f"pip install {word.text}")


@rule(
    "memgraph-avx512-on-zen5", ERROR, "F-010",
    title="Memgraph on a Zen 5 CPU with AVX-512 on",
    why="glibc's string routines end in a general protection fault there: exit 139, again and "
    "again. Two of the five flags were not enough.",
    fix="GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ",
    needs="the CPU's name",
)  # fmt: skip
def memgraph(unit: Unit, facts: Facts) -> Iterator[Hit]:
    if facts.zen5 is False:
        return
    for container in unit.containers:
        if not container.image.removeprefix("docker.io/").startswith("memgraph/memgraph"):
            continue
        given = [v for v in container.env if v.name == "GLIBC_TUNABLES"]
        off = given[0].value if given else ""
        lacks = [flag for flag in _FLAGS if f"-{flag}" not in re.split("[,=]", off)]
        place = given[0].place if given else container.place
        if lacks:
            defect = "without GLIBC_TUNABLES" if not given else f"does not switch off {lacks[0]}"
            yield Hit(
                place, f"{container.name}: {container.image} {defect}", None if facts.zen5 else INFO
            )
        for mount in container.mounts:
            if mount.text.split(":")[1:2] == ["/etc/memgraph"]:
                words = f"{container.name}: a mount over /etc/memgraph hides its configuration"
                yield Hit(mount.place, words, WARNING, "leave the mount out")
