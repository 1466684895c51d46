"""`clean --all`: what the console did not make is listed with its bytes, and never removed."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.common.errors import EngineError, EngineTimeout, Exit
from console.config.site.site import load_site
from console.runner.cleanup import foreign, leftover
from console.runner.cleanup.leftover import Spared, Stored, Survey
from console.runtime.spec import BUILT_LABEL, ROLE_LABEL
from tests.cleanup.conftest import Attic

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_cache(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(attic.root / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


def listed(attic: Attic, capsys: Capture, *words: str) -> dict[str, Any]:
    site = ["--site", str(attic.root / "site.yaml"), "--json"]
    assert main(["clean", *site, "--all", *words]) == Exit.OK
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["foreign"]
    return found


def by_where(attic: Attic, found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {os.path.relpath(one["where"], attic.root): one for one in found["items"]}


def weights(attic: Attic, where: str, size: int = 10) -> Path:
    path = attic.root / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"w" * size)
    return path


def test_checkpoints_beside_the_baselines(attic: Attic, capsys: Capture) -> None:
    weights(attic, "models/base/a.gguf")
    old = weights(attic, "models/old int8/x-1.safetensors", 700)
    weights(attic, "models/old int8/x-2.safetensors", 300)
    fetched = attic.download("models/fetched", {"b.gguf": 10})
    attic.site(models=["models/base/a.gguf"])
    found = listed(attic, capsys)
    items = by_where(attic, found)
    assert set(items) == {"models/base", "models/old int8"}, "not what a download step fetched"
    assert (items["models/old int8"]["bytes"], items["models/old int8"]["used"]) == (1000, None)
    assert items["models/old int8"]["how"] == f"rm -i -- '{old.parent}'/*.safetensors"
    assert items["models/old int8"]["since"] == pytest.approx(old.stat().st_mtime, abs=2)
    assert "the site names" in items["models/base"]["used"]
    assert items["models/base"]["how"] is None
    assert found["bytes"] == 1010
    assert (fetched / "b.gguf").exists()


def test_what_a_process_has_open_is_in_use(attic: Attic, capsys: Capture) -> None:
    path = weights(attic, "more/deep/er/c.gguf")
    attic.site()
    with path.open("rb"):
        (item,) = listed(attic, capsys, str(attic.root / "more"))["items"]
    assert (item["how"], f"{path} open" in item["used"]) == (None, True)
    (item,) = listed(attic, capsys, str(attic.root / "more"))["items"]
    assert item["used"] is None


def test_the_hubs_cache_by_repository(attic: Attic, capsys: Capture) -> None:
    blob = weights(attic, "hf/hub/models--org--big/blobs/abc", 50_000)
    link = attic.root / "hf/hub/models--org--big/snapshots/1/m.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    attic.site()
    (item,) = listed(attic, capsys)["items"]
    assert (item["what"], item["where"]) == (
        "org/big in the hub's cache", str(attic.root / "hf/hub/models--org--big"),
    )  # fmt: skip
    assert item["bytes"] >= 50_000


def test_a_page_and_what_it_refuses(attic: Attic, capsys: Capture) -> None:
    path = weights(attic, "more/e\x1b[2Jvil/c.gguf")
    attic.site()
    site = ["--site", str(attic.root / "site.yaml")]
    assert main(["clean", *site, "--all", str(attic.root / "more")]) == Exit.OK
    out = capsys.readouterr().out
    assert ("\x1b" in out, "rm -i -- " in out, "not searched" in out) == (False, False, True)
    assert "cannot be shown" in out, "more/evil may be another directory"
    assert main(["clean", *site, "--all", "--yes", "c-1"]) == Exit.USAGE
    assert path.exists()
    assert main(["clean", *site]) == Exit.OK
    assert "never removes" not in capsys.readouterr().out


class Api:
    """An engine with two images of others, a container of each sort, and a build cache."""

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        return [
            {"Id": "a" * 64, "Names": ["/old"], "State": "exited", "Image": "x:1", "SizeRw": 5,
             "ImageID": "sha256:2", "Created": 1.7e9, "Labels": {}},
            {"Id": "b" * 64, "Names": ["/up"], "State": "running", "ImageID": "sha256:9"},
            {"Id": "c" * 64, "Names": ["/ours"], "State": "exited",
             "Labels": {ROLE_LABEL: "candidate"}},
        ]  # fmt: skip


class Client:
    api = Api()


def engine(monkeypatch: pytest.MonkeyPatch, cache: Any) -> Survey:
    """What `clean` found of an engine with nothing of ours, on which others left their things."""
    monkeypatch.setattr(foreign, "send", cache)
    none = Spared(frozenset(), frozenset(), frozenset(), ())
    return Survey((), images=tuple(images()), spared=none, client=Client())  # type: ignore[arg-type]


class Reply:
    def json(self) -> dict[str, Any]:
        return {"BuildCache": [{"Size": 7, "InUse": False}, {"Size": 3, "Shared": True}]}


def images() -> list[Stored]:
    row: dict[str, Any] = {"RepoTags": ["x/y:old"], "Created": 1.7e9, "Labels": None}
    return [
        Stored("sha256:1", 100, 40, row=row),
        Stored("sha256:2", 10, 0, row={**row, "RepoTags": None}),
        Stored("sha256:3", 10, 0, row={**row, "Labels": {BUILT_LABEL: "t"}}),
    ]


def test_the_engines(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    found = engine(monkeypatch, lambda *_, **__: Reply())
    items, _ = foreign.foreign(attic.site(), found)
    said = [(one.kind, one.what, one.bytes, one.used, one.how) for one in items]
    assert said == [
        ("image", "x/y:old", 60, "", "docker rmi x/y:old"),
        ("image", "2, without a tag", 10, "container old", ""),
        ("build cache", "2 records", 7, "", "docker builder prune"),
        ("container", "old: x:1, exited", 5, "", "docker rm old"),
    ]


def test_an_engine_that_stops_answering(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise EngineError("the engine is gone")

    items, notes = foreign.foreign(attic.site(), engine(monkeypatch, gone))
    assert [one.kind for one in items] == ["image", "image", "container"]
    assert "the engine is gone" in notes[0]


def test_a_directory_that_hangs_costs_nothing_of_what_was_seen(
    attic: Attic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over as soon as the directory hangs, and not by a clock."""
    stop, walk, hangs = threading.Event(), os.walk, list[threading.Event]()

    def hang(top: Path) -> Any:
        yield next(walk(top))
        hangs[-1].set()
        stop.wait(60)

    def within(seconds: float, what: str, call: Callable[[], object], hint: str) -> None:
        hangs.append(threading.Event())
        threading.Thread(target=call, daemon=True).start()
        assert hangs[-1].wait(60)
        raise EngineTimeout(f"{what} did not answer within {seconds:g} s", "", hint)

    monkeypatch.setattr(foreign.os, "walk", hang)
    monkeypatch.setattr(foreign, "within", within)
    weights(attic, "more/c.gguf")
    items, notes = foreign.foreign(attic.site(), Survey(()), [str(attic.root / "more")])
    stop.set()
    assert [one.where for one in items] == [str(attic.root / "more")]
    assert any("more was seen" in note and "did not answer" in note for note in notes)


@pytest.mark.parametrize("limit", [{"MAX_FOLDERS": 3}, {"SCAN_S": -1.0, "LATE_S": 30.0}])
def test_what_was_not_seen_is_said(
    attic: Attic, monkeypatch: pytest.MonkeyPatch, limit: dict[str, float]
) -> None:
    for name, value in limit.items():
        monkeypatch.setattr(foreign, name, value)
    for number in range(5):
        weights(attic, f"more/{number}/c.gguf")
    items, notes = foreign.foreign(attic.site(), Survey(()), [str(attic.root / "more")])
    assert len(items) < 5
    (said,) = [note for note in notes if "was seen" in note]
    assert said.startswith(f"not all of {attic.root}/more was seen: it has more than")


def test_a_file_with_two_names_and_one_behind_a_link_count_once(
    attic: Attic, capsys: Capture
) -> None:
    path = weights(attic, "more/first/c.gguf", 1000)
    for name in ("hard", "soft", "twice"):
        (attic.root / "more" / name).mkdir()
    os.link(path, attic.root / "more/hard/c.gguf")
    (attic.root / "more/soft/c.gguf").symlink_to(path)
    (attic.root / "more/twice/d.gguf").write_bytes(b"w" * 10)
    attic.site()
    more = attic.root / "more"
    found = listed(attic, capsys, str(more / "twice"), str(more))
    sizes = {where: one["bytes"] for where, one in by_where(attic, found).items()}
    assert sizes == {"more/first": 1000, "more/hard": 0, "more/twice": 10}
    assert found["bytes"] == 1010


def test_an_image_of_a_compose_service_is_in_use_without_a_container(
    attic: Attic, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = attic.root / "site.yaml"
    attic.site()
    data = json.loads(file.read_text())
    data["services"] = {"cand": {"compose": {"file": "stack.yaml", "service": "llm"},
                                 "url": "http://127.0.0.1:2"}}  # fmt: skip
    file.write_text(json.dumps(data))
    config = json.dumps({"services": {"llm": {"image": "x/y:old"}}})
    monkeypatch.setattr(leftover, "compose", lambda *_: config)
    found, notes = leftover.compose_images(load_site(file))
    assert (found, notes) == ({"x/y:old"}, [])
    keep = leftover.spared(load_site(file), (), found)
    assert foreign._image(images()[0], [], keep).used == "the site"
    monkeypatch.setattr(leftover, "compose", lambda *_: "{}")
    found, (note,) = leftover.compose_images(load_site(file))
    assert (found, "compose service llm" in note) == (set(), True)


def test_nothing_here_can_remove() -> None:
    names = Path(foreign.__file__).read_text()
    for word in ("remove_container", "remove_image", "unlink", "rmtree", "os.remove"):
        assert word not in names


def test_a_model_that_a_container_names_by_its_folder_is_in_use() -> None:
    """In there it has another path: `/models/DeepSeek-R1` is `/nvme/models/DeepSeek-R1` here."""
    spared = Spared(
        frozenset(),
        frozenset({"docker.io/x/y:old"}),
        frozenset(),
        ("--model-path", "/models/DeepSeek-R1"),
    )
    used = foreign._used(
        ["/nvme/models/DeepSeek-R1/x.safetensors"], "/nvme/models/DeepSeek-R1", spared
    )
    assert "names DeepSeek-R1" in used
    assert foreign._image(images()[0], [], spared).used == "the site", "however it spells it"
