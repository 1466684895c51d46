"""Whose options a command line has: of llama.cpp, of ik_llama.cpp, or of a baseline that served."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from console.checks.preflight.architecture.check import Command, has_served, loader_for
from console.checks.preflight.compatibility import Loader, plan_of
from console.checks.preflight.of_site import _asking
from console.config.site.site import SiteModel, load_site
from console.models.hub.checkpoint import Format
from console.models.sizing.flags.llama import llama_plan
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.evidence import keep
from tests.preflight.test_build_options import Build


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
    spec = Command("baseline", ("/x/llama-server", "-m", "/x/m.gguf", "--no-mmap"), {})
    loader = loader_for(site, "", "", (), None, spec)
    assert (loader.own, loader.served) == (True, False)
    proof = Evidence(Kind.PROOF, Word.SERVING, time.time(), Witness.VERIFY)
    keep(site.name, site.baseline.url, proof)
    assert loader_for(site, "", "", (), None, spec).served


def test_a_measured_baseline_has_served(tmp_path: Path) -> None:
    assert has_served(site_of(tmp_path, ", reference: {tok_s: 20, tolerance: 0.1}"))


def test_a_build_that_refuses_an_option_and_may_be_another_one_is_named(tmp_path: Path) -> None:
    build = Build(lacks=("--no-mmap",))
    words = {"--no-mmap": ("--no-mmap",), "--mlock": ("--mlock",)}
    takes = _asking(lambda: build, sure=False)(words)
    (told,) = llama_plan(["-c", "1", "--no-mmap", "--mlock"], takes=takes).unsettled
    assert "as the baseline's llama-server (build 11669" in told
    assert told.endswith("does: is it the one?")
    assert _asking(lambda: build, sure=True)(words) == {"--no-mmap": False, "--mlock": True}
