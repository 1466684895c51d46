"""Where a rehearsal lives: a `docker` that only looks, stand-ins, names, ports and cards."""

import importlib
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console.common.errors import UsageError
from console.host.gpu.child import Session
from console.rehearsal import workspace as place
from console.rehearsal.image import dockerfile, stands_for
from console.rehearsal.inside.settings import (
    HOLDS_VARIABLE,
    VARIABLE,
    OutOfMemory,
    Settings,
    held,
    hold,
    packed,
    settings,
)
from console.rehearsal.workspace import Mapping, join, move_ports, read_mapping
from console.runtime.spec import ROLE_LABEL, ROLE_VARIABLE, role_label, role_of
from tests.wrong_files import wrong_files


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rehearsal's docker, over a real one that prints what it is told."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "docker").write_text('#!/bin/sh\necho "did $*"\n')
    (real / "docker").chmod(stat.S_IRWXU)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{real}:/usr/bin:/bin")
    for name in ("OMNI_HOST_DIR", "PYTHONPATH", "OMNI_REHEARSAL", "OMNI_REHEARSAL_HOLDS",
                 ROLE_VARIABLE):  # fmt: skip
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    place.enter(Settings(cards=[{"uuid": "GPU-1", "name": "Card", "total": 1 << 30}]))
    return place.directory() / "bin" / "docker"


def said(command: Path, *arguments: str, step: str = "x") -> tuple[int, str]:
    done = subprocess.run(
        [command, *arguments], env={"PATH": "/usr/bin:/bin", "OMNI_STEP": step}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_step_may_look_and_use_stand_ins(docker: Path) -> None:
    for words in (
        "images", "version --format x", "image inspect a:1", "run --rm omni-rehearsal/a:1 x",
        "build -t omni-rehearsal/a:1 .",
    ):  # fmt: skip
        assert said(docker, *words.split()) == (0, f"did {words}\n")


def test_a_step_never_touches_what_is_real(docker: Path) -> None:
    for words in (
        "stop deepseek-r1",
        "image rm a:1",
        "build -t omni/kt:1 .",
        "run real:1",
        "rmi a",
    ):
        code, text = said(docker, *words.split())
        assert (code, text.endswith(f"docker {words}\n"), "did " in text) == (1, True, False)
        assert said(docker, *words.split(), step="") == (0, f"did {words}\n"), "the console may"


def test_nvidia_smi_knows_the_cards_without_any_variable(docker: Path) -> None:
    query = ["--query-gpu=uuid,memory.total", "--format=csv,noheader"]
    code, text = said(docker.with_name("nvidia-smi"), *query)
    assert code == 0
    assert "GPU-1, 1024 MiB\n" in text
    assert "stand-in" in text


def test_another_terminal_joins_it(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_HOST_DIR", "/elsewhere")
    assert join() == str(place.site())
    assert os.environ["OMNI_HOST_DIR"] == str(place.directory() / "host")


def test_what_a_rehearsal_starts_has_a_role_of_its_own(docker: Path) -> None:
    assert role_label() == place.role_label() != ROLE_LABEL
    assert role_of({role_label(): "candidate"}) == role_of({ROLE_LABEL: "candidate"}) == "candidate"
    assert role_of({"omni.rehearsal": "stand-in"}) == ""


def test_names_differ_between_state_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for where in ("/a", "/b"):
        monkeypatch.setenv("XDG_STATE_HOME", where)
        found |= {place.own_name("baseline"), place.role_label()}
    assert len(found) == 4


def test_a_plan_leaves_what_a_rehearsal_put_there(docker: Path) -> None:
    kept = place.directory()
    before = (kept / "environment.json").read_text()
    with place.only_planned():
        assert place.directory() != kept
        place.enter(Settings(fault="ram"))
    assert place.directory() == kept
    assert docker.exists()
    assert (kept / "environment.json").read_text() == before
    assert not (kept / "plan" / "plan").exists()


# -- what is put in the place of what ------------------------------------------------------------


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
    wrong = [text for _, text in wrong_files(made.to_json(), leave="told.cards.0")]
    for text in ["{}", *wrong]:
        path.write_text(text)
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


# -- VRAM that counts while its holder lives -------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from console.rehearsal.inside.settings import hold
hold(Path(sys.argv[1]), {"GPU-1": 700}, {"GPU-1": 1000})
print("held", flush=True)
time.sleep(600)
"""


def test_memory_goes_with_its_holder_even_by_kill_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the gauges read it as a driver would say it."""
    cards = [
        {"uuid": "GPU-1", "name": "RTX PRO 6000", "total": 1000},
        {"uuid": "GPU-2", "name": "RTX 5090", "total": 500},
    ]
    monkeypatch.setenv(VARIABLE, packed(Settings(cards=cards)))
    monkeypatch.setenv(HOLDS_VARIABLE, str(tmp_path))
    session = Session(lambda: importlib.import_module("console.rehearsal.standins.pynvml"))
    argv = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert held(tmp_path) == {"GPU-1": 700}
        with pytest.raises(OutOfMemory, match="300 free"):
            hold(tmp_path, {"GPU-1": 400}, {"GPU-1": 1000})
        gpus, trouble = session.look(time.monotonic())
        assert trouble == ""
        seen = [(gpu.uuid, gpu.used_bytes, gpu.total_bytes, gpu.why) for gpu in gpus]
        assert seen == [("GPU-1", 700, 1000, ""), ("GPU-2", 0, 500, "")]
        child.kill()
    assert held(tmp_path) == {}, "the file is still there, its lock is not"
    assert list(tmp_path.glob("*.hold"))
    gpus, _ = session.look(time.monotonic())
    assert [gpu.used_bytes for gpu in gpus] == [0, 0]
