"""What is said of repositories and downloads, word for word: `make golden` writes it anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.common.units import both_units
from console.host.machine import Space
from console.models.hub import download, errors, local_files, model_config
from console.models.hub.checkpoint import read
from console.models.hub.errors import DiskShort, HubError
from console.models.hub.listing import RemoteFile
from console.models.hub.model_config import Index
from console.models.hub.progress import download_time, explain, rate, seconds_for
from console.models.hub.reference import BadReference, parse
from console.runner.executors.download import fetch
from tests.clock import FakeClock
from tests.hub.conftest import listing
from tests.hub.test_checkpoint import GB, shards
from tests.hub.test_config import NONE
from tests.hub.test_download import scripted
from tests.hub.test_here import HELD, write
from tests.hub.test_listing import ASKED, TROUBLES, refused
from tests.hub.test_reference import BAD
from tests.hub.test_said import SAID
from tests.testbed.hub import LocalHub


def test_amounts(snapshot: SnapshotAssertion) -> None:
    counts = (642 << 30, 688_900_000_000, 999, 1000, 999_960_000, 0, None)
    assert [both_units(count) for count in counts] == snapshot
    assert seconds_for(689_000_000_000, 57.3e6) == pytest.approx(12024, abs=1)
    times = [download_time(689_000_000_000, 57.3e6, "measured"), download_time(0, None)]
    times += [download_time(None, 1e6), download_time(5, None), download_time(5, 0.0)]
    assert [*times, rate(None), rate(57.3e6)] == snapshot


def test_references(snapshot: SnapshotAssertion) -> None:
    said = {}
    for text in BAD:
        with pytest.raises(BadReference) as caught:
            parse(text)
        said[text] = caught.value.lines()
    assert said == snapshot


def test_checkpoints(snapshot: SnapshotAssertion) -> None:
    lacking = [row for row in shards("m-Q4_K_M", 9) if row[0][9:14] not in ("00002", "00005")]
    both = [*shards("model", 2, suffix="safetensors"), ("consolidated.safetensors", 2 * GB)]
    named = frozenset(path for path, _ in shards("model", 2, suffix="safetensors"))
    fp8 = {"quantization_config": {"quant_method": "fp8"}}
    found = {
        "variants": read(listing(*shards("Q3_K_M/m-Q3_K_M", 2), ("m-Q8_0.gguf", 9 * GB),
                                 ("mmproj-f16.gguf", 7), ("README.md", 5))),
        "lacking": read(listing(*lacking)), "cut": read(listing(*shards("m", 3)), ["*-00002-*"]),
        "consolidated": read(listing(*both)), "config": read(listing(*both), config=fp8),
        "an index that lies": read(listing(*both), index=Index(named, 350 * GB)),
        "an index of more": read(listing(*both), index=Index(named | {"other.safetensors"})),
        "no size": read(listing(("m-00001-of-00002.gguf", 5), ("m-00002-of-00002.gguf", None))),
        "no weights": read(listing(("README.md", 1), ("tokenizer.model", 2), ("optimizer.bin", 3))),
    }  # fmt: skip
    said: dict[str, Any] = {}
    for name, one in found.items():
        said[name] = [one.lines(), one.notes, [each.gap for each in one.sets]]
        for asked in ("", "Q6_K"):
            try:
                one.choose(asked)
            except HubError as error:
                said[f"{name}, {asked}"] = error.lines()
    with pytest.raises(HubError) as caught:
        read(listing(("m-Q8_0.gguf", 1)), ["*Q4_K_M*"])
    assert said | {"nothing matches": caught.value.lines()} == snapshot


def test_files_that_are_here(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", 10)
    write(tmp_path / "dir/b.gguf", 7)
    unknown = listing(("a.gguf", 10), ("b.gguf", None))
    whole = listing(("a.gguf", 10))
    looks = [local_files.look(one, one.files, tmp_path).words for one in (HELD, unknown, whole)]
    files = [RemoteFile("a.gguf", 10, "0" * 64), RemoteFile("dir/b.gguf", 9), RemoteFile("c", 1)]
    wrong = [str(one) for one in local_files.verify(files, tmp_path, hash_up_to=10)]
    with pytest.raises(DiskShort) as caught:
        download.require(tmp_path, Space(700 * GB, 4000 * GB), 642 << 30, download.floor(4000 * GB))
    places = ((str(tmp_path), "DIR"), (str(tmp_path.parent), "ABOVE"))
    room = caught.value.lines()
    for place, shown in places:
        room = [line.replace(place, shown) for line in room]
    assert [looks, wrong, room] == snapshot


def test_refusals(snapshot: SnapshotAssertion, hub: LocalHub, asks: Any) -> None:
    said = {trouble: refused(hub, asks, trouble).lines() for trouble in TROUBLES}
    shown = {trouble: [line.replace(hub.url, "HUB") for line in one] for trouble, one in
             said.items()}  # fmt: skip
    waits = ['"api";r=0;t=55', "120", "soon"]
    assert shown == snapshot
    assert [errors.rate_limited(ASKED, wait).lines() for wait in waits] == snapshot


def test_what_is_no_configuration(snapshot: SnapshotAssertion) -> None:
    said = []
    for body in NONE:
        with pytest.raises(HubError) as caught:
            model_config.parse("config.json", body)
        said.append(caught.value.lines())
    assert said == snapshot


def test_last_words(snapshot: SnapshotAssertion) -> None:
    said = {}
    for words, _ in SAID:
        for with_token in (False, True):
            found = explain(listing(("a", 1)), ["Downloading", words], with_token)
            said[f"{words} {with_token}"] = found and found.lines()
    assert said == snapshot


def test_how_a_download_fails(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    said = []
    for script in ("import sys; sys.exit(1)", "print('Returning existing local_dir')"):
        result = fetch(scripted(tmp_path, script), clock=FakeClock(), tries=2)
        lines = result.error.lines() if result.error else []
        hidden = ((str(tmp_path), "DIR"), (sys.executable, "python"))
        for word, shown in hidden:
            lines = [line.replace(word, shown) for line in lines]
        said.append([result.phase.value, lines, [str(one) for one in result.wrong]])
    assert said == snapshot
