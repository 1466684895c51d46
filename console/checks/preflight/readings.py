"""Reads what a checkpoint's listing, configuration and headers tell of its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from console.common.errors import Exit
from console.models.gguf.byte_source import GgufError
from console.models.gguf.read import HeaderCache, Reading, merged, read_shards
from console.models.hub import local_files as here
from console.models.hub import model_config, settings
from console.models.hub.checkpoint import Contents, WeightSet
from console.models.hub.checkpoint import read as read_contents
from console.models.hub.listing import Listing, RemoteFile, look_up
from console.models.hub.model_config import Index, fetch_config, fetch_index
from console.models.hub.reference import RepoReference, parse, shard
from console.models.safetensors.read import File, StoredBytes
from console.models.safetensors.read import read as read_stored
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.loader_plan import LlamaPlan, LoaderPlan
from console.models.sizing.model_facts import BadFacts, ModelFacts

READ_S = 120.0
"""Seconds for the headers of a whole split set."""


def listing_of(what: str) -> Listing:
    """The listing of what was typed: from the hub, pinned to a commit, or from this machine."""
    reference = parse(what)
    if isinstance(reference, Path):
        return here.local(reference)
    return look_up(reference.repo, reference.revision or "main")


def within(what: str) -> tuple[str, ...]:
    """Patterns for the files behind an address of a directory or file in a repository; one shard
    stands for its set."""
    reference = parse(what)
    path = reference.path if isinstance(reference, RepoReference) else ""
    if not path:
        return ()
    if path.rpartition("/")[2].count(".") == 0:
        return (f"{path}/*",)
    part = shard(path)
    return (path,) if part is None else (f"{part[0]}-*-of-*{Path(path).suffix}", "*.json")


@dataclass(frozen=True, slots=True)
class Described:
    """config.json and the index of a repository, read once; None where there is none."""

    config: Mapping[str, Any] | None = None
    index: Index | None = None


def described(listing: Listing) -> Described:
    """What a repository that may be read, or a directory, says of itself. Raises HubError."""
    if listing.refused is not None:
        return Described()
    if not listing.commit:
        return Described(_config(listing))
    return Described(fetch_config(listing), fetch_index(listing))


def contents_of(
    listing: Listing,
    include: Sequence[str],
    exclude: Sequence[str],
    about: Described | None = None,
) -> Contents:
    """The sets of weights, labelled from config.json if that is readable, in a repository as in a
    directory: what either is called proves nothing."""
    about = about or described(listing)
    return read_contents(listing, include, exclude, config=about.config, index=about.index)


def facts_of(
    listing: Listing, chosen: WeightSet, readings: Sequence[Reading], about: Described
) -> ModelFacts:
    """The model's facts: from the GGUF headers of all shards, else from config.json and the headers
    of safetensors. Raises BadFacts, HubError, and GgufError for a header that no loader takes."""
    if readings:
        return from_gguf(merged([reading.header for reading in readings]))
    if about.config is None:
        raise BadFacts("there is no config.json", "safetensors say nothing of the model's layers")
    if chosen.size is None:
        raise BadFacts("the size of a file is not known", chosen.line)
    stored, why = _stored(listing, chosen, about.index)
    return from_config(about.config, chosen.size, stored, why)


def with_draft(plan: LoaderPlan, *, inside: bool, of_service: bool = False) -> LoaderPlan:
    """The plan with the model that guesses ahead, where its GGUF lies here and can be read; what of
    the command line is then counted is not named any more. `inside`: paths are an image's;
    `of_service`: they begin at a directory of its own."""
    path = Path(plan.draft_file) if isinstance(plan, LlamaPlan) else Path()
    if not isinstance(plan, LlamaPlan) or inside or (of_service and not path.is_absolute()):
        return plan
    try:
        draft = _draft(str(path), path.stat().st_mtime_ns) if path.is_file() else None
    except (GgufError, BadFacts, OSError):
        return plan
    if draft is None:
        return plan
    rest = tuple(what for what in plan.uncounted if what not in plan.draft_words)
    return replace(plan, draft=draft, uncounted=rest)


@lru_cache(maxsize=4)
def _draft(path: str, changed: int) -> ModelFacts:
    """The facts of one GGUF of this machine. Raises GgufError, BadFacts."""
    return from_gguf(
        merged([reading.header for reading in read_shards([path], token="", deadline_s=READ_S)])
    )


def _stored(
    listing: Listing, chosen: WeightSet, index: Index | None
) -> tuple[StoredBytes | None, str]:
    """The bytes that the headers of a set tell, or why they were not to be had."""
    if not all(file.path.endswith(".safetensors") for file in chosen.files):
        return None, f"{chosen.format} has none"
    folder, sent = Path(listing.repo), settings.token() if listing.commit else ""
    files = [
        File(listing.url(f.path) if listing.commit else str(folder / f.path), f.path, f.size)
        for f in chosen.files
    ]
    try:
        return read_stored(files, index.shards if index else None, token=sent), ""
    except GgufError as error:
        if error.exit_code is Exit.NO_GO:
            raise
        return None, "; ".join(part for part in (str(error), error.detail) if part)


def shard_headers(listing: Listing, chosen: WeightSet) -> list[Reading]:
    """The headers of a set, in order, cached once they were read."""
    cache = HeaderCache()
    sent = settings.token() if listing.commit else ""
    keys = {f.path: _key(f) for f in chosen.files if f.sha256}
    kept = {path: cache.get(key) for path, key in keys.items()}
    wanted = [file for file in chosen.files if kept.get(file.path) is None]
    folder = Path(listing.repo)
    places = [listing.url(f.path) if listing.commit else str(folder / f.path) for f in wanted]
    fresh = read_shards(places, token=sent, deadline_s=READ_S)
    for file, reading in zip(wanted, fresh, strict=True):
        kept[file.path] = reading
        if file.path in keys and reading.file_bytes == file.size:
            cache.put(keys[file.path], reading)
    return [
        header_reading for file in chosen.files if (header_reading := kept[file.path]) is not None
    ]


def _key(file: RemoteFile) -> str:
    """Cache key of a header. It includes the endpoint, since a listing only claims the hash:
    headers from different endpoints are never mixed up."""
    return f"{settings.endpoint()} {file.size} {file.sha256}"


def _config(listing: Listing) -> Mapping[str, Any] | None:
    """config.json of a directory, with what hf_quant_config.json adds to it."""
    config = _local(listing, model_config.CONFIG)
    if config is None or model_config.quantization(config):
        return config
    beside = _local(listing, model_config.QUANTIZATION)
    return config if beside is None else model_config.with_quantization(config, beside)


def _local(listing: Listing, name: str) -> dict[str, Any] | None:
    path = Path(listing.repo) / name
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return model_config.parse(name, file.read(model_config.CONFIG_LIMIT))
