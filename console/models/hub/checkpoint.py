"""Which checkpoints a listing holds: formats, variants, complete or not, their true bytes. Pure.

A repository often holds the same weights more than once: GGUF in several quantizations, or a
consolidated copy beside the shards. Each is a set of its own here, and sets are never added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from console.common.text import one_line
from console.common.units import both_units, plural
from console.models.hub import model_config, reference
from console.models.hub.errors import HubError, RepositoryEmpty
from console.models.hub.listing import Listing, RemoteFile, some, total
from console.models.hub.model_config import INDEX, Index

TOLERANCE = 0.01
"""Headers and padding make files a little larger than the tensors an index counts."""


SHOWN = 12
"""Most sets listed when one has to be chosen."""


class Format(StrEnum):
    """In order of preference if one directory holds the same weights in several."""

    SAFETENSORS = "safetensors"
    CONSOLIDATED = "consolidated"
    PYTORCH = "PyTorch .bin"
    GGUF = "GGUF"


@dataclass(frozen=True, slots=True)
class WeightSet:
    """One loadable set of weight files. `stem` is its path without the shard number.

    `shards` is the number its names announce, 0 for an unsplit set. `missing` are runs of numbers
    that the repository lacks, `left_out` those that the patterns exclude, `absent` files that only
    the index names. `origin` is the source of `quantization`.
    """

    format: Format
    stem: str
    files: tuple[RemoteFile, ...]
    quantization: str = ""
    origin: str = ""
    shards: int = 0
    missing: tuple[range, ...] = ()
    left_out: tuple[range, ...] = ()
    absent: tuple[str, ...] = ()
    indexed: bool = False

    @property
    def size(self) -> int | None:
        """Bytes on disk; None while one file's size is unknown."""
        return total(self.files)

    @property
    def whole(self) -> bool:
        return not (self.missing or self.left_out or self.absent)

    @property
    def gap(self) -> str:
        """What is missing, in words; "" for a complete set."""
        words = []
        if self.missing:
            words.append(
                f"the repository lacks shard {reference.range_words(self.missing)} of {self.shards}"
            )
        if self.left_out:
            which = reference.range_words(self.left_out)
            words.append(f"the patterns leave out shard {which} of {self.shards}")
        if self.absent:
            words.append(f"the index names files that are not there: {some(self.absent)}")
        return "; ".join(words)

    @property
    def label(self) -> str:
        return f"{self.format} {self.quantization}".rstrip()

    @property
    def line(self) -> str:
        """`GGUF Q4_K_M (by its name, not proven): 9 files, 376.7 GiB (404.4 GB)`"""
        origin = f" ({self.origin})" if self.quantization and self.origin else ""
        words = f"{self.label}{origin}: {plural(len(self.files), 'file')}, {both_units(self.size)}"
        return f"{words}; incomplete: {self.gap}" if not self.whole else words


@dataclass(frozen=True, slots=True)
class Contents:
    """What a download with these patterns brings, and the sets of weights in it."""

    listing: Listing
    files: tuple[RemoteFile, ...]
    sets: tuple[WeightSet, ...]
    beside: tuple[RemoteFile, ...] = ()
    notes: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """Bytes of all files taken, weights or not; None while one size is unknown."""
        return total(self.files)

    def lines(self) -> list[str]:
        taken = f"{len(self.files)} of {len(self.listing.files)} files, {both_units(self.size)}"
        return [taken, *(weight_set.line for weight_set in self.sets), *self.notes]

    def choose(self, name: str = "") -> WeightSet:
        """The set of that quantization or stem; without a name the only one, or the preferred
        format of one directory. Raises RepositoryEmpty without weights, HubError for a choice."""
        if not self.sets:
            held = some(tuple(file.path for file in self.files))
            cut = any(reference.CUT.search(file.path) for file in self.files)
            hint = _CUT_HINT if cut else _HINT
            raise RepositoryEmpty(f"{self.listing.repo} holds no weights here", held, hint)
        wanted = name.lower()
        matches = [
            weight_set for weight_set in self.sets
            if not wanted or wanted in (weight_set.quantization.lower(), weight_set.stem.lower())
        ]  # fmt: skip
        best = _preferred(matches)
        if best is not None:
            return best
        title = f"{self.listing.repo} holds several checkpoints" if matches else (
            f"{self.listing.repo} holds no {one_line(name, 60)}"
        )  # fmt: skip
        sets = matches or self.sets
        detail = "\n".join(
            f"{one_line(weight_set.stem, 80)}: {weight_set.line}" for weight_set in sets[:SHOWN]
        )
        if len(sets) > SHOWN:
            detail += f"\nand {len(sets) - SHOWN} more"
        raise HubError(title, detail, "name one with an include pattern, like '*Q4_K_M*'")


def _preferred(sets: Sequence[WeightSet]) -> WeightSet | None:
    """The one set, or the one of the best format in the one outermost directory."""
    if len(sets) > 1 and all(weight_set.format is not Format.GGUF for weight_set in sets):
        depth = min(_depth(weight_set) for weight_set in sets)
        outer = [weight_set for weight_set in sets if _depth(weight_set) == depth]
        if len({_folder(weight_set.stem) for weight_set in outer}) == 1:
            sets = [weight_set for weight_set in outer if weight_set.format is outer[0].format]
            sets = [weight_set for weight_set in sets if weight_set.indexed] or sets
    return sets[0] if len(sets) == 1 else None


_CUT_HINT = "files that were cut by hand: download all, join them with `cat`, and check that file"
_HINT = "weights are .gguf, .safetensors, .bin or consolidated files"


def read(
    listing: Listing,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    config: Mapping[str, Any] | None = None,
    index: Index | None = None,
) -> Contents:
    """The sets in a listing that the patterns take, as `hf download` would take them.

    `config` tells the quantization of a safetensors set, `index` its files. Raises RepositoryEmpty
    if the patterns match nothing.
    """
    files = tuple(matching(listing.files, include, exclude))
    if not files:
        held = (
            some(tuple(weight_set.label for weight_set in read(listing).sets), 8)
            if listing.files
            else ""
        )
        patterns = ", ".join(one_line(pattern, 60) for pattern in (*include, *exclude))
        detail = f"patterns: {patterns}; the repository holds {held or 'no weights'}"
        hint = "a pattern is for the whole path: '*Q4_K_M*' or 'Q4_K_M/*'"
        raise RepositoryEmpty(f"no file of {listing.repo} matches", detail, hint)
    taken = {file.path for file in files}
    sets = [
        _labelled(weight_set, listing.repo, config)
        for weight_set in _sets(listing.files, taken, index)
        if weight_set.files
    ]
    order = list(Format)
    sets.sort(
        key=lambda weight_set: (
            order.index(weight_set.format),
            weight_set.size or 0,
            weight_set.stem,
        )
    )
    beside = tuple(file for file in files if _beside(file.path))
    notes = _notes(sets, beside, index, listing)
    return Contents(
        listing, files, tuple(sets), beside, tuple(notes), tuple(include), tuple(exclude)
    )


def matching(
    files: Iterable[RemoteFile], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Iterable[RemoteFile]:
    """Files whose whole path matches one of `include` (all, if none) and none of `exclude`."""
    wanted, unwanted = [_glob(p) for p in include], [_glob(p) for p in exclude]
    for file in files:
        if wanted and not any(fnmatchcase(file.path, pattern) for pattern in wanted):
            continue
        if not any(fnmatchcase(file.path, pattern) for pattern in unwanted):
            yield file


def _glob(pattern: str) -> str:
    return pattern + "*" if pattern.endswith("/") else pattern


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _depth(weight_set: WeightSet) -> int:
    return weight_set.stem.count("/")


def _beside(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    weights = name.endswith((".gguf", ".gguf_file", ".safetensors"))
    return weights and (bool(reference.sidecar(name)) or name.startswith("adapter_"))


def _format(path: str) -> Format | None:
    name = path.rpartition("/")[2].lower()
    if _beside(path):
        return None
    if name.endswith(".gguf"):
        return Format.GGUF
    if name.startswith("consolidated") and name.endswith((".safetensors", ".pth", ".pt")):
        return Format.CONSOLIDATED
    if name.endswith(".safetensors"):
        return Format.SAFETENSORS
    if name.startswith(("pytorch_model", "model")) and name.endswith(".bin"):
        return Format.PYTORCH
    return None


def _sets(files: Iterable[RemoteFile], taken: set[str], index: Index | None) -> Iterable[WeightSet]:
    """Group weight files; a shard set by its stem and count, others by their directory."""
    split: dict[tuple[Format, str, int], dict[int, RemoteFile]] = {}
    loose: dict[tuple[Format, str], list[RemoteFile]] = {}
    listed = {file.path: file for file in files}
    if index is not None:
        here = tuple(listed[path] for path in sorted(index.files & listed.keys() & taken))
        unread = len(index.files & listed.keys()) - len(here)
        absent = tuple(sorted(index.files - listed.keys()))
        yield _by_index(here, absent, unread, index)
    for file in listed.values():
        kind = _format(file.path)
        if kind is None or (index is not None and file.path in index.files):
            continue
        part = reference.shard(file.path)
        if part is not None:
            split.setdefault((kind, part[0], part[2]), {})[part[1]] = file
        elif kind is Format.GGUF:
            loose[kind, file.path] = [file]
        else:
            loose.setdefault((kind, _folder(file.path)), []).append(file)
    for (kind, stem, count), parts in split.items():
        chosen = {number: file for number, file in parts.items() if file.path in taken}
        missing = reference.gaps(sorted(parts), count)
        left = reference.runs(sorted(parts.keys() - chosen.keys()))
        shards = tuple(file for _, file in sorted(chosen.items()))
        yield WeightSet(kind, stem, shards, shards=count, missing=missing, left_out=left)
    for (kind, _), group in loose.items():
        chosen_files = tuple(file for file in group if file.path in taken)
        yield WeightSet(kind, group[0].path.rpartition(".")[0], chosen_files)


def _by_index(
    here: tuple[RemoteFile, ...], absent: tuple[str, ...], unread: int, index: Index
) -> WeightSet:
    """The safetensors set that the index names; with shard numbers if its files have them."""
    parts = [part for part in map(reference.shard, sorted(index.files)) if part]
    count = parts[0][2] if parts else 0
    stem = parts[0][0] if parts else "model"
    numbers = {number for _, number, _ in parts}
    lacking = {part[1] for part in map(reference.shard, absent) if part}
    chosen = {part[1] for part in (reference.shard(file.path) for file in here) if part}
    left = reference.runs(sorted(numbers - chosen - lacking)) if unread else ()
    return WeightSet(
        Format.SAFETENSORS, stem, here, shards=count, left_out=left, absent=absent,
        missing=reference.runs(sorted(lacking)), indexed=True,
    )  # fmt: skip


def _labelled(weight_set: WeightSet, repo: str, config: Mapping[str, Any] | None) -> WeightSet:
    """The set with its quantization: proven by config.json, or only named."""
    if weight_set.format is Format.GGUF:
        return replace(
            weight_set, quantization=reference.gguf_quantization(weight_set.stem), origin=_NAMED
        )
    if config is not None and (quantization := model_config.describe(config)):
        return replace(weight_set, quantization=quantization, origin="by config.json")
    quantization = reference.worded_quantization(
        _folder(weight_set.stem)
    ) or reference.worded_quantization(repo)
    return replace(weight_set, quantization=quantization, origin=_NAMED if quantization else "")


_NAMED = "by its name, not proven"


def _notes(
    sets: Sequence[WeightSet],
    beside: Sequence[RemoteFile],
    index: Index | None,
    listing: Listing,
) -> Iterable[str]:
    by_folder: dict[str, list[WeightSet]] = {}
    for weight_set in sets:
        if weight_set.format is not Format.GGUF:
            by_folder.setdefault(_folder(weight_set.stem), []).append(weight_set)
    for folder, same in by_folder.items():
        if len(same) > 1:
            which = " and ".join(
                f"{duplicate.label} ({both_units(duplicate.size)})" for duplicate in same
            )
            where = f"in {folder}: " if folder else ""
            yield f"{where}{which} look like the same weights: counted once, one is enough"
    if beside:
        held = some(tuple(file.path for file in beside))
        yield f"beside the weights, not counted with them: {held}, {both_units(total(beside))}"
    if index is not None and index.total_size is not None:
        size = next(
            (sharded_set.size for sharded_set in sets if sharded_set.shards and sharded_set.whole),
            None,
        )
        off = None if size is None else size - index.total_size
        if off is not None and size and not 0 <= off <= TOLERANCE * size:
            yield (
                f"{INDEX} claims {both_units(index.total_size)}, its files hold "
                f"{both_units(size)}: the files count"
            )
    cut = [file.path for file in listing.files if reference.CUT.search(file.path)]
    if cut:
        held = some(tuple(cut))
        yield f"cut by hand, which no loader reads before `cat` has joined them: {held}"
    if listing.unknown:
        yield f"no size told for {some(listing.unknown)}"
