"""What a quality step means on this site: which program compares which models on which text, what
that takes, and its plan lines."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from console.bench import perplexity
from console.bench.perplexity import TOOL
from console.checks.preflight.architecture import names
from console.common import paths
from console.common.errors import ConsoleError, InvalidFile, Problem
from console.common.files import read_bytes
from console.common.text import one_line, shown
from console.common.units import format_bytes, format_duration
from console.config.locate import shipped
from console.config.playbook.load import TITLE
from console.config.playbook.measuring_steps import QualityStep
from console.config.playbook.playbook import Playbook
from console.config.playbook.rules import step_locs
from console.config.playbook.steps import Step
from console.config.site.site import Site
from console.config.tasks import load_tasks
from console.config.yaml import Document, parse
from console.host.machine import space
from console.models.gguf.header import Header
from console.models.gguf.read import read_header
from console.runner.prepare import tuning
from console.runtime.spec import ContainerSpec, ExistingContainer, Mount, ServiceSpec

TEXT = "quality.txt"
"""Our own text, in the directory of the playbooks."""
INSIDE = "/omni-quality"
"""Where a container finds the files that its service does not mount."""
ROOM = 1 << 30
"""Bytes that stay free on the disk of the log-probabilities."""
CACHE = frozenset({"-ctk", "--cache-type-k", "-ctv", "--cache-type-v"})
"""What makes answers worse, as another model does: the candidate's alone."""
SHARED = CACHE | frozenset({
    "-ngl", "--gpu-layers", "--n-gpu-layers", "-ot", "--override-tensor", "-ts", "--tensor-split",
    "-sm", "--split-mode", "-mg", "--main-gpu", "-dev", "--device", "-ncmoe", "--n-cpu-moe",
    "-cmoe", "--cpu-moe", "-t", "--threads", "-tb", "--threads-batch", "-ub", "--ubatch-size",
    "-fa", "--flash-attn", "--numa", "-fit", "--fit", "--no-mmap", "--mlock", "-nkvo",
    "--no-kv-offload", "-fmoe", "-rtr", "-mla", "-amb",
})  # fmt: skip
"""Flags that a server and llama-perplexity have in common, and that decide where a model lies and
how it is computed."""
_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Trial:
    """A comparison of two models by one build, or of two builds on one model (`builds`): then the
    baseline's own build, with its own flags, makes the log-probabilities. A program is empty if
    only the image knows it."""

    program: tuple[str, ...]
    model: Path
    base: Path
    text: Path
    chunks: int
    ctx: int
    flags: tuple[str, ...]
    base_program: tuple[str, ...]
    base_flags: tuple[str, ...]
    builds: bool = False
    image: str = ""
    """What the build that makes the log-probabilities comes in; "" for a program on this host."""

    @property
    def sealed(self) -> Path:
        """Where the log-probabilities of this model and text by this build are kept, whoever asks
        for them."""
        files = tuning.files_named(None, ("", str(self.base)), {})
        last = self.base_program[-1:] if not self.image else ()
        build = [self.image, tuning.files_named(None, last, {})]
        text = hashlib.sha256(read_bytes(self.text)).hexdigest()
        setting = json.dumps([files, build, text, self.chunks, self.ctx])
        return paths.quality_dir() / f"{hashlib.sha256(setting.encode()).hexdigest()[:32]}.logits"


def trial(quality: QualityStep, spec: ServiceSpec, site: Site, folder: Path) -> Trial:
    """The comparison of a step; `folder`: of its playbook. Raises ValueError in words."""
    argv = tuning.argv_of(spec.runs) or ()
    models = {
        "model": _file(quality.model, spec, folder) or tuning.model_of(spec),
        "base": _file(quality.base, spec, folder) or _baseline_model(site),
    }
    for key, path in models.items():
        if path is None:
            whose = "the baseline" if key == "base" else spec.name
            raise ValueError(f"the command line of {whose} names no GGUF file: {key}: PATH")
    model, base = models["model"], models["base"]
    assert model is not None
    assert base is not None
    program = tuple(quality.program) or program_of(_words(spec))
    if not program and not isinstance(spec.runs, ContainerSpec):
        raise ValueError(f"{spec.name} runs no program of llama.cpp: program: [PATH of {TOOL}]")
    flags = _picked(argv, SHARED.__contains__) if quality.args is None else tuple(quality.args)
    text = Path(folder, os.path.expanduser(quality.text)) if quality.text else shipped() / TEXT
    base_flags = _picked(flags, lambda name: name not in CACHE)
    made = Trial(
        program, model, base, text, quality.chunks, quality.ctx, flags, program, base_flags,
        image=_image(spec),
    )  # fmt: skip
    serves = site.baseline_spec()
    same = model.resolve() == base.resolve() and spec.name != "baseline" and not quality.program
    known = bool(program_of(_words(serves))) or isinstance(serves.runs, ExistingContainer)
    return made_by(made, serves) if same and known else made


def made_by(made: Trial, serves: ServiceSpec) -> Trial:
    """The comparison with the baseline's own build; what its image and flags are is known once its
    container was looked at (`tuning.resolved`)."""
    words = _words(serves)
    flags = _picked(words, SHARED.__contains__)
    return replace(
        made, base_program=program_of(words), base_flags=flags, builds=True, image=_image(serves)
    )


def _image(spec: ServiceSpec) -> str:
    if isinstance(spec.runs, ExistingContainer):
        return f"container {spec.runs.name}"
    return spec.runs.image if isinstance(spec.runs, ContainerSpec) else ""


def _baseline_model(site: Site) -> Path | None:
    """The baseline's GGUF: from its command line, else the first that the site file names."""
    named = (site.base / model for model in site.model.baseline.models if model.endswith(".gguf"))
    return tuning.model_of(site.baseline_spec()) or next(named, None)


def _file(given: str, spec: ServiceSpec, folder: Path) -> Path | None:
    """A model's file on this machine, also by its name in the service's container."""
    if not given:
        return None
    path = Path(folder, os.path.expanduser(given))
    if isinstance(spec.runs, ContainerSpec) and not path.exists():
        path = tuning.on_host(spec.runs, given) or path
    return path


def _words(spec: ServiceSpec) -> tuple[str, ...]:
    runs = spec.runs
    if isinstance(runs, ContainerSpec):
        return (*runs.entrypoint, *runs.command)
    return tuning.argv_of(runs) or ()


def program_of(words: Sequence[str]) -> tuple[str, ...]:
    """llama-perplexity beside the program of llama.cpp that a command line runs, with what stands
    before it, like numactl; empty if it runs none."""
    call = names.call(words, "", 0)
    if call is None or not call.program:
        return ()
    *before, last = call.program
    beside = os.path.join(os.path.dirname(last), TOOL) if "/" in last else TOOL
    return (*before, beside)


def _picked(argv: Sequence[str], wanted: Callable[[str], bool]) -> tuple[str, ...]:
    """The flags whose names are wanted, each with the words up to the next flag; -1 is none."""
    flags: list[str] = []
    taken = False
    for word in argv:
        if _FLAG.match(word):
            flag = word.partition("=")[0]
            taken = wanted(flag.replace("_", "-") if flag.startswith("--") else flag)
        if taken:
            flags.append(word)
    return tuple(flags)


def placed(runs: ContainerSpec, path: Path, role: str) -> tuple[str, Mount | None]:
    """The name of a file in a container like the service's, and the mount that it needs for it."""
    for mount in runs.mounts:
        if path.is_relative_to(mount.source):
            return str(Path(mount.target, path.relative_to(mount.source))), None
    target = f"{INSIDE}/{role}"
    return f"{target}/{path.name}", Mount(str(path.parent), target)


def base_arguments(made: Trial, base: str, text: str, sealed: str) -> list[str]:
    """What writes the log-probabilities of the baseline's model."""
    size = perplexity.arguments(made.chunks, made.ctx)
    return ["-m", base, *made.base_flags, *size, "-f", text, "--kl-divergence-base", sealed]


def arguments(made: Trial, model: str, sealed: str) -> list[str]:
    """What compares a model with them; the text is in the sealed file."""
    size = perplexity.arguments(made.chunks, made.ctx)
    known = ["--kl-divergence", "--kl-divergence-base", sealed]
    return ["-m", model, *made.flags, *size, *known]


def header_of(path: Path) -> Header | None:
    """A model's header; None if it cannot be read."""
    try:
        return read_header(path).header
    except (ConsoleError, OSError, ValueError):
        return None


def needs(made: Trial) -> int | None:
    """Bytes that the log-probabilities take; 0 if they are sealed already, None if not known."""
    if perplexity.read_sealed(made.sealed) is not None:
        return 0
    header = header_of(made.base)
    vocabulary = perplexity.vocabulary_of(header) if header is not None else None
    if vocabulary is None:
        return None
    return perplexity.logits_bytes(vocabulary, made.chunks, made.ctx)


def no_room(made: Trial) -> str:
    """Why the disk does not hold the log-probabilities, in words; "" if it does."""
    size, place = needs(made), paths.quality_dir()
    try:
        free = space(place).free
    except OSError as error:
        return f"{place}: {error.strerror}"
    if not size or free >= size + ROOM:
        return ""
    return (
        f"the log-probabilities of {one_line(made.base.name)} take {format_bytes(size)}, and "
        f"{format_bytes(free)} are free at {place}, of which {format_bytes(ROOM)} stay free"
    )


ROOM_HINT = "fewer chunks, a smaller ctx, or XDG_CACHE_HOME on a larger disk"


def problems(
    document: Document, playbook: Playbook, known: Mapping[str, ServiceSpec], site: Site
) -> Iterator[Problem]:
    """Quality steps of which nothing is known to compare, and those beside what fills the card."""
    up: set[str] = set()
    for loc, step in step_locs(playbook.model):
        if not step.when:
            continue
        up |= {step.content.starts} - {""}
        up.discard(step.content.stops)
        if step.cutover is not None and not step.cutover.stays:
            up.clear()
        quality = step.quality
        if quality is None or not quality.loads:
            continue
        here = (*loc, "quality", "service")
        full = [name for name in sorted(up) if name == quality.service or known[name].exclusive]
        if full and not quality.beside:
            what = f"'{full[0]}' is up by then, and {TOOL} loads the models itself"
            yield document.problem(here, what, f"service: {{stop: {full[0]}}} before it")
        try:
            trial(quality, service_of(quality, known, site), site, playbook.base)
        except ValueError as error:
            if not playbook.missing:
                yield document.problem(here, str(error))


def service_of(quality: QualityStep, known: Mapping[str, ServiceSpec], site: Site) -> ServiceSpec:
    return known.get(quality.service) or site.baseline_spec()


def takes_the_card(quality: QualityStep, known: Mapping[str, ServiceSpec], site: Site) -> bool:
    """Whether the models need the memory that the baseline has: they do where there are cards."""
    fills = service_of(quality, known, site).exclusive or bool(site.model.gpus)
    return quality.loads and fills and not quality.beside


def refused(
    playbook: Playbook, site: Site, step: Step, maker: Callable[[Path], Step | None]
) -> Iterator[Problem]:
    """What keeps a quality step from beginning, except for files that an earlier step may make."""
    quality = step.quality
    assert quality is not None
    document = parse(playbook.text, str(playbook.path), TITLE)
    loc = next(loc for loc, candidate in step_locs(playbook.model) if candidate.id == step.id)
    spec = service_of(quality, {**site.service_specs(), **playbook.services()}, site)
    for key, what, expected, hint, path in unready(quality, spec, site, playbook):
        if maker(path) is None:
            yield document.problem((*loc, "quality", key), what, expected, hint)


def unready(
    quality: QualityStep, spec: ServiceSpec, site: Site, playbook: Playbook
) -> Iterator[tuple[str, str, str, str, Path]]:
    """What is not there or does not fit: the key, what is wrong, what is expected, a hint, and the
    path that it is about."""
    if quality.tasks:
        path = Path(playbook.base, os.path.expanduser(quality.tasks))
        try:
            load_tasks(path)
        except InvalidFile as error:
            first = error.problems[0] if error.problems else None
            what = f"{path.name}:{first.line}: {first.what}" if first else str(error)
            yield "tasks", what, first.expected if first else "", error.hint, path
        return
    try:
        made = trial(quality, spec, site, playbook.base)
    except ValueError:
        return  # reported with the plan
    there = True
    last = made.base_program[-1] if made.builds and not made.image else ""
    if last and shutil.which(last) is None:
        what = f"there is no {one_line(last, 300)}, with which the baseline's build is compared"
        yield "service", what, "", f"build {TOOL} beside the baseline's program", Path(last)
    for key, path in (("model", made.model), ("base", made.base), ("text", made.text)):
        if not path.is_file():
            there = False
            what = f"there is no {one_line(str(path), 300)}"
            yield key, what, "a file that is there", "", path
    if there and (why := no_room(made)):
        yield "chunks", why, "", ROOM_HINT, paths.quality_dir()


def words(
    quality: QualityStep, known: Mapping[str, ServiceSpec], site: Site, folder: Path
) -> Iterator[str]:
    """A quality step in the plan, one line per effect."""
    if quality.tasks:
        yield f"asks {quality.service} the tasks of {one_line(quality.tasks)}, at temperature 0"
        return
    spec = service_of(quality, known, site)
    try:
        made = trial(quality, spec, site, folder)
    except ValueError:
        return  # reported as a problem of the file
    model, base = one_line(made.model.name), one_line(made.base.name)
    what = f"{model} by this build with the same by the baseline's" if made.builds else (
        f"{model} with {base}, the baseline's,"
    )  # fmt: skip
    yield f"compares {what} on {made.chunks} x {made.ctx} tokens of {one_line(made.text.name)}"
    where, inner = "", str(made.model)
    if isinstance(spec.runs, ContainerSpec):
        where = f"in a one-off container of {one_line(spec.runs.image)} "
        inner, _ = placed(spec.runs, made.model, "model")
    program = made.program or (TOOL,)
    yield f"{where}$ {shown((*program, *arguments(made, inner, 'LOG-PROBABILITIES')))}"
    yield "loads each model itself, one after the other, and unloads it again"
    yield from _takes(made)
    if quality.beside:
        yield "beside the baseline, which goes on serving"


def _takes(made: Trial) -> Iterator[str]:
    size, place = needs(made), shlex.quote(str(paths.quality_dir()))
    if size == 0:
        yield f"the log-probabilities of {one_line(made.base.name)} are sealed already in {place}"
    else:
        much = "log-probabilities" if size is None else f"{format_bytes(size)} of log-probabilities"
        yield f"seals {much} of {one_line(made.base.name)} in {place}, for every later comparison"
    cores = os.cpu_count() or 1
    files = [made.model] if size == 0 else [made.base, made.model]
    headers = [header for path in files if (header := header_of(path)) is not None]
    if len(headers) == len(files):
        took = sum(perplexity.seconds(header, made.chunks, made.ctx, cores) for header in headers)
        yield f"about {format_duration(took)} on {cores} processors alone, less with cards"
