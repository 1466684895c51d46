"""The environment as `hf` reads it, small JSON from a repository, and what only looks like it."""

import gzip
import json
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import UsageError
from console.models.hub import errors, model_config, settings
from console.models.hub.errors import HubRequest
from console.models.hub.listing import Listing, RemoteFile
from tests.gguf.server import Exchange, serving
from tests.hub.conftest import listed
from tests.testbed.hub import File, LocalHub, Repo, files

CONFIG = {"architectures": ["X"], "hidden_size": 7168}


def served(hub: LocalHub, body: bytes | File, **trouble: Any) -> Listing:
    """config.json with that body, and its listing."""
    return listed(hub, Repo("org/model", files({"config.json": body}), **trouble))


def test_the_file_of_the_pinned_commit(hub: LocalHub) -> None:
    listing = served(hub, json.dumps(CONFIG).encode())
    assert model_config.fetch_config(listing) == CONFIG
    (seen,) = hub.seen
    assert seen.path == f"/org/model/resolve/{listing.commit}/config.json"


@pytest.mark.parametrize(
    ("body", "title", "hint"),
    [
        (b"", "is empty", "ended early"),
        (b" \n", "is empty", "ended early"),
        (b'{"hidden_size": 40', "ends too early", "ended early"),
        (b'{"model_type": "lla', "ends too early", "ended early"),
        (b'{"hidden_size": 4096,', "ends too early", "ended early"),
        (b"<!DOCTYPE html><title>Sign in</title>", "is a web page", "a login answered"),
        (b"\n<html>", "is a web page", "a login answered"),
        (json.dumps(CONFIG).encode("utf-16"), "is not in UTF-8", "save it so"),
        (json.dumps(CONFIG).encode("utf-16-le"), "is not in UTF-8", "save it so"),
        (json.dumps(CONFIG).encode("utf-8-sig"), "is not in UTF-8", "save it so"),
        (b'{"_name": "Caf\xe9"}', "is not in UTF-8", "save it so"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer", "large files"),
        (b'{"hidden_size": 4096,}', "is not JSON", "mend it there"),
        (b'{"hidden_size": 4096} x', "is not JSON", "mend it there"),
        (b"[1, 2]", "is no JSON object", "no configuration of a model"),
    ],
)
def test_what_is_wrong_with_a_damaged_file_is_said(body: bytes, title: str, hint: str) -> None:
    with pytest.raises(errors.HubAnswer) as caught:
        model_config.parse("config.json", body)
    assert title in str(caught.value)
    assert hint in caught.value.hint
    assert "firewall" not in caught.value.hint


def test_a_repository_without_one(hub: LocalHub) -> None:
    listing = Listing("org/model", "c" * 40, hub.url, ())
    assert model_config.fetch_config(listing) is None
    assert model_config.fetch_index(listing) is None
    with pytest.raises(errors.FileMissing, match=r"no generation\.json"):
        model_config.fetch_json(listing, "generation.json")
    assert hub.seen == []


def test_the_token_stays_with_the_hub(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    body = json.dumps(CONFIG).encode()
    listing = served(hub, File.of(body, lfs=True))
    assert model_config.fetch_config(listing) == CONFIG
    assert [(seen.cdn, seen.token) for seen in hub.seen] == [(False, "secret"), (True, "")]


def test_too_large_by_the_listing_is_not_fetched(hub: LocalHub) -> None:
    listing = served(hub, File(5 << 20))
    with pytest.raises(errors.HubAnswer, match="larger than"):
        model_config.fetch_config(listing)
    assert hub.seen == []


def test_too_large_although_the_listing_says_otherwise(hub: LocalHub) -> None:
    listing = served(hub, File(900 << 20, b"{", lfs=False))
    small = Listing(
        "org/model", listing.commit, hub.url, (listing.files[0].__class__("config.json", 9),)
    )
    with pytest.raises(errors.HubAnswer, match="larger than"):
        model_config.fetch_config(small)


def test_a_packed_answer_is_read_within_the_limit() -> None:
    httpx = pytest.importorskip("httpx")
    asked = HubRequest("org/model", "c" * 40, "http://h", False)

    def fetch(body: bytes, coding: str, limit: int = 1000) -> bytes:
        transport = httpx.MockTransport(
            lambda request: httpx.Response(200, stream=httpx.ByteStream(body),
                                           headers={"content-encoding": coding})
        )  # fmt: skip
        with httpx.Client(transport=transport) as client:
            pace = model_config._Pace()
            return model_config._body(client, asked, "http://h/x", "config.json", limit, pace)

    assert fetch(gzip.compress(b"{}"), "gzip") == b"{}"
    assert fetch(zlib.compress(b"{}"), "deflate") == b"{}"
    with pytest.raises(errors.HubAnswer, match="larger than"):
        fetch(gzip.compress(b"0" * (64 << 20)), "gzip")
    with pytest.raises(errors.HubAnswer, match="damaged"):
        fetch(b"not gzip", "gzip")
    with pytest.raises(errors.HubAnswer, match="came as br"):
        fetch(b"", "br")


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        (errors.RepositoryGated, "gated"),
        (errors.RepositoryMissing, "gone"),
        (errors.RevisionMissing, "rewritten"),
        (errors.HubTimeout, "silent"),
        (errors.HubUnreachable, "unreachable"),
    ],
)
def test_refusals(hub: LocalHub, kind: type[errors.HubError], trouble: str) -> None:
    listing = served(hub, b'{"a": 1}', gated="auto" if trouble == "gated" else "")
    if trouble == "gone":
        hub.repos.clear()
    if trouble == "rewritten":
        hub.repos["org/model"].files["new"] = File(1)
    if trouble == "silent":
        hub.hold("config.json", 1)
    if trouble == "unreachable":
        listing = Listing("org/model", listing.commit, "http://127.0.0.1:1", listing.files)
    with pytest.raises(errors.HubError) as caught:
        model_config.fetch_json(
            listing, "config.json", deadline_s=0.3 if trouble == "silent" else 20.0
        )
    assert type(caught.value) is kind
    assert caught.value.hint


def test_bytes_too_slow_to_be_of_use_are_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_config, "SILENCE_S", 0.5)

    def drips(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("Content-Length", "4000")
        exchange.end_headers()
        while not exchange.server.stop.wait(0.05):
            exchange.wfile.write(b" ")

    with serving(drips) as server:
        held = Listing("org/model", "c" * 40, server.url, (RemoteFile("config.json", 4000),))
        begun = time.monotonic()
        with pytest.raises(errors.HubTimeout, match="does not come") as caught:
            model_config.fetch_json(held, "config.json")
    assert time.monotonic() - begun < 10
    assert "in 0.5 s" in caught.value.title


def test_an_index() -> None:
    shards = {"a.weight": "model-1.safetensors", "b.weight": "model-1.safetensors"}
    found = model_config.read_index({"metadata": {"total_size": 12.0}, "weight_map": shards})
    assert found == model_config.Index(frozenset({"model-1.safetensors"}), 12)
    for total in (True, -1, "12", 2**70, float("inf"), None):
        assert model_config.read_index(
            {"metadata": {"total_size": total}, "weight_map": shards}
        ) == (model_config.Index(frozenset({"model-1.safetensors"})))
    maps: list[Any] = [[], {}, {"a": 1}]
    unnamed: list[dict[str, Any]] = [{}, *({"weight_map": odd} for odd in maps)]
    for odd in unnamed:
        with pytest.raises(errors.HubAnswer, match="names no files"):
            model_config.read_index(odd)
    with pytest.raises(errors.HubAnswer, match="no path"):
        model_config.read_index({"weight_map": {"a": "../../etc/passwd"}})


def quantized(method: str, **more: object) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **more}}


@pytest.mark.parametrize(
    ("said", "words", "short"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16", "bf16"),
        ({"dtype": "torch.float16"}, "float16", "fp16"),
        ({"dtype": "float32"}, "float32", "float32"),
        (quantized("blockwise_int8", weight_block_size=[128, 128]),
         "blockwise_int8, blocks of 128x128", "block_int8"),
        (quantized("fp8", fmt="e4m3"), "fp8 (e4m3)", "fp8"),
        (quantized("fbgemm_fp8"), "fbgemm_fp8", "fp8"),
        (quantized("awq", bits=4, group_size=128), "awq, 4 bits, groups of 128", "awq"),
        (quantized("gptq", bits=4), "gptq, 4 bits", "gptq"),
        (quantized("bitsandbytes", load_in_4bit=True), "bitsandbytes, 4 bits",
         "bitsandbytes, 4 bits"),
        (quantized("compressed-tensors", format="int-quantized"), None, "int8"),
        (quantized("compressed-tensors", format="float-quantized"), None, "fp8"),
        (quantized("mxfp4"), "mxfp4", "mxfp4"),
        ({"text_config": {"dtype": "bfloat16"}}, "bfloat16", "bf16"),
        (quantized("\x1b[31mred"), "red", "red"),
        ({"quantization_config": "yes", "torch_dtype": 5}, "yes", "yes"),
        ({}, "", ""),
    ],
)  # fmt: skip
def test_quantization_as_config_json_says(
    said: dict[str, Any], words: str | None, short: str
) -> None:
    """And the short name under which engines speak of it."""
    described = model_config.describe(said)
    assert words in (described, None)
    assert model_config.kind(described) == short


ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"HF_HUB_CACHE": "/x/cache"},
    {"HF_HOME": "/x/home"},
    {"HF_HOME": "", "XDG_CACHE_HOME": "/x/xdg"},
    {"HF_HOME": "$HOME/there", "HUGGINGFACE_HUB_CACHE": "~/legacy"},
    {"HF_ENDPOINT": "https://mirror.lan/"},
]
"""An empty value stands for a variable that is not set."""
ASK = """
import importlib, json, os, sys
from huggingface_hub import constants as c
told = []
for env in json.loads(sys.argv[1]):
    before = dict(os.environ)
    os.environ.update(env)
    for name in [name for name, value in env.items() if not value]:
        del os.environ[name]
    importlib.reload(c)
    told.append([c.HF_HUB_CACHE, c.HF_HOME, c.ENDPOINT])
    os.environ.clear()
    os.environ.update(before)
print(json.dumps(told))
"""


def test_places_are_the_librarys_own() -> None:
    argv = [sys.executable, "-c", ASK, json.dumps(ENVIRONMENTS)]
    told = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    for env, expected in zip(ENVIRONMENTS, told, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
                if not value:
                    patch.delenv(name)
            ours = [str(settings.cache()), str(settings.home()), settings.endpoint()]
        assert ours == expected, env


def test_token_of_the_environment_then_of_the_file(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.token() == ""
    (login / "token").write_text("stored\n")
    assert settings.token() == "stored"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert settings.token() == ""
    monkeypatch.setenv("HF_TOKEN", "fromenv")
    assert settings.token() == "fromenv"
    for unusable in ("two words", "esc\x1b"):
        monkeypatch.setenv("HF_TOKEN", unusable)
        assert settings.token() == ""


@pytest.mark.parametrize(
    "text", ["ftp://x", "huggingface.co", "https://", "http://a b", "http://x?y", "http://[::1"]
)
def test_an_address_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", text)
    with pytest.raises(UsageError) as caught:
        settings.endpoint()
    assert "HF_ENDPOINT" in caught.value.hint


def test_an_address_with_a_password_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://op:geheim@mirror.lan")
    with pytest.raises(UsageError) as caught:
        settings.endpoint()
    assert "geheim" not in "\n".join(caught.value.lines())
