"""Shipped trials on the example site's machine end before anything is paid for, with the sum."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.document.reader import parse
from console.viewer.site import shipped
from tests.run.world import WorldBase as World
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub

R1 = "deepseek-ai/DeepSeek-R1"
GGUF = "unsloth/DeepSeek-R1-GGUF"
DECLARED = ("machine", "gpus", "aliases")
UUIDS = ("GPU-f4f210c1-5a52-7267-979e-fe922961190a", "GPU-bfbb9aa1-3d36-b47b-988f-5752cfc54601")
TORCH = {"torch.py": "class cuda:\n    get_arch_list = staticmethod(lambda: ['sm_90', 'sm_120'])\n"}
KT = {
    "kt_kernel.py": "", "ktransformers/__init__.py": "", "ktransformers/server/__init__.py": "",
    "ktransformers/server/main.py": "import ktransformers.custom_cache\n",
    "ktransformers/local_chat.py": "import ktransformers.custom_cache\n",
}  # fmt: skip


@pytest.fixture
def omni(world: World) -> Iterator[World]:
    """The world's own baseline on the machine that the example site declares, and its hub."""
    text = (shipped() / "sites/omni.yaml").read_text()
    example = parse(text, "omni.yaml", "").data
    mine = json.loads(world.site.read_text())
    world.site.write_text(json.dumps(mine | {key: example[key] for key in DECLARED}))
    with LocalHub() as hub:
        hub.add(*(hub_shapes.repo(name) for name in (R1, GGUF)))
        world.env |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(world.root / "hf")}
        yield world


KNOWN = ("--override", "known-blocker=to see where it ends today")


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
