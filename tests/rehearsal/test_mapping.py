"""What is put in the place of what."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from console.common.errors import UsageError
from console.rehearsal.image import dockerfile, stands_for
from console.rehearsal.inside.settings import VARIABLE, Settings, settings
from console.rehearsal.workspace import Mapping, move_ports, read_mapping


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("omni/kt:lazarus", "omni-rehearsal/omni-kt:lazarus"),
        ("ghcr.io:443/ggml/llama.cpp", "omni-rehearsal/ghcr-io-443-ggml-llama-cpp:latest"),
        ("repo/x@sha256:abc", "omni-rehearsal/repo-x:abc"),
        ("omni-rehearsal/a:1", "omni-rehearsal/a:1"),
    ],
)
def test_no_real_tag_is_ever_taken(image: str, tag: str) -> None:
    assert stands_for(image) == tag


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        real = port - 10_000 if port > 11_000 else port
        moved = move_ports([real])[str(real)]
        assert moved != port
        assert moved > real


def test_a_mapping_survives_its_file(tmp_path: Path) -> None:
    told = Settings(cards=[{"uuid": "GPU-1", "name": "a 'b' $c", "total": 5}], hold={"GPU-1": 4})
    made = Mapping("base", "slow", {"8000": 18000}, 0.2, 7.0, told, 1 << 30, {"models": "/x"})
    path = tmp_path / "rehearsal.json"
    path.write_text(made.to_json())
    assert read_mapping(path) == made
    path.write_text("{}")
    with pytest.raises(UsageError, match="cannot be read"):
        read_mapping(path)


def test_an_image_carries_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Settings("omni/kt:1", "no-sm120", [{"uuid": "GPU-1", "name": "a 'b' $c", "total": 5}])
    lines = dockerfile("base:1", told).splitlines()
    assert lines[0] == "FROM base:1"
    name, _, value = lines[1].removeprefix("ENV ").partition("=")
    monkeypatch.setenv(name, value)
    assert (name, settings()) == (VARIABLE, told)
    assert "sm_120" not in told.architectures
    assert "sm_120" in Settings().architectures


def test_ports_of_loopback_and_whole_names_of_images_are_replaced() -> None:
    mapping = Mapping("base", ports={"8000": 18000, "8004": 18004})
    text = "curl http://127.0.0.1:8004/x localhost:8000 10.0.0.1:8000 -n 8000 127.0.0.1:80001"
    moved = "curl http://127.0.0.1:18004/x localhost:18000 10.0.0.1:8000 -n 8000 127.0.0.1:80001"
    assert mapping.text(text, {}) == moved
    assert (mapping.port(8000), mapping.port("8004"), mapping.port(9)) == (18000, "18004", 9)
    text = "docker run {} omni/kt:12 my/omni/kt:1 {};"
    real, ours = "omni/kt:1", "omni-rehearsal/omni-kt:1"
    assert mapping.text(text.format(real, real), {real: ours}) == text.format(ours, ours)
