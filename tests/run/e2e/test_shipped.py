"""Shipped trials on the example site's machine end before anything is paid for, with the sum."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from console.config.locate import shipped
from tests.rehearsal import checkpoint
from tests.run.e2e.world import World
from tests.run.scenes import KNOWN
from tests.testbed.engine import Engine
from tests.testbed.nvml import RTX_5090, RTX_PRO_6000, Nvml
from tests.testbed.python_image import ensure_packages_image

UUIDS = ("GPU-f4f210c1-5a52-7267-979e-fe922961190a", "GPU-bfbb9aa1-3d36-b47b-988f-5752cfc54601")
TORCH = {"torch.py": "class cuda:\n    get_arch_list = staticmethod(lambda: ['sm_90', 'sm_120'])\n"}
KT = {
    "kt_kernel.py": "", "ktransformers/__init__.py": "", "ktransformers/server/__init__.py": "",
    "ktransformers/server/main.py": "import ktransformers.custom_cache\n",
    "ktransformers/local_chat.py": "import ktransformers.custom_cache\n",
}  # fmt: skip


def packages(engine: Engine, files: dict[str, str]) -> str:
    return ensure_packages_image(engine, {name: text.encode() for name, text in files.items()})


@pytest.mark.engine
def test_lazarus_ends_at_the_import_chain(
    omni: World, engine: Engine, nvml: Nvml, tmp_path: Path
) -> None:
    """Images stand in for the built ones, and without a driver nothing can be given a card."""
    torch = packages(engine, TORCH)
    broken = packages(engine, TORCH | KT | {"ktransformers/custom_cache.py": "import sched_ext\n"})
    book = tmp_path / "lazarus"
    shutil.copytree(shipped(), book)
    text = (book / "operation-lazarus.yaml").read_text()
    assert "gpus: all, " in text
    (book / "operation-lazarus.yaml").write_text(text.replace("gpus: all, ", ""))
    cards = (RTX_PRO_6000.but(uuid=UUIDS[0]), RTX_5090.but(uuid=UUIDS[1]))
    env = {**engine.env(), **nvml.env(nvml.write(tmp_path / "cards", cards))}
    weights = checkpoint.put("q4_k_m", omni.root)
    for name in ("config.json", "tokenizer.json"):
        path = omni.root / "deepseek-r1-config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    inputs = {
        "models": omni.root, "gguf": weights.name, "ram_floor": "64MiB", "images_disk": omni.root,
        "images_free": "1MiB", "reports": omni.root,
        "torch_image": torch, "image": broken,
    }  # fmt: skip
    pairs = [word for key, value in inputs.items() for word in ("--input", f"{key}={value}")]
    path = str(book / "operation-lazarus.yaml")
    done = omni.console("run", path, "--json", *KNOWN, *pairs, **env)
    assert done.code == 3, done
    states = {step.id: str(step.state) for step in omni.view().steps}
    assert (states["fits"], states["config"]) == ("succeeded", "skipped")
    assert (states["build-torch"], states["sm120"], states["build"]) == (
        "skipped", "succeeded", "skipped",
    )  # fmt: skip
    assert states["up"] == "pending"
    said = " ".join(omni.run.attempt_log("chain", 1).read_text().split())
    assert "ModuleNotFoundError: No module named 'sched_ext'" in said
    assert "F-018, F-023" in said
    assert omni.serves()


@pytest.mark.engine
def test_a_missing_image_is_a_clear_answer(omni: World, engine: Engine) -> None:
    text = (shipped() / "operation-lazarus.yaml").read_text()
    start, end = text.index("      - id: chain"), text.index("  - title: Benchmark")
    (step,) = [text[start:end]]
    head = "schema: omni.playbook/v1\nname: chain\ntitle: The chain\n"
    head += 'inputs: {image: {type: string, default: "omni/ktransformers:phase3"}}\n'
    book = omni.write("b.yaml", f"{head}phases:\n  - title: Only\n    steps:\n{step}")
    done = omni.console("run", str(book), "--json", **engine.env())
    assert done.code == 3, done
    said = " ".join(omni.run.attempt_log("chain", 1).read_text().split())
    assert "image omni/ktransformers:phase3: is not on this machine" in said
