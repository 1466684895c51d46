"""Shipped trials on the example site's machine end before they cost anything, and say why."""

from __future__ import annotations

from pathlib import Path

from console.config.locate import shipped
from tests.run.scenes import GGUF, KNOWN
from tests.run.world import WorldBase as World


def given(omni: World, name: str, **inputs: str) -> list[str]:
    """The command that runs a shipped one."""
    all_inputs = {"ram_floor": "64MiB", "reports": str(omni.root / "reports"), **inputs}
    if name == "kt-sglang-resurrection":
        all_inputs["models"] = str(omni.root)
    pairs = [word for pair in all_inputs.items() for word in ("--input", "=".join(pair))]
    return ["run", name, "--json", *pairs]


def is_refused(omni: World, name: str) -> None:
    """Nobody overrides what is known to be in its way."""
    refused = omni.console(*given(omni, name))
    assert refused.code == 9, refused
    assert "known-blocker=WHY" in refused.err + refused.out


def run(omni: World, name: str, **inputs: str) -> str:
    """Run a shipped one by its name; the output of its only step that ran."""
    done = omni.console(*given(omni, name, **inputs), *KNOWN)
    assert done.code == 3, done
    assert done.json["decision"] == "no_go"
    states = {step.id: str(step.state) for step in omni.view().steps}
    assert states["fits"] == "succeeded"
    assert states["here"] == "pending"
    assert states["build" if "build" in states else "kernel"] == "pending"
    assert omni.serves(), "the baseline never stopped"
    (report,) = (omni.root / "reports").glob("*.md")
    assert "NO-GO" in report.read_text()
    return " ".join(omni.run.attempt_log("fits", 1).read_text().split())


def test_the_resurrection_ends_at_format_processor_and_size(omni: World) -> None:
    is_refused(omni, "kt-sglang-resurrection")
    said = run(omni, "kt-sglang-resurrection")
    for words in (
        "163 files, 641.3 GiB (688.6 GB)",
        "converting FP8 experts ended in a segmentation fault",
        "AMX kernels run on processors with AMX",
        "host RAM has 354.0 GiB and needs", "GiB short",
    ):  # fmt: skip
        assert words in said


def test_a_gguf_is_no_input_for_the_conversion(omni: World) -> None:
    said = run(omni, "kt-sglang-resurrection", source=GGUF, include="*Q4_K_M*")
    assert "GGUF of any quantization is no input" in said
    assert "download the safetensors checkpoint" in said


def test_the_evaluation_ends_at_memory_and_writes_nothing_beside_the_shipped_files(
    omni: World,
) -> None:
    def files() -> set[Path]:
        return {path for path in shipped().rglob("*") if "__pycache__" not in path.parts}

    before = files()
    is_refused(omni, "kt-sglang-evaluation")
    said = run(omni, "kt-sglang-evaluation")
    assert files() == before
    assert "converting FP8 experts ended in a segmentation fault" in said
    assert "624 GB of INT8 experts met 474 GB of memory" in said
    assert "host RAM has 354.0 GiB and needs 699.3 GiB: 345.3 GiB short" in said


def test_the_evaluation_of_int4_ends_at_the_processor(omni: World) -> None:
    said = run(omni, "kt-sglang-evaluation", method="MOE_INT4")
    assert "compiled for ARM (KML) and Intel (AMX) only, not for AMD's BLIS" in said
