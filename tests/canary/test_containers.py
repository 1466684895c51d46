"""Containers of somebody else whose command line, environment, labels, name and words are full of
planted secrets: no command prints one, and no file keeps one."""

import sys
from pathlib import Path

import pytest

from tests.canary.planting import Canaries, leaks, leaks_in_files
from tests.runner.e2e.sites import book
from tests.runtime.made_engine import made_engine
from tests.ui.place import placed

SERVE = """
import os, socket, sys
print(sys.argv[1], flush=True)
door = socket.create_server(("127.0.0.1", int(sys.argv[2])))
while True:
    peer, _ = door.accept()
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 500 " + sys.argv[1].encode() + b"\\r\\nContent-Length: 0\\r\\n\\r\\n")
    peer.close()
"""
COMMANDS = (
    "init --list", "init --list --json", "init --pick :{port} --to {root}/made.yaml", "doctor",
    "clean", "clean --json", "clean --all", "clean --all --json", "run taken.yaml",
    "show", "report", "adopt --yes", "rollback", "logs baseline",
)  # fmt: skip


@pytest.mark.full
def test_no_word_of_a_foreign_container_is_printed_with_its_secrets(tmp_path: Path) -> None:
    words = Canaries()
    with made_engine() as engine, placed(tmp_path / "place") as place:
        place.env["DOCKER_HOST"] = engine.host
        port = place.cand_port
        door = {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}
        argv = [sys.executable, "-S", "-c", SERVE, words("what a container says"), str(port)]
        argv += ["llama-server", "--port", str(port), "--api-key", words("its key")]
        label = {"com.docker.compose.service": words("service"), words("label"): words("labelled")}
        identity = engine.make(
            "hf_C4nary9003zaB3dE5gH7", argv, label, HostConfig={"PortBindings": door},
            Env=[f"HF_TOKEN={words('variable')}", f"PLAIN={words('plain variable')}"],
        )  # fmt: skip
        engine.make("stopped", ["vllm", "serve", "--api-key", words("key of one that is not on")])
        engine.route("POST", f"/containers/{identity}/start", {}, None)
        place.until(lambda: place.listens(place.cand_url), "the container serves")
        place.write("taken.yaml", book("id: up, service: {start: side}"))
        given = {"port": port, "root": place.root}
        done = {line: place.console(*line.format(**given).split()) for line in COMMANDS}
        said = {line: one.out + one.err for line, one in done.items()}
        assert {line: leaks(words, text) for line, text in said.items() if leaks(words, text)} == {}
        assert "container" in said["init --list"]
        assert str(port) in said["run taken.yaml"]
        for part in ("state", "host", "config", "cache"):
            assert leaks_in_files(words, place.root / part) == {}
        made = place.root / "made.yaml"
        assert not made.exists() or leaks(words, made.read_text()) == set()
        assert not [one for one in engine.calls if one.endswith(("/kill", "/stop"))], "not ours"
