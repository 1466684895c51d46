"""`check checkpoint --suggest`: what of a repository fits a machine, by the ordinary verdict."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture.check import machine_for
from console.checks.preflight.checkpoint import BY_BUILD, Ask
from console.checks.preflight.suggest import suggest
from console.cli import main
from console.config.site.service import ServiceModel
from console.config.site.site import load_site
from console.models.gguf.header import Header
from console.models.sizing.assessment import Assessment
from console.models.sizing.loader_plan import LoaderPlan
from console.models.suggest.ranking import WORDS
from tests.preflight.test_offers import CONFIG, WHOLE, config, weights
from tests.testbed import quantizations
from tests.testbed.hub import File, LocalHub, Repo
from tests.testbed.hub_shapes import gguf

SITE = """\
schema: omni.site/v1
name: here
baseline: {{container: nothing, url: "http://127.0.0.1:1"}}
machine: {{ram: {ram}GiB, ram_used: 0GiB, swap: 0GiB, disk_free: 9000GB}}
gpus:
"""
CARD = '  - {{name: card {n}, uuid: GPU-{n:08}-0000, memory: {size}GiB, compute: "{compute}"}}\n'
DENSE = ("BF16", "Q8_0", "Q4_0", "Q2_K")
Suggested = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def served() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        hub.add(Repo("org/dense", quantizations.repository("dense", DENSE)))
        hub.add(Repo("org/mixture", quantizations.repository("mixture", ("Q8_0", "Q2_K"))))
        hub.add(Repo("org/whole", WHOLE))
        yield hub


@pytest.fixture
def machine(
    served: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    for name, value in {
        "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "hf"),
        "OMNI_SITE": str(tmp_path / "site.yaml"), "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    served.forget()

    def declare(ram: int, *sizes: int, compute: str = "8.9") -> None:
        cards = "".join(CARD.format(n=n, size=size, compute=compute)
                        for n, size in enumerate(sizes, 1))  # fmt: skip
        text = SITE.format(ram=ram) + cards if cards else SITE.format(ram=ram)[: -len("gpus:\n")]
        (tmp_path / "site.yaml").write_text(text)

    return declare


@pytest.fixture
def suggested(machine: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> Suggested:
    def ask(*argv: str, suggest: bool = True) -> tuple[int, dict[str, Any]]:
        more = ["--suggest"] if suggest else []
        code = main(["check", "checkpoint", argv[0], "--json", *more, *argv[1:]])
        return code, json.loads(capsys.readouterr().out)

    return ask


def asked(suggested: Suggested, row: dict[str, Any], args: list[str]) -> str:
    """The ordinary question about one row."""
    folder = row["files"][0].rpartition("/")[0]
    include = f"{folder}/*" if folder else row["files"][0]
    what = row["download"][2] if row["download"] else row["command"][4]
    ask = ("--include", include, "--engine", row["engine"], "--args", *args)
    return str(suggested(what, *ask, suggest=False)[1]["verdict"])


def test_the_best_that_fits_stands_first_with_its_largest_context(
    machine: Callable[..., None], suggested: Suggested
) -> None:
    machine(40, 24)
    code, found = suggested("org/dense")
    assert code == 0
    rows = found["rows"]
    assert [row["quantization"] for row in rows] == ["Q4_0", "Q8_0", "Q2_K", "BF16"]
    assert "from the disk" in rows[-1]["because"], "stands at the end"
    for row in rows[:2]:
        assert asked(suggested, row, row["args"]) == row["verdict"] == "GO"
        more = [*row["args"][:-1], str(row["ctx"] + 8192)]
        assert asked(suggested, row, more) != "GO", "the context is the largest"
        assert row["left"]["host RAM"] > 0 < row["left"]["card 1"]
    row = next(row for row in rows if row["longer"])
    longer = row["longer"]
    assert longer["ctx"] >= 2 * row["ctx"]
    assert asked(suggested, longer, longer["args"]) == "GO"


def test_each_header_is_read_once(
    machine: Callable[..., None], suggested: Suggested, served: LocalHub
) -> None:
    machine(64, 24)
    suggested("org/dense")
    reads = [seen.path for seen in served.seen if seen.cdn and seen.method == "GET"]
    assert len(reads) == len(set(reads)) == len(DENSE)


def test_the_fastest_is_among_few_rows(machine: Callable[..., None], suggested: Suggested) -> None:
    """All four fit with layers on the host; only the smallest is all on the card."""
    machine(128, 16)
    code, found = suggested("org/dense", "--top", "2")
    assert code == 0
    assert [row["quantization"] for row in found["rows"]] == ["BF16", "Q2_K"]
    assert found["rows"][1]["placement"] == "all on the card"
    assert found["more"] == 2
    _, found = suggested("org/dense", "--top", "1")
    assert [row["quantization"] for row in found["rows"]] == ["BF16"], "the best of all"


def test_what_serves_well_stands_before_what_has_more_bits(
    machine: Callable[..., None], suggested: Suggested, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(128, 24)
    _, found = suggested("org/dense", "--top", "4")
    rows = [(row["quantization"], row["placement"]) for row in found["rows"]]
    assert [name for name, _ in rows] == ["Q4_0", "BF16", "Q8_0", "Q2_K"]
    assert rows[0][1] == rows[3][1] == "all on the card", "two bits are behind slow layers"
    main(["check", "checkpoint", "org/dense", "--suggest"])
    said = " ".join(capsys.readouterr().out.split())
    assert "What fits, the best first" in said
    assert WORDS in said


def test_experts_of_a_mixture_stay_in_ram(
    machine: Callable[..., None], suggested: Suggested
) -> None:
    machine(256, 24, 24)
    _, found = suggested("org/mixture")
    best = found["rows"][0]
    assert best["quantization"] == "Q8_0"
    assert "-ncmoe" in best["args"] or "-cmoe" in best["args"]
    assert best["verdict"] == "GO"
    # nobody can be asked here whether the build has qwen3moe
    assert asked(suggested, best, best["args"]) == "UNKNOWN"


def test_what_was_given_stays(machine: Callable[..., None], suggested: Suggested) -> None:
    machine(64, 24)
    given = ["-c", "8192", "-ngl", "20", "-ctk", "q8_0"]
    _, found = suggested("org/dense", "--include", "*Q8_0*", "--args", *given)
    (row,) = found["rows"]
    assert (row["args"], row["ctx"], row["placement"]) == (given, 8192, "as given")


def test_where_nothing_fits_it_says_what_is_missing(
    machine: Callable[..., None], suggested: Suggested, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(4, 8)
    code, found = suggested("org/dense", "--loader", "resident")
    assert (code, found["rows"], found["verdict"]) == (3, [], "NO-GO")
    nearest = found["nearest"][0]
    assert nearest["set"] == "GGUF Q2_K"
    assert nearest["short_by"] > 0
    assert "short" in nearest["because"]
    assert main(["check", "checkpoint", "org/dense", "--suggest", "--loader", "resident"]) == 3
    said = capsys.readouterr().out
    assert "NO-GO: nothing of it fits this machine" in said
    assert "GiB short" in said


def odd(key: str) -> dict[str, File]:
    """A model whose header has a key that nobody here knows."""
    metadata = quantizations.dense_metadata() | {f"qwen2.{key}": 2}
    (file,) = gguf(metadata, list(quantizations.dense_tensors(quantizations.type_of("Q4_0"))))
    return {"odd-Q5_1.gguf": file}


def test_what_is_not_known_is_named_and_never_suggested(
    machine: Callable[..., None], suggested: Suggested, served: LocalHub
) -> None:
    served.add(Repo("org/odd", odd("num_loops")))
    machine(256, 96)
    code, found = suggested("org/odd")
    assert (code, found["rows"], found["verdict"]) == (4, [], "UNKNOWN")
    assert found["unknown"][0]["set"] == "GGUF Q5_1"
    assert "num_loops" in found["unknown"][0]["why"]
    served.add(Repo("org/odd", odd("num_loops") | quantizations.repository("dense", ("Q2_K",))))
    code, found = suggested("org/odd")
    assert code == 0
    assert [row["quantization"] for row in found["rows"]] == ["Q2_K"]
    assert len(found["unknown"]) == 1


def test_a_set_that_lacks_a_shard_is_left_out(
    machine: Callable[..., None], suggested: Suggested, served: LocalHub
) -> None:
    held = quantizations.repository("mixture", ("Q8_0", "Q2_K"))
    served.add(Repo("org/gap", {p: f for p, f in held.items() if "Q8_0-00002" not in p}))
    machine(900, 24)
    _, found = suggested("org/gap")
    assert {row["quantization"] for row in found["rows"]} == {"Q2_K"}
    assert found["left_out"] == [{"set": "GGUF Q8_0", "why": "the repository lacks shard 2 of 4"}]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_ranks_over_the_cards(
    engine: str, machine: Callable[..., None], suggested: Suggested
) -> None:
    machine(256, 80, 80, 80, 80, compute="9.0")
    code, found = suggested("org/whole", "--engine", engine)
    assert code == 0, found
    row = found["rows"][0]
    assert row["args"][0] == ("-tp" if engine == "vllm" else "--tp")
    assert row["files"][0].endswith(".safetensors")
    assert CONFIG["max_position_embeddings"] >= row["ctx"] > 8192
    what = ("org/whole", "--engine", engine, "--args", *row["args"])
    assert suggested(*what, suggest=False)[1]["verdict"] == row["verdict"]


def test_a_gguf_is_not_for_an_engine_of_safetensors(
    machine: Callable[..., None], suggested: Suggested
) -> None:
    machine(256, 80)
    code, found = suggested("org/dense", "--engine", "vllm")
    assert (code, found["rows"]) == (3, [])
    assert {one["why"] for one in found["left_out"]} == {"vllm reads safetensors"}


def test_lines_for_a_playbook_and_a_shell(
    machine: Callable[..., None], suggested: Suggested, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(64, 24)
    argv = ["org/dense", "--include", "*Q4_0*", "--to", "/models/it's"]
    _, found = suggested(*argv)
    row = found["rows"][0]
    assert row["command"][:3] == ["llama-server", "-m", "/models/it's/model-Q4_0.gguf"]
    spec = ServiceModel.model_validate(yaml.safe_load(row["service"])["candidate"])
    assert spec.process is not None
    assert spec.process.argv == row["command"]
    assert spec.exclusive
    main(["check", "checkpoint", argv[0], "--suggest", *argv[1:]])
    said = capsys.readouterr().out.replace("\\\n    ", "")
    assert f"""llama-server -m '/models/it'"'"'s/model-Q4_0.gguf' {" ".join(row["args"])}""" in said
    assert "hf download org/dense --revision" in said


@pytest.mark.parametrize(
    "argv",
    [
        ["--top", "3"],
        ["--suggest", "--loader", "convert"],
        ["--suggest", "--engine", "exllamav3"],
        ["--suggest", "--top", "0"],
    ],
)
def test_bad_usage(argv: list[str], machine: Callable[..., None]) -> None:
    machine(64, 24)
    assert main(["check", "checkpoint", "org/dense", *argv]) == 2


def test_an_incomplete_safetensors_set_is_no_suggestion(
    machine: Callable[..., None], suggested: Suggested, served: LocalHub
) -> None:
    served.add(Repo("org/part", config() | weights(20 << 30, 4, lacks=3)))
    machine(256, 80, compute="9.0")
    code, found = suggested("org/part")
    assert (code, found["rows"]) == (3, [])
    assert "00003" in found["left_out"][0]["why"] or "3 of 4" in found["left_out"][0]["why"]


def test_what_the_build_refuses_is_no_row(
    machine: Callable[..., None], served: LocalHub, tmp_path: Path
) -> None:
    machine(64, 24)
    site = load_site(tmp_path / "site.yaml")

    def by_build(header: Header, plan: LoaderPlan, found: Assessment) -> list[Finding]:
        larger = sum(one.bytes or 0 for one in header.tensors or ()) > 20 << 30
        return [Finding(Level.FAIL, BY_BUILD, "does not fit")] if larger else []

    ask = Ask("org/dense", include=("*Q*",))
    found = suggest(ask, machine_for(site.model, None), site.model, by_build)
    assert [row.case.name for row in found.rows] == ["GGUF Q4_0", "GGUF Q2_K"]
    assert {name.partition(",")[0] for name, _ in found.unknown} == {"GGUF Q8_0"}
    assert all("does not fit" in why for _, why in found.unknown)
