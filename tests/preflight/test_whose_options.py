"""Whose options a command line has: of llama.cpp, of ik_llama.cpp, or of a baseline that served."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from console.checks.preflight.architecture.check import (
    Command,
    command_of,
    has_served,
    loader_for,
    of_baseline,
)
from console.checks.preflight.compatibility import Loader, fitting, plan_of
from console.checks.preflight.of_site import Asking
from console.config.site.site import SiteModel, load_site
from console.host.process import ProcessSpec
from console.models.hub.checkpoint import Format
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.loader_plan import VllmPlan
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.evidence import keep
from console.runtime.spec import ServiceSpec
from tests.preflight.test_build_options import Build

ARGV = ("/x/llama-server", "-m", "/x/m.gguf", "--no-mmap")
SPEC = ServiceSpec("baseline", "http://127.0.0.1:9", ProcessSpec(ARGV))


@pytest.mark.parametrize("line", ["-cnv", "-i", "-p hello", "-gan 2", "-c 4096 -rtr"])
def test_options_of_ik_llama_alone_are_named_where_no_engine_is(line: str) -> None:
    def problems(engine: str, *, served: bool = False) -> str:
        loader = Loader("", engine, tuple(line.split()), served=served)
        plan = plan_of(loader, Format.GGUF)
        return "; ".join(getattr(plan, "problems", ()))

    assert "--engine ik_llama.cpp" in problems("")
    assert "is no option of llama.cpp" in problems("llama.cpp")
    assert problems("ik_llama.cpp") == problems("", served=True) == ""


def site_of(tmp_path: Path, reference: str = "") -> SiteModel:
    path = tmp_path / "site.yaml"
    argv = '["/x/llama-server", "-m", "/x/m.gguf", "--no-mmap"]'
    told = f"{{process: {{argv: {argv}}}, url: 'http://127.0.0.1:9'{reference}}}"
    path.write_text(f"schema: omni.site/v1\nname: never-served\nbaseline: {told}\n")
    return load_site(path).model


def test_a_baseline_that_was_never_seen_to_serve_is_not_taken_at_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    site = site_of(tmp_path)
    spec = command_of(SPEC, pytest.fail)
    loader = loader_for(site, "", "", (), None, spec)
    assert (loader.own, loader.served) == (True, False)
    proven(site, spec.life)
    assert loader_for(site, "", "", (), None, spec).served


def proven(site: SiteModel, target: str = "", **more: str) -> None:
    seen = Evidence(Kind.PROOF, Word.SERVING, time.time(), Witness.VERIFY, target=target, **more)
    keep(site.name, site.baseline.url, seen)


def test_a_proof_counts_for_the_command_line_that_was_proven_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever served before the site file was changed licenses nothing of the new flags."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    spec = command_of(SPEC, pytest.fail)
    other = command_of(replace(SPEC, runs=ProcessSpec((*ARGV, "-c", "1"))), pytest.fail)
    site, measured = site_of(tmp_path), site_of(tmp_path, ", reference: {tok_s: 20}")
    for life in ("", other.life):
        proven(site, life)
        assert not loader_for(site, "", "", (), None, spec).served
    assert loader_for(site, "", "", (), None, other).served
    assert not loader_for(measured, "", "", (), None, spec).served
    assert loader_for(measured, "", "", (), None, other).served


@pytest.mark.parametrize(
    ("seen", "life", "counts"),
    [
        ({"container": "base abc"}, "abc", True), ({"container": "base abc"}, "abd", False),
        ({"life": "7 f00"}, "7 f00", True), ({"life": "7 f00"}, "8 f01", False),
    ],
)  # fmt: skip
def test_a_container_by_its_id_and_a_unit_by_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[str, str], life: str, counts: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    site = site_of(tmp_path)
    proven(site, "container", **seen)
    assert has_served(site, Command("baseline", ARGV, {}, life=life)) is counts


def test_a_process_baseline_is_judged_with_its_own_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its flags stand in the site file: they were left out where `args` says nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    site = site_of(tmp_path)
    spec = replace(SPEC, runs=ProcessSpec((*ARGV, "-c", "4096"), (("LLAMA_ARG_N_PARALLEL", "2"),)))
    loader = loader_for(site, "", "", (), None, own=of_baseline(spec))
    assert (loader.own, loader.served, loader.env) == (True, False, {"LLAMA_ARG_N_PARALLEL": "2"})
    plan = plan_of(loader, Format.GGUF)
    assert (getattr(plan, "ctx", 0), getattr(plan, "parallel", 0)) == (4096, 2)
    assert not loader_for(site, "", "", ("-c", "9"), None, own=of_baseline(spec)).own
    assert fitting(loader, Format.SAFETENSORS).args == ()


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("vllm serve /m --max-model-len 4096", "vllm"),
        ("python3 -m sglang.launch_server --model-path /m --context-length 4096", ""),
    ],
)
def test_the_baseline_of_another_engine_keeps_its_own_command_line(
    tmp_path: Path, line: str, engine: str
) -> None:
    """It was dropped as if it were llama.cpp's, and the defaults were judged."""
    site = site_of(tmp_path)
    own = of_baseline(replace(SPEC, runs=ProcessSpec(tuple(line.split()))))
    loader = fitting(loader_for(site, "", "", (), None, own=own), Format.SAFETENSORS)
    assert (loader.args, loader.engine) == (tuple(line.split()), engine)
    assert getattr(plan_of(loader, Format.SAFETENSORS), "ctx", 0) == 4096
    other = fitting(loader_for(site, "", "", (), None, own=own), Format.GGUF)
    assert (other.args, other.engine, other.own) == ((), "", False)


def test_a_measured_baseline_has_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert has_served(site_of(tmp_path, ", reference: {tok_s: 20, tolerance: 0.1}"))


def test_a_build_that_refuses_an_option_and_may_be_another_one_is_named(tmp_path: Path) -> None:
    build = Build(lacks=("--no-mmap",))
    words = {"--no-mmap": ("--no-mmap",), "--mlock": ("--mlock",)}
    takes = Asking(lambda: build, sure=False)(words)
    (told,) = llama_plan(["-c", "1", "--no-mmap", "--mlock"], takes=takes).unsettled
    assert "as the baseline's llama-server (build 11669" in told
    assert told.endswith("does: is it the one?")
    assert Asking(lambda: build, sure=True)(words) == {"--no-mmap": False, "--mlock": True}


def test_the_images_name_tells_engine_and_release(tmp_path: Path) -> None:
    """What is asked of an existing container is its image's id; its name has the release."""
    site = site_of(tmp_path)
    lent = Command("other", ("--max-model-len", "4096"), {}, "sha256:1", called="vllm:v0.8.5")
    loader = loader_for(site, "", "", (), None, lent=lent)
    assert (loader.engine, loader.image, loader.inside) == ("vllm", "vllm:v0.8.5", True)
    plan = plan_of(loader, Format.SAFETENSORS)
    assert isinstance(plan, VllmPlan)
    assert plan.graphs_beyond
    named = loader_for(site, "", "", (), None, lent=replace(lent, called="", image="vllm:v0.22"))
    assert not getattr(plan_of(named, Format.SAFETENSORS), "graphs_beyond", True)
