"""Whether a command line loads the weights that are judged, or others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from console.checks.preflight import Finding, Level
from console.checks.preflight.compatibility import ENGINES, Loader, speaks_gguf
from console.common.options.command_line import given, own_words, value_of
from console.common.options.table import Table, table
from console.common.text import one_line
from console.models.hub.checkpoint import WeightSet
from console.models.hub.listing import Listing

ANOTHER = "another model"
USUAL = "q4_k_m"
"""What -hf takes of a repository where no quantization is named and it has that."""
_REPO = re.compile(r"[\w.-]+/[\w.-]+")


def another_model(loader: Loader, listing: Listing, chosen: WeightSet) -> list[Finding]:
    """What says that the engine's own options name other weights than those that are judged. A
    baseline's flags name the baseline's, whatever is asked about."""
    if loader.own:
        return []
    gguf = speaks_gguf(loader, chosen.format)
    message = next((_of_llama if gguf else _of_python)(loader, listing, chosen), "")
    if not message:
        return []
    return [Finding(Level.UNKNOWN, ANOTHER, one_line(message, 240), "ask about what it loads")]


def _of_llama(loader: Loader, listing: Listing, chosen: WeightSet) -> Iterator[str]:
    options = table(ENGINES[loader.engine or "llama.cpp"].options)

    def value(name: str) -> str:
        return value_of(loader.args, name, options, loader.env) or ""

    names = {file.path for file in chosen.files}
    yield from _of_hub(value("--hf-repo"), value("--hf-file"), listing, chosen)
    if docker := value("--docker-repo"):
        yield f"the command loads {one_line(docker, 60)} (--docker-repo), whatever that holds"
    url = value("--model-url")
    if url and listing.commit and not _is_of(url, listing, names):
        shown = one_line(url.partition("?")[0], 100)
        yield f"the command loads {shown} (--model-url), which is not judged here"
    model = value("--model")
    if model and not (value("--hf-repo") or url):
        yield from _of_files(model, _times(loader, "--model", options), listing, names)


def _of_hub(repo: str, file: str, listing: Listing, chosen: WeightSet) -> Iterator[str]:
    """A repository with its quantization, and a file of it."""
    name, _, tag = repo.partition(":")
    if repo and listing.commit and name.lower() != listing.repo.lower():
        yield f"the command loads {one_line(repo, 60)} (--hf-repo), which is not {listing.repo}"
    elif file and file not in {weight_file.path for weight_file in chosen.files}:
        yield f"the command loads {one_line(file, 60)} (--hf-file), which is not judged here"
    elif repo and listing.commit and not file and chosen.quantization:
        usual = any(USUAL in weight_file.path.lower() for weight_file in listing.files)
        taken = (tag or (USUAL if usual else "")).lower()
        if taken and taken not in (chosen.quantization.lower(), "latest"):
            how = f"the command loads {taken.upper()} of {listing.repo} (--hf-repo)"
            yield f"{how}, and {chosen.quantization} is judged"


def _is_of(url: str, listing: Listing, names: set[str]) -> bool:
    """Whether an address is that of a file that is judged."""
    path = unquote(urlsplit(url).path)
    repo, _, rest = path.strip("/").partition("/resolve/")
    return repo.lower() == listing.repo.lower() and rest.partition("/")[2] in names


def _of_files(model: str, times: int, listing: Listing, names: set[str]) -> Iterator[str]:
    """A path. Where it is given twice, the last one counts; where it lies here, it can be seen
    whether it is what is judged. What a container calls a file tells nothing."""
    same = PurePosixPath(model).name in {PurePosixPath(name).name for name in names}
    if times > 1 and not same:
        yield f"the command gives --model {times} times, and loads the last, {one_line(model, 80)}"
    if listing.commit or not Path(model).is_absolute() or not os.path.isfile(model):
        return
    own = {os.path.realpath(Path(listing.repo) / name) for name in names}
    if os.path.realpath(model) not in own:
        yield f"the command loads {one_line(model, 100)} (--model), which is not judged here"


def _of_python(loader: Loader, listing: Listing, chosen: WeightSet) -> Iterator[str]:
    """vLLM and SGLang: a repository or a directory, by an option or as the word beside them."""
    options = table(ENGINES[loader.engine or "sglang"].options)
    words = own_words(loader.args) or []
    beside = words[0] if words and words[0][:1] != "-" else ""
    name = "--model" if options.option("--model-path") is None else "--model-path"
    model = value_of(loader.args, name, options, loader.env) or beside
    shown = f"the command loads {one_line(model, 80)}"
    if listing.commit and _REPO.fullmatch(model) and model.lower() != listing.repo.lower():
        yield f"{shown}, which is not {listing.repo}"
    here = not listing.commit and Path(model).is_absolute() and os.path.isdir(model)
    if here and os.path.realpath(model) != os.path.realpath(listing.repo):
        yield f"{shown}, which is not judged here"
    if _times(loader, name, options) > 1 and not _REPO.fullmatch(model):
        yield f"{shown}, the last of several {name}"


def _times(loader: Loader, name: str, options: Table) -> int:
    """How many different values the command line gives an option."""
    return len(
        {argument.value for argument in given(loader.args, options) if argument.name == name}
    )
