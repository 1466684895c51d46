"""The build that `check checkpoint` is told: it is asked, and what it refuses counts."""

import json
from pathlib import Path

import pytest

from console.cli import main
from tests.testbed.models import tiny_llama

SITE = """\
schema: omni.site/v1
name: lab
machine: {ram: 64GiB}
baseline: {process: {argv: [cat]}, url: "http://127.0.0.1:9"}
services:
  other: {process: {argv: [SERVER, -m, x.gguf, --no-mmap, -c, "512"]}, url: "http://127.0.0.1:8"}
"""
SERVER = """\
#!/bin/sh
for word; do
  [ "$word" = --no-mmap ] && { echo "error: invalid argument: --no-mmap"; exit 1; }
done
echo "error loading model: key not found in model: llama.context_length"
exit 1
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that fits; beside it llama-server, a build without --no-mmap, and a site with it."""
    server = tmp_path / "llama-server"
    server.write_text(SERVER)
    server.chmod(0o755)
    (tmp_path / "site.yaml").write_text(SITE.replace("SERVER", str(server)))
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    tiny_llama(tmp_path / "m.gguf")
    return tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--binary", "llama-server", "--args", "-c", "512"], 0, "GO"),
        (["--binary", "llama-server", "--args", "-c", "512", "--no-mmap"], 3,
         "this build has no such option"),
        (["--args", "-c", "512", "--no-mmap"], 4, "whether this build takes --no-mmap"),
        (["--service", "other"], 3, "this build has no such option"),
        (["--service", "other", "--args", "-c", "512"], 0, "GO"),
    ],
)  # fmt: skip
def test_what_the_named_build_refuses_counts(
    model: Path, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(model.parent)
    words = [f"./{word}" if word == "llama-server" else word for word in words]
    found = main(["check", "checkpoint", str(model), "--json", *words])
    told = json.loads(capsys.readouterr().out)
    assert (found, said in f"{told['verdict']} {told['because']}") == (code, True), told


@pytest.mark.parametrize("command", ["checkpoint", "gguf"])
def test_the_build_is_one(model: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", command, str(model), "--binary", "x", "--image", "y"]) == 2
    assert "--binary and --image exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--binary", "/nowhere/llama-server"], "There is no program /nowhere/llama-server"),
        (["--service", "none"], "unknown service none"),
        (["--image", "own:1"], "engine"),
    ],
)
def test_a_build_that_is_not_there_is_no_answer(
    model: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--suggest"]):
        assert main(["check", "checkpoint", str(model), *more, *words]) not in (0, 4)
        assert said in capsys.readouterr().err
