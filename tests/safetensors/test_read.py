"""Bytes by class from a few headers, beside those of the tensors themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.checks.preflight.readings import described, facts_of
from console.models.gguf.byte_source import GgufError
from console.models.hub import local_files
from console.models.hub.checkpoint import read
from console.models.hub.listing import Listing, RemoteFile
from console.models.safetensors import names
from console.models.sizing.model_facts import Kind, ModelFacts
from tests.safetensors import checkpoints as stored
from tests.testbed.hub import File, LocalHub, Repo
from tests.testbed.hub_shapes import DEEPSEEK, deepseek_checkpoint, sharded

SPARE = (Kind.SKIPPED,)


def listing(hub: LocalHub, repo: Repo) -> Listing:
    hub.add(repo)
    files = tuple(RemoteFile(path, one.size, one.sha256) for path, one in repo.files.items())
    return Listing(repo.name, repo.commit, hub.url, files)


def facts(held: Listing) -> ModelFacts:
    about = described(held)
    chosen = read(held, config=about.config, index=about.index).choose()
    return facts_of(held, chosen, [], about)


def headers(hub: LocalHub) -> int:
    return len([seen for seen in hub.seen if seen.status == 206])


MIXED = {
    "Kimi-K2-Thinking": (stored.KIMI, stored.kimi_k2_thinking, 62, 6),
    "gpt-oss-120b": (stored.GPT_OSS, stored.gpt_oss_120b, 15, 4),
    "Maverick-FP8": (stored.MAVERICK, stored.maverick_fp8, 84, 5),
    "GPTQ of one kind": (stored.MIXED_BITS, stored.gptq_mixed, 24, 24),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_precision_is_read_and_not_shared_out(hub: LocalHub, name: str) -> None:
    config, tensors, shards, most = MIXED[name]
    made = tensors()
    found = facts(listing(hub, stored.repo("org/m", config, made, shards)))
    experts = found.bytes_of(Kind.EXPERTS)
    assert found.weight_bytes - experts == stored.dense(made)
    assert experts == sum(map(stored.size, made)) - stored.dense(made)
    assert 1 <= headers(hub) <= most, found.weights_from
    assert found.missing == ()


def test_one_file_is_read_too(hub: LocalHub) -> None:
    made = stored.gpt_oss_120b()
    found = facts(listing(hub, stored.repo("org/m", stored.GPT_OSS, made, 1)))
    assert found.weight_bytes - found.bytes_of(Kind.EXPERTS) == stored.dense(made)
    assert (headers(hub), "1 header" in found.weights_from) == (1, True)


def test_a_directory_is_read_too(tmp_path: Path) -> None:
    repo = stored.repo("org/m", stored.MAVERICK, made := stored.maverick_fp8(), 4)
    for path, one in repo.files.items():
        with (tmp_path / path).open("wb") as handle:
            handle.write(one.head)
            handle.truncate(one.size)
    found = facts(local_files.local(tmp_path))
    assert found.weight_bytes - found.bytes_of(Kind.EXPERTS) == stored.dense(made)
    assert "4 headers" in found.weights_from


def test_layers_that_guess_ahead_are_apart(hub: LocalHub) -> None:
    made = list(deepseek_checkpoint())
    shape = Repo("org/m", stored.files({"config.json": DEEPSEEK, **sharded(made, 200, digits=6)}))
    found = facts(listing(hub, shape))
    ahead = sum(size for name, size in made if name.startswith("model.layers.61."))
    assert found.bytes_of(Kind.SKIPPED) == ahead
    assert found.weight_bytes == sum(size for _, size in made)
    assert len(hub.seen) <= 12, [seen.path for seen in hub.seen]
    assert 8e6 < hub.sent < 12e6, "index, listing and headers, as they go over the wire"


def test_an_index_that_lies_costs_requests_and_no_truth(hub: LocalHub) -> None:
    """It puts tensors into files that lack them, and claims another sum."""
    made = stored.kimi_k2_thinking(experts=16)
    repo = stored.repo("org/m", stored.KIMI, made, 8, total=1)
    index = json.loads(repo.files["model.safetensors.index.json"].head)
    shards = sorted(set(index["weight_map"].values()))
    for name in list(index["weight_map"])[::7]:
        index["weight_map"][name] = shards[0]
    index["weight_map"]["model.layers.9.nowhere.weight"] = shards[3]
    repo.files["model.safetensors.index.json"] = File.of(json.dumps(index).encode())
    found = facts(listing(hub, repo))
    assert found.weight_bytes - found.bytes_of(Kind.EXPERTS) == stored.dense(made)
    assert found.weight_bytes == sum(map(stored.size, made))


def test_without_headers_the_share_is_an_estimate_and_said(hub: LocalHub) -> None:
    hub.ignore_range = True
    made = stored.gpt_oss_120b() + [(f"note.{n}", "BF16", (1,)) for n in range(2000)]
    found = facts(listing(hub, stored.repo("org/m", stored.GPT_OSS, made, 1)))
    assert "an estimate" in found.weights_from
    assert "ignores Range" in found.weights_from
    share = (found.weight_bytes - found.bytes_of(Kind.EXPERTS)) / stored.dense(made)
    assert share == pytest.approx(1, abs=0.02), "the list of what is not quantized says it"
    bare: dict[str, Any] = {**stored.GPT_OSS, "quantization_config": {"quant_method": "mxfp4"}}
    found = facts(listing(hub, stored.repo("org/n", bare, made, 1)))
    assert "how many of the bytes are experts" in found.missing[0]


def test_a_header_that_no_loader_takes_is_no_estimate(hub: LocalHub) -> None:
    repo = stored.repo("org/m", stored.GPT_OSS, stored.gpt_oss_120b(), 15)
    broken = "model-00001-of-00015.safetensors"
    repo.files[broken] = File(repo.files[broken].size, b"\0" * 64)
    with pytest.raises(GgufError, match="no safetensors file"):
        facts(listing(hub, repo))


def test_what_layer_is_beyond_the_last_is_named(hub: LocalHub) -> None:
    made = stored.kimi_k2_thinking(experts=4)
    made.append(("model.layers.99.mlp.gate.weight", "BF16", (4, 4)))
    found = facts(listing(hub, stored.repo("org/m", stored.KIMI, made, 2)))
    assert "what layer 99 is" in found.missing[0]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.layers.3.mlp.experts.7.up_proj.weight", names.Role.EXPERTS),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", names.Role.REST),
        ("model.layers.3.mlp.shared_expert_gate.weight", names.Role.REST),
        ("model.layers.3.block_sparse_moe.experts.1.w1.weight", names.Role.EXPERTS),
        ("model.layers.3.block_sparse_moe.input_linear.weight", names.Role.EXPERTS),
        ("model.layers.3.block_sparse_moe.gate.weight", names.Role.REST),
        ("transformer.blocks.2.ffn.experts.mlp.w1", names.Role.EXPERTS),
        ("model.language_model.layers.0.mlp.experts.gate_up_proj", names.Role.EXPERTS),
        ("model.layers.5.feed_forward.router.weight", names.Role.REST),
        ("backbone.layers.1.mixer.experts.4.up_proj.weight", names.Role.EXPERTS),
        ("model.visual.blocks.3.mlp.fc1.weight", names.Role.BESIDE),
        ("model.vision_tower.layers.2.experts.weight", names.Role.BESIDE),
        ("multi_modal_projector.linear_1.weight", names.Role.BESIDE),
        ("mtp.layers.0.mlp.experts.3.up_proj.weight", names.Role.AHEAD),
        ("transformer.wte.weight", names.Role.TOKENS),
        ("language_model.model.embed_tokens.weight", names.Role.TOKENS),
        ("language_model.lm_head.weight", names.Role.OUTPUT),
        ("transformer.output_layer.weight", names.Role.OUTPUT),
        ("model.layers.0.attention.output.weight", names.Role.REST),
    ],
)
def test_what_a_name_tells(name: str, role: names.Role) -> None:
    assert names.role(names.group(name)[0]) is role


def test_a_checkpoint_of_two_hundred_files_costs_little(hub: LocalHub) -> None:
    """92,000 tensors: the config, the index, and headers of the files that differ in kind."""
    made = sharded(list(deepseek_checkpoint()), 200, digits=6)
    found = facts(listing(hub, Repo("org/m", stored.files({"config.json": DEEPSEEK, **made}))))
    ranges = [seen.range.removeprefix("bytes=").split("-") for seen in hub.seen if seen.range]
    read = sum(int(last) - int(first) + 1 for first, last in ranges) // 2  # asked for twice
    assert "4 of 200 headers" in found.weights_from
    assert len(hub.seen) == 2 + 4 * 2
    assert read < 200_000
