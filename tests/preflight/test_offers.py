"""What else of a repository is offered after a NO-GO: judged as the question was."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from tests.testbed import hub_shapes, quantizations
from tests.testbed.hub import File, LocalHub, Repo, files

GIB = 1 << 30
SITE = """\
schema: omni.site/v1
name: here
baseline:
  container: nothing
  url: "http://127.0.0.1:1"
machine:
  ram: 128GiB
  swap: 0GiB
  disk_free: 4000GB
gpus:
  - {name: card, uuid: GPU-00000000-0000-0000-0000-000000000001, memory: 32GiB, compute: "8.0"}
"""
CONFIG = hub_shapes.QWEN_32B
FP8 = CONFIG | {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}}
Checked = Callable[..., tuple[int, dict[str, Any]]]


def weights(total: int, shards: int, folder: str = "", lacks: int = 0) -> dict[str, File]:
    """A sharded set and its index; `lacks` is the number of a file that is not there."""
    parts = hub_shapes.sharded([(f"w{n}", total // 64) for n in range(64)], shards)
    gone = f"model-{lacks:05}-of-{shards:05}.safetensors"
    return files({f"{folder}{path}": one for path, one in parts.items() if path != gone})


def config(folder: str = "", what: dict[str, Any] = CONFIG) -> dict[str, File]:
    return files({f"{folder}config.json": what})


@pytest.fixture(scope="module")
def served() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


@pytest.fixture
def hub(served: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    site = tmp_path / "site.yaml"
    site.write_text(SITE)
    for name, value in {
        "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "hf"), "OMNI_SITE": str(site),
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return served


@pytest.fixture
def checked(hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> Checked:
    def ask(*argv: str) -> tuple[int, dict[str, Any]]:
        code = main(["check", "checkpoint", argv[0], "--json", *argv[1:]])
        return code, json.loads(capsys.readouterr().out)

    return ask


WHOLE = config() | weights(65 * GIB, 8)
SGLANG = ("--engine", "sglang", "--ctx", "8192")


@pytest.mark.parametrize(
    "beside",
    [
        config("small/") | weights(20 * GIB, 4, "small/", lacks=3),
        weights(20 * GIB, 4, "original/"),  # a trainer's copy: no config.json beside it
        files({"metal/model.bin": 20 * GIB}),
    ],
    ids=["lacks a shard", "another format's copy", "a format of another program"],
)
def test_what_cannot_be_loaded_is_never_offered(
    beside: dict[str, File], hub: LocalHub, checked: Checked
) -> None:
    hub.add(Repo("org/part", WHOLE | beside))
    code, found = checked("org/part", *SGLANG)
    assert (code, found["verdict"]) == (3, "NO-GO")
    assert not any("20" in words for words in found["would_make_it_go"])


def test_a_whole_set_is_offered_with_the_verdict_it_has_when_asked_about(
    hub: LocalHub, checked: Checked
) -> None:
    hub.add(Repo("org/two", WHOLE | config("small/") | weights(20 * GIB, 4, "small/")))
    _, found = checked("org/two", *SGLANG)
    _, alone = checked("org/two", "--include", "small/*", *SGLANG)
    offered = [words for words in found["would_make_it_go"] if "in small/" in words]
    assert offered == [f"safetensors bfloat16 in small/ (20.0 GiB): {alone['verdict']}"]


@pytest.mark.parametrize(
    ("engine", "args", "why"),
    [
        ("vllm", "vllm serve org/other", "org/other, which is not org/plain"),
        ("vllm", "--model org/other", "org/other, which is not org/plain"),
        ("vllm", "vllm serve ORG/plain", ""),
        ("vllm", "vllm serve /models/plain", ""),
        ("sglang", "--model-path org/plain --model-path /m/other", "the last of several"),
        ("sglang", "--model-path org/other", "org/other, which is not org/plain"),
    ],
)
def test_a_checkpoint_that_another_command_loads_is_named(
    engine: str, args: str, why: str, hub: LocalHub, checked: Checked
) -> None:
    hub.add(Repo("org/plain", config() | weights(2 * GIB, 1)))
    _, found = checked("org/plain", "--engine", engine, "--args", *args.split())
    named = [one["words"] for one in found["findings"] if one["title"] == "another model"]
    assert [why in words for words in named] == ([True] if why else [])


def test_a_set_that_the_cards_have_no_kernels_for_is_not_offered(
    hub: LocalHub, checked: Checked, tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(SITE.replace('"8.0"', '"7.5"'))
    hub.add(Repo("org/fp8", config(what=FP8) | weights(65 * GIB, 8) | config("small/", FP8)
                 | weights(20 * GIB, 4, "small/")))  # fmt: skip
    _, alone = checked("org/fp8", "--include", "small/*", *SGLANG)
    assert alone["verdict"] == "NO-GO"
    _, found = checked("org/fp8", *SGLANG)
    assert not any("small/" in words for words in found["would_make_it_go"])


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ("-hf org/other:Q4_K_M", "the command loads org/other:Q4_K_M (--hf-repo)"),
        ("-hf org/named:Q8_0 -hff y-Q8_0.gguf", "the command loads y-Q8_0.gguf (--hf-file)"),
        ("-hf org/named:Q4_K_M", ""),
        ("-hf org/named:Q8_0", "the command loads Q8_0 of org/named (--hf-repo)"),
        ("-hf org/named", ""),
        ("-dr ai/other:4B", "the command loads ai/other:4B (--docker-repo)"),
        ("-mu https://h/org/other/resolve/main/x-Q4_K_M.gguf", "(--model-url)"),
        ("-mu https://h/org/named/resolve/main/x-Q4_K_M.gguf", ""),
        ("-m /m/x-Q4_K_M.gguf -m /m/y.gguf", "2 times, and loads the last, /m/y.gguf"),
        ("-m /m/y.gguf -m /m/x-Q4_K_M.gguf", ""),
        ("-m /m/renamed.gguf", ""),
        ("--hf-repo-v org/voice", "--hf-repo-v"),
        ("-hf ORG/Named -hff x-Q4_K_M.gguf", ""),
    ],
)
def test_a_command_that_loads_something_else_is_named(
    args: str, why: str, hub: LocalHub, checked: Checked
) -> None:
    (file,) = quantizations.repository("dense", ("Q4_0",)).values()
    hub.add(Repo("org/named", {"x-Q4_K_M.gguf": file}))
    _, found = checked("org/named", "--engine", "llama.cpp", "--args", f"{args} -c 8192")
    assert found["verdict"] == ("UNKNOWN" if why else "GO"), found
    assert why in found["because"]
