"""The text of a site file for a server that was found: what it says, and what it never says."""

from dataclasses import replace
from pathlib import Path

import pytest

from console.common.options.engines import LLAMA, VLLM
from console.config.site.draft import DraftDetails, draft, scalar, site_name, without_secrets
from console.config.site.site import Site, load_site
from console.config.yaml import parse
from console.host.process import ProcessSpec
from console.host.sample import Card
from console.host.units import UnitSpec
from console.runtime.discovery.containers import Box, Compose
from console.runtime.discovery.processes import Running
from console.runtime.discovery.servers import Server
from console.runtime.spec import ComposeSpec, ExistingContainer

TOLD = DraftDetails("ws", "site.schema.json", "2026-11-25")
SECRET = "sk-0123456789abcdef"
ARGV = ("./llama-server", "-m", "a b.gguf", "--port", "8000", "--flag", "no", "\u00e4#: {")


def server(**more: object) -> Server:
    one = Running(7, 9, 0, ARGV, "/opt/llama-server", "/opt", {})
    return Server(LLAMA, "http://127.0.0.1:8000", replace(one, **more))  # type: ignore[arg-type]


def loaded(tmp_path: Path, found: Server, told: DraftDetails = TOLD) -> tuple[Site, str]:
    made = draft(found, told)
    path = tmp_path / "site.yaml"
    path.write_text(made.text, "utf-8")
    return load_site(path, lacking=True), made.text


@pytest.mark.parametrize(
    "word",
    ["a", "-m", "--port", "8000", "1e3", "no", "Null", "~", "", "a: b", "#x", "- a", "[", '"', "\\",
     "\n", "\t", "é", "\x1b[31m", "2026-11-25", "0x1f", "a b", "{}", "*x", "&x", "!x", "%x", "@x",
     "true", "-", "--", "a#b", "a:b", "/m/a.gguf", "1.5", ".5", "=", "|"],
)  # fmt: skip
def test_a_word_reads_as_itself(word: str) -> None:
    text = f"a:\n  - {scalar(word)}\nb: {{c: {scalar(word)}}}\n"
    assert parse(text, "x", "x").data == {"a": [word], "b": {"c": word}}


def test_a_process_is_started_with_the_very_words(tmp_path: Path) -> None:
    site, text = loaded(tmp_path, server(environ={"CUDA_VISIBLE_DEVICES": "1", "EDITOR": "vi"}))
    runs = site.baseline_spec().runs
    env = (("CUDA_VISIBLE_DEVICES", "1"),)
    assert runs == ProcessSpec(("/opt/llama-server", *ARGV[1:]), env, "/opt")
    assert text.startswith("# yaml-language-server: $schema=site.schema.json\n")
    assert (site.name, site.model.baseline.url) == ("ws", "http://127.0.0.1:8000")
    assert site.model.baseline.reference is None


def test_the_known_speed_and_the_cards(tmp_path: Path) -> None:
    cards = (Card("RTX: 6000", "GPU-1", 1 << 30, None, None),)
    told = replace(TOLD, tok_s=10.349, rate_from="as told", cards=cards, protected=["qdrant"])
    site, _ = loaded(tmp_path, server(), told)
    assert site.model.baseline.reference is not None
    assert site.model.baseline.reference.tok_s == 10.35
    assert [(one.uuid, one.name) for one in site.model.gpus] == [("GPU-1", "RTX: 6000")]
    assert site.model.protected == ["qdrant"]


@pytest.mark.parametrize(
    ("argv", "kept", "named"),
    [
        (["s", "--api-key", SECRET, "-v"], ["s", "-v"], ["--api-key"]),
        (["s", f"--api-key={SECRET}", "-v"], ["s", "-v"], ["--api-key"]),
        (["s", "--hf-token", "short"], ["s"], ["--hf-token"]),
        (["s", "--proxy", f"http://me:{SECRET}@h/"], ["s"], ["--proxy"]),
        (["s", "-m", "a"], ["s", "-m", "a"], []),
        (["docker", "login", f"-p{SECRET}", "h"], ["docker", "login", "h"], ["-p"]),
        (["redis-server", "--requirepass", SECRET], ["redis-server"], ["--requirepass"]),
    ],
)
def test_secrets_of_a_command_line_are_left_out_and_named(
    argv: list[str], kept: list[str], named: list[str]
) -> None:
    assert without_secrets(argv) == (kept, named)


def test_a_flag_with_several_secret_values_takes_no_other_flag_along() -> None:
    argv = ["s", "--verbose", "--api-key", SECRET, f"{SECRET}2", "-m", "x"]
    assert without_secrets(argv) == (["s", "--verbose", "-m", "x"], ["--api-key"])


def test_the_place_of_a_secret_is_marked_in_the_file(tmp_path: Path) -> None:
    argv = (*ARGV, "--api-key", SECRET, f"--hf-token={SECRET}", "-v")
    lines = draft(server(argv=argv), TOLD).text.splitlines()
    at = lines.index("      - -v")
    assert [line.partition("write here: ")[2] for line in lines[at - 2 : at]] == [
        "- --api-key, then - VALUE", "- --hf-token=VALUE",
    ]  # fmt: skip
    site, _ = loaded(tmp_path, server(argv=argv))
    runs = site.baseline_spec().runs
    assert isinstance(runs, ProcessSpec)
    assert (SECRET in str(runs.argv), runs.argv[-1]) == (False, "-v")


def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    environ = {"HF_TOKEN": SECRET, "LLAMA_API_KEY": SECRET, "LLAMA_ARG_HOST": "h"}
    found = server(argv=(*ARGV, "--api-key", SECRET), environ=environ)
    made = draft(found, TOLD)
    assert SECRET not in made.text
    assert made.left_out == ("--api-key", "HF_TOKEN", "LLAMA_API_KEY")
    for name in made.left_out:
        assert f"left out, because it is secret: the value of {name}" in made.text or (
            f"left out of env, because it is secret: {name}" in made.text
        )
    site, _ = loaded(tmp_path, found)
    runs = site.baseline_spec().runs
    assert isinstance(runs, ProcessSpec)
    assert runs.env == (("LLAMA_ARG_HOST", "h"),)


def test_a_virtual_environment_keeps_its_path(tmp_path: Path) -> None:
    inside = {"VIRTUAL_ENV": "/v", "PATH": "/v/bin:/bin"}
    for environ, names in ((inside, ["PATH", "VIRTUAL_ENV"]), ({"PATH": "/bin"}, [])):
        runs = loaded(tmp_path, server(environ=environ))[0].baseline_spec().runs
        assert isinstance(runs, ProcessSpec)
        assert [name for name, _ in runs.env] == names


def test_containers_and_an_engine_that_wants_a_model(tmp_path: Path) -> None:
    box = Box("c" * 64, "r1", "img", VLLM, "http://127.0.0.1:8001", models=("/m/a",))
    found = Server(VLLM, box.url, box=box, model="Qwen/Q", ready="/health")
    site, _ = loaded(tmp_path, found)
    assert site.baseline_spec().runs == ExistingContainer("r1")
    assert site.model.baseline.completion.model == "Qwen/Q"
    assert site.model.baseline.models == ["/m/a"]
    assert site.model.engine.host == ""
    site, _ = loaded(tmp_path, found, replace(TOLD, engine_host="unix:///run/e.sock"))
    assert site.model.engine.host == "unix:///run/e.sock"
    made = replace(box, compose=Compose("/stack/c.yaml", "r1", "llm"))
    runs = loaded(tmp_path, replace(found, box=made))[0].baseline_spec().runs
    assert isinstance(runs, ComposeSpec)
    assert (runs.files, runs.service, runs.project) == ((Path("/stack/c.yaml"),), "r1", "llm")


@pytest.mark.parametrize("user", [False, True])
def test_a_unit_is_named_and_its_command_line_is_not(tmp_path: Path, user: bool) -> None:
    unit = UnitSpec("llama@big.service", user)
    found = server(unit=unit, argv=(*ARGV, "--api-key", SECRET))
    made = draft(found, TOLD)
    assert (made.left_out, SECRET in made.text) == ((), False)
    site, _ = loaded(tmp_path, found)
    assert site.baseline_spec().runs == unit
    assert found.kind == "unit"


@pytest.mark.parametrize(
    ("host", "name"),
    [("ws-1", "ws-1"), ("a b", "a-b"), ("_x", "x"), ("é", "-"), ("", "workstation")],
)
def test_the_name_of_a_site(tmp_path: Path, host: str, name: str) -> None:
    assert site_name(host) == ("workstation" if name == "-" else name)
    assert loaded(tmp_path, server(), replace(TOLD, name=site_name(host)))[0].name
