"""What is said of repositories and downloads, word for word: `make golden` writes it anew."""

import json
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
from tests.hub.test_checkpoint import GB, HELD, shards, write
from tests.hub.test_download import scripted
from tests.hub.test_listing import ASKED, COMMIT, model
from tests.testbed.hub import LocalHub, Repo, files

HUB = "https://huggingface.co"
BAD = [
    "", "org/../etc", "org/na..me", "org/name@", "org/name@../../x", "org/name@--upload-pack=x",
    "-rf/name", "org/\x1b[31mname", "org/na\u202eme", "a/b/c", "missing.gguf", "org/name.git",
    "org/" + "x" * 97, f"{HUB}/datasets/org/name", "hf://spaces/org/name",
    f"{HUB}/org/name/discussions/1", f"{HUB}/org/name/resolve/main/../../x",
    f"{HUB}/org/name/resolve/main/%2e%2e/x", f"{HUB}/org/name/resolve/main/a%00b",
    "https://hub:secret@huggingface.co/org/name", f"{HUB}.evil.example/org/name",
    "file:///etc/passwd", "https://[::1/org/name", HUB, "org/name:Q4_K_M",
]  # fmt: skip
NONE = [
    b"", b"<html>", b"\xff\xfe{}", b"[1]", b'{"a": ' + b"9" * 5000 + b"}",
    b'{"a":' * 200_000, b"[" * 2_000_001,
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
]  # fmt: skip
SAID = [
    "Error: Access denied. Model 'org/model' requires approval.",
    "Error: Model 'org/model' not found.", "Error: Repository not found.",
    "Error: Revision not found in model 'org/model'.",
    "Error: File not found in model 'org/model'.", "OSError: [Errno 28] No space left on device",
    "Error: 401 Client Error: Unauthorized for url: http://h/x",
    "Error: Invalid credentials in Authorization header",
    "PermissionError: [Errno 13] Permission denied: '/m/a'", "No module named huggingface_hub",
    "Error: Invalid value. The file is too large to be downloaded using the regular download"
    " method.", "[Errno 111] Connection refused",
    "Error: Consistency check failed: file should be of size 9",
    "HTTP Error 429 thrown while requesting GET http://h/x", "",
]  # fmt: skip
"""The downloader's last words, as `hf` 2.4 and 1.18 print them."""


def about(rows: list[dict[str, Any]], sha: str = COMMIT) -> bytes:
    return json.dumps({"id": "org/model", "sha": sha, "siblings": rows}).encode()


BROKEN = {
    "503": (503, b"oops", "text/plain"), "login page": (200, b"<html>Sign in</html>", "text/html"),
}  # fmt: skip
BODIES = {
    "other json": b"{}",
    "nested": b"[" * 100_000,
    "traversal": about([{"rfilename": "../../root/.ssh/authorized_keys", "size": 1}]),
    "escape": about([{"rfilename": "a\x1b]0;x\x07", "size": 1}]),
    "no commit": about([], sha="main"),
    "twice": about([{"rfilename": "a", "size": 1}, {"rfilename": "a", "size": 2}]),
}
TROUBLES = ("gone", "revision", "disabled", "empty", "limited", *BROKEN, "refused", *BODIES)


def kind(error: HubError | None) -> list[str]:
    return [type(error).__name__, *error.lines()] if error else []


def refused(hub: LocalHub, asks: Any, trouble: str) -> HubError:
    """What is said where the hub has this trouble."""
    hub.add(model(disabled=trouble == "disabled"))
    if trouble == "empty":
        hub.add(Repo("org/model", files({".gitattributes": "x"})))
    hub.rate_limited_s = 55 if trouble == "limited" else None
    hub.broken, hub.body = BROKEN.get(trouble), BODIES.get(trouble)
    found: HubError = asks(
        "org/gone" if trouble == "gone" else "org/model",
        "v9" if trouble == "revision" else "main",
        "http://127.0.0.1:1" if trouble == "refused" else "",
    )
    return found


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
    lacking = [
        row for row in shards("m-Q4_K_M", 9) if row[0][9:14] not in ("00002", "00005", "00006")
    ]
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
    found = local_files.verify(files, tmp_path, hash_up_to=10)
    wrong = [f"{path}: {why}" for path, why in found.items()]
    with pytest.raises(DiskShort) as caught:
        download.require(tmp_path, Space(700 * GB, 4000 * GB), 642 << 30, download.floor(4000 * GB))
    places = ((str(tmp_path), "DIR"), (str(tmp_path.parent), "ABOVE"))
    room = caught.value.lines()
    for place, shown in places:
        room = [line.replace(place, shown) for line in room]
    assert [looks, wrong, room] == snapshot


def test_refusals(snapshot: SnapshotAssertion, hub: LocalHub, asks: Any) -> None:
    said = {trouble: kind(refused(hub, asks, trouble)) for trouble in TROUBLES}
    shown = {trouble: [line.replace(hub.url, "HUB") for line in one] for trouble, one in
             said.items()}  # fmt: skip
    waits = ['"api";r=0;t=55', "120", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "٣"]
    assert shown == snapshot
    assert [errors.rate_limited(ASKED, wait).lines() for wait in waits] == snapshot


def test_what_is_no_configuration(snapshot: SnapshotAssertion) -> None:
    said = []
    for body in NONE:
        with pytest.raises(errors.HubAnswer) as caught:
            model_config.parse("config.json", body)
        said.append(caught.value.lines())
    assert said == snapshot


def test_constants_that_python_writes_are_their_names() -> None:
    """Nemotron-H's config.json has a bare Infinity, which transformers takes."""
    found = model_config.parse("config.json", b'{"limit": [0.0, Infinity], "a": NaN}')
    assert found == {"limit": [0.0, "Infinity"], "a": "NaN"}


def test_last_words(snapshot: SnapshotAssertion) -> None:
    said = {}
    for words in SAID:
        for with_token in (False, True):
            found = explain(listing(("a", 1)), ["Downloading", words, "trailing"], with_token)
            said[f"{words} {with_token}"] = kind(found)
    assert said == snapshot


def test_how_a_download_fails(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    said = []
    for script in ("import sys; sys.exit(1)", "print('Returning existing local_dir')"):
        result = fetch(scripted(tmp_path, script), clock=FakeClock(), tries=2)
        lines = result.error.lines() if result.error else []
        hidden = ((str(tmp_path), "DIR"), (sys.executable, "python"))
        for word, shown in hidden:
            lines = [line.replace(word, shown) for line in lines]
        wrong = [f"{path}: {why}" for path, why in result.wrong.items()]
        said.append([result.phase.value, lines, wrong])
    assert said == snapshot
