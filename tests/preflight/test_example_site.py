"""`check` on the example site, fed by a hub of true shapes: the verdicts an operator needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.checks.preflight.architecture.names import probe
from console.cli import main
from tests.gguf.test_splits import shard
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub
from tests.testbed.models import tiny_llama

SITE = Path(__file__).parents[2] / "playbooks/sites/omni.yaml"
INT8 = "meituan/DeepSeek-R1-Block-INT8"
R1 = "unsloth/DeepSeek-R1-GGUF"
DISTILL = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"


@pytest.fixture(scope="module")
def shapes() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        hub.add(*(hub_shapes.repo(name) for name in hub_shapes.SHAPES))
        yield hub


@pytest.fixture
def hub(shapes: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    for name, value in {
        "HF_ENDPOINT": shapes.url, "HF_HOME": str(tmp_path / "hf"), "OMNI_SITE": str(SITE),
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    shapes.forget()
    return shapes


def checked(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code = main(["check", "checkpoint", argv[0], "--json", *argv[1:]])
    return code, json.loads(capsys.readouterr().out)


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["check", *argv])
    out = capsys.readouterr().out
    assert all(len(line) <= 78 for line in out.splitlines())
    return code, " ".join(out.split())


def test_642_gib_resident_are_a_no_go_with_the_sum(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = told(capsys, "checkpoint", INT8, "--loader", "resident")
    assert code == 3
    for words in ("163 files", "642.0 GiB", "3 h 03 min", "RTX PRO 6000", "NO-GO"):
        assert words in said
    assert all("resolve" not in path or path.endswith(".json") for path in hub.fetched())


@pytest.mark.parametrize("quantization", ["Q3_K_M", "Q4_K_M"])
def test_what_serves_today_is_never_a_no_go(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], quantization: str
) -> None:
    code, found = checked(capsys, R1, "--include", f"*{quantization}*", "--loader", "mmap")
    assert found["verdict"] in ("GO", "GO-STREAMING", "TIGHT"), found["because"]
    assert code in (0, 4)
    places = {term["where"] for term in found["terms"]}
    assert {"RTX PRO 6000", "RTX 5090", "host RAM", "page cache"} <= places
    _, said = told(capsys, "checkpoint", R1, "--include", f"*{quantization}*")
    assert "10.35 to 10.9" in said
    assert found["envelope"]["points"]


def test_other_flags_than_the_ones_that_serve_are_judged_by_the_sum(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--args", "-ngl", "30", "-ts", "75,25", "-c", "8192")
    code, found = checked(capsys, R1, "--include", "*Q4_K_M*", *args)
    assert (code, found["verdict"]) == (3, "NO-GO")


def test_a_distill_goes_on_one_card_and_not_in_halves_on_two(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    gguf = "unsloth/DeepSeek-R1-Distill-Qwen-32B-GGUF"
    code, found = checked(capsys, gguf, "--args", "-ngl", "all", "-c", "8192")
    assert (code, found["verdict"]) == (0, "GO"), found["because"]
    code, found = checked(capsys, DISTILL, "--args", "--tp", "2")
    assert (code, found["verdict"]) == (3, "NO-GO")
    assert "RTX 5090 has" in found["because"]
    assert any("--tensor-split" in words for words in found["would_make_it_go"])


def test_a_set_with_a_gap_and_a_gated_repository(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = told(capsys, "checkpoint", "example/missing-shard")
    assert code == 3
    assert "4 of 7" in said
    code, said = told(capsys, "checkpoint", "example/gated")
    assert code == 3
    assert "61.0 GiB" in said


def test_files_that_no_loader_takes(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one = tmp_path / "m.gguf"
    tiny_llama(one)
    assert checked(capsys, str(one))[0] in (0, 4)
    data = one.read_bytes()
    for cut in (data[:-1], data[: len(data) // 2]):
        one.write_bytes(cut)
        code, found = checked(capsys, str(one))
        assert (code, found["findings"][0]["title"]) == (3, "files"), found
    one.unlink()
    for lie in ((1, 2, 3), (1, 1, 3), (1, 2, 2)):
        for number, inside in enumerate(lie, 1):
            (tmp_path / f"s-0000{number}-of-00003.gguf").write_bytes(shard(inside))
        code, found = checked(capsys, str(tmp_path))
        failed = [x["title"] for x in found["findings"] if x["level"] == "fail"]
        assert ("files" in failed) is (lie != (1, 2, 3)), found
    (tmp_path / "s-00003-of-00003.gguf").unlink()
    assert told(capsys, "gguf", str(tmp_path / "s-00001-of-00003.gguf"))[0] == 3


def test_a_header_of_one_endpoint_is_not_taken_for_that_of_another(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash is what a listing claims, and this one is of the same repository."""
    ask = (R1, "--include", "*Q3_K_M*", "--loader", "mmap")
    checked(capsys, *ask)
    hub.forget()
    monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("127.0.0.1", "localhost"))
    checked(capsys, *ask)
    assert any(path.endswith(".gguf") for path in hub.fetched())


def test_gguf_is_no_input_for_those_who_read_safetensors(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = told(capsys, "checkpoint", R1, "--include", "*Q4_K_M*", "--engine", "sglang")
    assert code == 3
    assert "safetensors" in said


def test_a_header_that_was_read_costs_nothing_the_second_time(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = (R1, "--include", "*Q3_K_M*", "--loader", "mmap")
    checked(capsys, *ask)
    assert any(path.endswith(".gguf") for path in hub.fetched())
    hub.forget()
    checked(capsys, *ask)
    assert not any(path.endswith(".gguf") for path in hub.fetched())


def test_an_architecture_by_its_first_bytes(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = f"{R1}/resolve/main/DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf"
    code, said = told(capsys, "gguf", f"{hub.url}/{where}")
    assert code == 4, "no build can be asked here: not known is not good"
    assert "architecture: deepseek2" in said
    assert "60.0 KiB" in said
    path = tmp_path / "no.gguf"
    path.write_bytes(probe("deepseek3_2"))
    code = main(["check", "gguf", str(path), "--json"])
    assert json.loads(capsys.readouterr().out)["architecture"] == "deepseek3_2"
    assert code == 4


def test_the_host_is_the_one_that_the_site_declares(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = told(capsys, "host", "--method", "AMXINT8", "--compute", "12.0")
    assert code == 3
    assert "354.0 GiB of it" in said
    assert "S-013" in said
    assert "12.0; 12.0 wanted" in said


BAD_WORDS = [
    ["checkpoint", "../../etc"],
    ["checkpoint", R1, "--engine", "nothing"],
    ["checkpoint", INT8, "--line", "fast"],
    ["checkpoint", INT8, "--ctx", "-5"],
    ["checkpoint", INT8, "--engine", "sglang", "--loader", "mmap"],
    ["host", "--disk", ".", "--need", "7"],
    ["checkpoint", "http://127.0.0.1:1/org/name"],
    ["host", "--cuda", "twelve"],
    ["gguf", "org/na\x1b[31mme"],
]


def test_bad_words_are_refused_with_a_hint(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is held by the test of words."""
    for argv in BAD_WORDS:
        code = main(["check", *argv])
        err = capsys.readouterr().err
        assert code in (2, 5), err
        assert "\x1b" not in err


def test_what_is_not_known_is_no_go(hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    q3 = (R1, "--include", "*Q3_K_M*")
    code, found = checked(capsys, *q3, "--beside")
    assert (code, found["verdict"]) == (4, "UNKNOWN")
    assert "beside" in found["because"]
    args = ("--engine", "kt-kernel", "--args", "--kt-method", "BOGUS")
    code, found = checked(capsys, DISTILL, *args)
    assert (code, found["verdict"]) != (0, "GO"), found["because"]


def test_a_disk_that_the_site_declares_counts_without_being_asked(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small = tmp_path / "site.yaml"
    small.write_text(SITE.read_text().replace("swap: 207GiB", "swap: 207GiB\n  disk_free: 325GB"))
    code, said = told(capsys, "checkpoint", R1, "--include", "*Q3_K_M*", "--site", str(small))
    assert code == 3
    assert "would be left" in said


def test_the_address_of_a_file_means_its_set(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    part = "DeepSeek-R1-Q3_K_M/DeepSeek-R1-Q3_K_M-00001-of-00007.gguf"
    code, found = checked(capsys, f"{hub.url}/{R1}/resolve/main/{part}")
    assert code == 0, found["because"]
    assert found["set"] == {
        "label": "GGUF Q3_K_M", "files": 7, "bytes": found["set"]["bytes"], "whole": True,
    }  # fmt: skip


def test_the_ceiling_stands_beside_what_was_measured(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    streamed = tmp_path / "site.yaml"
    text = SITE.read_text().replace("swap: 207GiB", "swap: 207GiB\n  memory_read: 200GB/s")
    streamed.write_text(text)
    _, said = told(capsys, "checkpoint", R1, "--include", "*Q4_K_M*", "--site", str(streamed))
    assert "10.35 to 10.9" in said
    assert "13.2 tok/s" in said


def test_a_directory_that_is_here_is_not_asked_of_the_hub(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1/config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    main(["check", "checkpoint", "r1"])
    assert "r1" in "".join(capsys.readouterr())
    assert not hub.seen
    main(["check", "checkpoint", "hf://org/r1"])
    assert hub.seen
