"""`check` on the example site, fed by a hub of true shapes: the verdicts an operator needs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.checks.preflight.architecture.names import probe
from console.cli import main
from tests.gguf.test_cache import shard
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub
from tests.testbed.models import tiny_llama

SITE = Path(__file__).parents[2] / "playbooks/sites/omni.yaml"
INT8 = "meituan/DeepSeek-R1-Block-INT8"
R1 = "unsloth/DeepSeek-R1-GGUF"
DISTILL = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
Checked = Callable[..., tuple[int, dict[str, Any]]]
Told = Callable[..., tuple[int, str]]


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


@pytest.fixture
def checked(hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> Checked:
    def ask(*argv: str) -> tuple[int, dict[str, Any]]:
        code = main(["check", "checkpoint", argv[0], "--json", *argv[1:]])
        return code, json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def told(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Told:
    monkeypatch.setenv("COLUMNS", "78")

    def ask(*argv: str) -> tuple[int, str]:
        code = main(["check", *argv])
        out = capsys.readouterr().out
        assert all(len(line) <= 78 for line in out.splitlines())
        return code, " ".join(out.split())

    return ask


def declared(folder: Path, more: str) -> str:
    """The example site, with one more figure of its machine."""
    path = folder / "site.yaml"
    path.write_text(SITE.read_text().replace("swap: 207GiB", f"swap: 207GiB\n  {more}"))
    return str(path)


def fits_but_for_its_build(found: dict[str, Any]) -> bool:
    """Whether nothing is against it but that the site's image is not here to be asked."""
    doubts = [one for one in found["findings"] if one["level"] in ("fail", "unknown")]
    gone = all("it is not here and was not asked" in one["words"] for one in doubts)
    return bool(doubts) and gone and not any(one["short_by"] for one in found["limits"])


def test_642_gib_resident_are_a_no_go_with_the_sum(hub: LocalHub, told: Told) -> None:
    code, said = told("checkpoint", INT8, "--loader", "resident")
    assert code == 3
    for words in ("163 files", "642.0 GiB", "3 h 03 min", "RTX PRO 6000", "NO-GO"):
        assert words in said
    assert said.startswith("NO-GO: "), "the verdict is not only the last of 60 lines"
    assert all("resolve" not in path or path.endswith(".json") for path in hub.fetched())


@pytest.mark.parametrize("quantization", ["Q3_K_M", "Q4_K_M"])
def test_what_serves_today_is_never_a_no_go(
    quantization: str, checked: Checked, told: Told
) -> None:
    code, found = checked(R1, "--include", f"*{quantization}*", "--loader", "mmap")
    good = found["verdict"] in ("GO", "GO-STREAMING", "TIGHT")
    assert good or fits_but_for_its_build(found), found["because"]
    assert code in (0, 4)
    places = {term["where"] for term in found["terms"]}
    assert {"RTX PRO 6000", "RTX 5090", "host RAM", "page cache"} <= places
    _, said = told("checkpoint", R1, "--include", f"*{quantization}*")
    assert "10.35 to 10.9" in said
    assert found["envelope"]["points"]


def test_other_flags_than_the_ones_that_serve_are_judged_by_the_sum(checked: Checked) -> None:
    args = ("--args", "-ngl", "30", "-ts", "75,25", "-c", "8192")
    code, found = checked(R1, "--include", "*Q4_K_M*", *args)
    assert (code, found["verdict"]) == (3, "NO-GO")


def test_a_distill_goes_on_one_card_and_not_in_halves_on_two(checked: Checked) -> None:
    gguf = "unsloth/DeepSeek-R1-Distill-Qwen-32B-GGUF"
    code, found = checked(gguf, "--args", "-ngl", "all", "-c", "8192")
    # its memory goes; whether the build knows the tokenizer nobody can tell, as no container engine
    # is here to ask it
    assert (code, found["verdict"]) == (4, "UNKNOWN")
    assert found["because"].startswith("the build, header, as a loader reads it: whether it has")
    assert not any(limit["short_by"] for limit in found["limits"])
    code, found = checked(DISTILL, "--args", "--tp", "2")
    assert (code, found["verdict"]) == (3, "NO-GO")
    assert "RTX 5090 has" in found["because"]
    assert any("--tensor-split" in words for words in found["would_make_it_go"])


def test_a_set_with_a_gap_and_a_gated_repository(told: Told) -> None:
    code, said = told("checkpoint", "example/missing-shard")
    assert code == 3
    assert "4 of 7" in said
    code, said = told("checkpoint", "example/gated")
    assert code == 3
    assert "61.0 GiB" in said


def test_files_that_no_loader_takes(tmp_path: Path, checked: Checked, told: Told) -> None:
    one = tmp_path / "m.gguf"
    tiny_llama(one)
    assert checked(str(one))[0] in (0, 4)
    data = one.read_bytes()
    for cut in (data[:-1], data[: len(data) // 2]):
        one.write_bytes(cut)
        code, found = checked(str(one))
        assert (code, found["findings"][0]["title"]) == (3, "files"), found
    one.unlink()
    for lie in ((1, 2, 3), (1, 1, 3), (1, 2, 2)):
        for number, inside in enumerate(lie, 1):
            (tmp_path / f"s-0000{number}-of-00003.gguf").write_bytes(shard(inside))
        code, found = checked(str(tmp_path))
        failed = [x["title"] for x in found["findings"] if x["level"] == "fail"]
        assert ("files" in failed) is (lie != (1, 2, 3)), found
    (tmp_path / "s-00003-of-00003.gguf").unlink()
    assert told("gguf", str(tmp_path / "s-00001-of-00003.gguf"))[0] == 3


def test_gguf_is_no_input_for_those_who_read_safetensors(told: Told) -> None:
    code, said = told("checkpoint", R1, "--include", "*Q4_K_M*", "--engine", "sglang")
    assert code == 3
    assert "safetensors" in said


def test_a_header_that_was_read_costs_nothing_until_it_is_anothers(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, checked: Checked
) -> None:
    ask = (R1, "--include", "*Q3_K_M*", "--loader", "mmap")
    checked(*ask)
    assert any(path.endswith(".gguf") for path in hub.fetched())
    hub.forget()
    checked(*ask)
    assert not any(path.endswith(".gguf") for path in hub.fetched())
    # The hash is what a listing claims, and another endpoint's is of the same repository.
    monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("127.0.0.1", "localhost"))
    checked(*ask)
    assert any(path.endswith(".gguf") for path in hub.fetched())


def test_an_architecture_by_its_first_bytes(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], tmp_path: Path, told: Told
) -> None:
    where = f"{R1}/resolve/main/DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf"
    code, said = told("gguf", f"{hub.url}/{where}")
    assert code == 4, "no build can be asked here: not known is not good"
    assert "architecture: deepseek2" in said
    assert "60.0 KiB" in said
    path = tmp_path / "no.gguf"
    path.write_bytes(probe("deepseek3_2"))
    code = main(["check", "gguf", str(path), "--json"])
    assert json.loads(capsys.readouterr().out)["architecture"] == "deepseek3_2"
    assert code == 3, "a file that lies here is read whole, and this one has no other key"


def test_the_host_is_the_one_that_the_site_declares(told: Told) -> None:
    code, said = told("host", "--method", "AMXINT8", "--compute", "12.0")
    assert code == 3
    assert "354.0 GiB of it" in said
    assert "S-013" in said
    assert "12.0; 12.0 wanted" in said


def test_what_is_not_known_is_no_go(checked: Checked) -> None:
    q3 = (R1, "--include", "*Q3_K_M*")
    code, found = checked(*q3, "--beside")
    assert (code, found["verdict"]) == (4, "UNKNOWN")
    assert "beside" in found["because"]
    args = ("--engine", "kt-kernel", "--args", "--kt-method", "BOGUS")
    code, found = checked(DISTILL, *args, "--kt-weight-path", "/w")
    assert (code, found["verdict"]) != (0, "GO"), found["because"]
    code, found = checked(DISTILL, *args)
    said = [one["words"] for one in found["findings"] if one["title"] == "kt-kernel"]
    assert "no --kt-weight-path is given" in said[0]


def test_a_disk_that_the_site_declares_counts_without_being_asked(
    tmp_path: Path, told: Told
) -> None:
    small = declared(tmp_path, "disk_free: 325GB")
    code, said = told("checkpoint", R1, "--include", "*Q3_K_M*", "--site", small)
    assert code == 3
    assert "would be left" in said


def test_the_address_of_a_file_means_its_set(hub: LocalHub, checked: Checked) -> None:
    part = "DeepSeek-R1-Q3_K_M/DeepSeek-R1-Q3_K_M-00001-of-00007.gguf"
    code, found = checked(f"{hub.url}/{R1}/resolve/main/{part}")
    assert (code, fits_but_for_its_build(found)) == (4, True), found["because"]
    assert found["set"] == {
        "label": "GGUF Q3_K_M", "files": 7, "bytes": found["set"]["bytes"], "whole": True,
    }  # fmt: skip


def test_the_ceiling_stands_beside_what_was_measured(told: Told) -> None:
    """S-014: with it the 20 tok/s of another machine are seen not to be this one's."""
    _, said = told("checkpoint", R1, "--include", "*Q4_K_M*")
    assert "10.35 to 10.9" in said
    assert "13.2 tok/s" in said


def test_a_directory_that_is_here_is_not_asked_of_the_hub(
    hub: LocalHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1/config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    main(["check", "checkpoint", "r1"])
    assert "r1" in "".join(capsys.readouterr())
    assert not hub.seen
    main(["check", "checkpoint", "hf://org/r1"])
    assert hub.seen
