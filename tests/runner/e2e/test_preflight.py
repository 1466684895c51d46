"""What ends real runs before anything is paid for: preflight steps, and a shipped trial."""

import json
import shutil
from pathlib import Path

import pytest

from console.checks.preflight.architecture.names import probe
from console.config.locate import shipped
from tests.rehearsal import checkpoint
from tests.runner.e2e.sites import book
from tests.runner.e2e.world import World
from tests.runner.scenes import KNOWN, output
from tests.sizing import tiny
from tests.testbed.engine import Engine
from tests.testbed.hub import LocalHub
from tests.testbed.nvml import RTX_5090, RTX_PRO_6000, Nvml
from tests.testbed.python_image import ensure_packages_image

UUIDS = ("GPU-f4f210c1-5a52-7267-979e-fe922961190a", "GPU-bfbb9aa1-3d36-b47b-988f-5752cfc54601")
TORCH = {"torch.py": "class cuda:\n    get_arch_list = staticmethod(lambda: ['sm_90', 'sm_120'])\n"}
KT = {
    "kt_kernel.py": "", "ktransformers/__init__.py": "", "ktransformers/server/__init__.py": "",
    "ktransformers/server/main.py": "import ktransformers.custom_cache\n",
    "ktransformers/local_chat.py": "import ktransformers.custom_cache\n",
}  # fmt: skip


def test_an_architecture_that_the_build_refuses_cites_the_lesson(
    world: World, hub: LocalHub
) -> None:
    tiny.deepseek2().write(world.root / "deepseek2.gguf")
    (world.root / "deepseek3_2.gguf").write_bytes(probe("deepseek3_2"))
    known = "id: known, gguf: {file: deepseek2.gguf}"
    refused = "id: refused, gguf: {file: deepseek3_2.gguf}"
    done = world.go(world.write("b.yaml", book(known, refused)))
    assert done.code == 3, done
    assert done.json["decision"] == "no_go"
    verdicts = {v["step"]: v["verdict"] for v in done.json["verdicts"]}
    assert verdicts == {"known": "GO", "refused": "NO-GO"}
    assert "F-008" in output(world, "refused")
    assert "unknown model architecture" in output(world, "refused")


@pytest.mark.engine
def test_a_missing_image_of_a_build_step_is_not_to_be_pulled(world: World, engine: Engine) -> None:
    """The look, the check and the one-off container say the same: which step builds it."""
    build = "id: make, when: false, build: {context: ., tag: 'omni-test/unbuilt:1'}"
    wants = "on_failure: continue"
    path = world.write("b.yaml", book(
        build,
        f"id: check, check: {{image: 'omni-test/unbuilt:1'}}, {wants}",
        f"id: one-off, run: [x], where: {{image: 'omni-test/unbuilt:1'}}, {wants}",
        "id: chain, imports: {image: 'omni-test/unbuilt:1', modules: [x]}, on_no_go: continue",
    ))  # fmt: skip
    done = world.console("run", str(path), "--json", **engine.env())
    assert output(world, "chain").count("step make of this playbook builds it") == 1
    steps = {step["id"]: json.dumps(step) for step in done.json["steps"]}
    assert "step make of this playbook builds it" in steps["check"]
    shown = world.console("show", world.run.id).out
    assert shown.count("step make of this playbook builds it; or by hand: cd ") >= 1
    assert "docker pull" not in shown + "".join(steps.values())


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
        "images_free": "1MiB", "reports": omni.root, "torch_image": torch, "image": broken,
    }  # fmt: skip
    pairs = [word for key, value in inputs.items() for word in ("--input", f"{key}={value}")]
    path = str(book / "operation-lazarus.yaml")
    done = omni.console("run", path, "--json", *KNOWN, *pairs, **env)
    assert done.code == 3, done
    states = omni.states()
    assert states.items() >= {
        "fits": "succeeded", "config": "skipped", "build-torch": "skipped", "sm120": "succeeded",
        "build": "skipped", "up": "pending",
    }.items()  # fmt: skip
    said = output(omni, "chain")
    assert "ModuleNotFoundError: No module named 'sched_ext'" in said
    assert "F-018, F-023" in said
    assert omni.serves()
