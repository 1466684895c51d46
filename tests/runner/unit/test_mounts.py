"""A baseline whose mounts have gone is not stopped: it would not come back as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.runner.prepare import mounts

MODEL = ["-m", "/m/x.gguf"]


def inspected(source: Path, target: str, *, strict: bool = False, **more: Any) -> dict[str, Any]:
    bind = {"Type": "bind", "Source": str(source), "Destination": target, "RW": True}
    asked = [{"Type": "bind", "Source": str(source), "Target": target}] if strict else []
    words = more.pop("args", MODEL)
    return {
        "Path": "llama-server", "Args": words, "HostConfig": {"Mounts": asked},
        "Mounts": [{**bind, **more}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "target", "more", "why"),
    [
        ("gone", "/cache", {"strict": True}, "the engine refuses to start it"),
        ("gone", "/cache", {"RW": False}, "an empty directory"),
        ("gone", "/m", {}, "an empty directory"),
        ("gone.gguf", "/m/x.gguf", {}, "a directory of it"),
        ("gone.jinja", "/t/x.jinja", {}, "a directory of it"),
        ("gone", "/logs", {}, ""),
        ("gone", "/var/log/vllm", {}, ""),
        ("gone", "/root/.cache/huggingface", {}, "an empty directory of root's"),
        ("gone", "/config", {"args": []}, "an empty directory of root's"),
        ("gone", "/logs", {"Type": "volume"}, ""),
        ("here", "/m", {"strict": True, "RW": False}, ""),
    ],
)
def test_a_mount_that_has_gone(
    tmp_path: Path, name: str, target: str, more: dict[str, Any], why: str
) -> None:
    (tmp_path / "here").mkdir()
    said = mounts.lost(inspected(tmp_path / name, target, **more))
    assert why in said
    assert (f"it mounts {tmp_path}/{name}, which is not there any more" in said) is bool(why)


def test_what_the_engine_is_told_to_make_is_no_obstacle(tmp_path: Path) -> None:
    found = inspected(tmp_path / "gone", "/logs", strict=True)
    found["HostConfig"]["Mounts"][0]["BindOptions"] = {"CreateMountpoint": True}
    assert mounts.lost(found) == ""


def test_what_this_user_may_not_see_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: Path) -> bool:
        raise PermissionError("closed")

    monkeypatch.setattr(Path, "exists", denied)
    assert not mounts.is_missing(tmp_path)
    assert mounts.lost(inspected(tmp_path / "gone", "/m", strict=True)) == ""


def test_an_engine_that_says_little_is_believed() -> None:
    assert mounts.lost({}) == ""
    assert mounts.lost({"HostConfig": None, "Mounts": [{"Type": "bind"}]}) == ""
