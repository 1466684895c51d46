"""The shipped compose file and Dockerfiles, asked of Compose v2 and of a Dockerfile linter."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import ServiceError
from console.config.locate import shipped
from console.config.site.site import load_site
from console.runtime.docker.compose import compose
from console.runtime.docker.engine_state import silent
from tests.testbed.engine import Engine

STACK = shipped() / "stack/omni-stack.yaml"
SITE = load_site(shipped() / "sites/omni.yaml")
SANDBOXES = {
    "ktransformers-server": "lazarus", "ktransformers-sglang": "kt-sglang",
    "deepseek-r1-ik": "phase2-sandbox", "llama-sandbox": "llama-sandbox",
}  # fmt: skip
DOCKERFILES = sorted(STACK.parent.glob("Dockerfile.*"))


@pytest.fixture
def config(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`docker compose config` as the console calls it; the parsed result."""
    for key, value in engine.env().items():
        monkeypatch.setenv(key, value)

    def asked(*profiles: str, **env: str) -> dict[str, Any]:
        argv = ["docker", "compose", "-f", str(STACK)]
        argv += [word for name in profiles for word in ("--profile", name)]
        text = compose([*argv, "config", "--format", "json"], engine.host, env, "it", 60.0, silent)
        found: dict[str, Any] = json.loads(text)
        return found

    return asked


def test_without_a_profile_there_is_only_the_baseline(config: Any) -> None:
    services = config(**SITE.compose_env)["services"]
    assert list(services) == [SITE.model.baseline.container]
    assert services["deepseek-r1"]["restart"] == "unless-stopped"
    assert set(services["deepseek-r1"]["networks"]) == {"internal_brain", "omni-network"}
    assert services["deepseek-r1"]["command"][6:14] == SITE.model.baseline.args


def test_sandboxes_are_behind_their_profiles(config: Any) -> None:
    for name, profile in SANDBOXES.items():
        found = config(profile, **SITE.compose_env, MODELS="/data/models")
        service = found["services"][name]
        assert set(found["services"]) & set(SANDBOXES) == {name}
        assert (service["restart"], service["container_name"]) == ("no", name)
        assert service["environment"]["CUDA_VISIBLE_DEVICES"] == SITE.compose_env["OMNI_GPUS"]
        assert {port["host_ip"] for port in service["ports"]} == {"127.0.0.1"}
        (mount,) = service["volumes"]
        assert (mount["source"], mount["read_only"]) == ("/data/models", True)
        assert found["networks"]["internal_brain"]["internal"] is True


def test_no_service_asks_for_what_may_be_missing_or_what_the_lessons_refuse(config: Any) -> None:
    """No health check needs curl, or a shell; no sandbox has the options that failed."""
    services = config(*SANDBOXES.values(), **SITE.compose_env)["services"]
    for name, service in services.items():
        test = service["healthcheck"]["test"]
        assert (test[0], "curl" in " ".join(test)) == ("CMD", False), name
        words = " ".join(service["command"])
        for refused in ("graph", "--tensor-parallel-size", "fp8_e4m3"):
            assert refused not in words, name


def test_without_the_cards_it_says_what_is_missing(config: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        config()
    assert "OMNI_GPUS" in caught.value.detail


def test_the_baseline_answers_its_own_health_check_without_curl(config: Any) -> None:
    """The very words of the check, in bash, against a healthy server and one that is not."""
    service = config(**SITE.compose_env)["services"]["deepseek-r1"]
    script = service["healthcheck"]["test"][-1].replace("$$", "$")
    serve = (
        "import http.server, sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(int(sys.argv[1])); self.end_headers()\n"
        "    def log_message(self, *a): pass\n"
        "s = http.server.HTTPServer(('127.0.0.1', 0), H); print(s.server_port, flush=True)\n"
        "s.handle_request()\n"
    )
    for status, code in (("200", 0), ("503", 1)):
        with subprocess.Popen(
            [sys.executable, "-c", serve, status], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            asked = script.replace("/8000", f"/{port}")
            assert subprocess.run(["bash", "-c", asked], timeout=60).returncode == code


def test_the_dockerfile_linter_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, *DOCKERFILES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_two_dockerfiles_ship_and_none_repeats_what_failed() -> None:
    """A build has no card to ask (F-014), and submodules need the whole history (F-013)."""
    assert [path.suffix for path in DOCKERFILES] == [".ik-llama", ".ktransformers"]
    for path in DOCKERFILES:
        lines = path.read_text().splitlines()
        text = "\n".join(line for line in lines if not line.startswith(("#", "CMD")))
        for refused in ("get_arch_list", "--depth", "GGML_CUDA_NO_VMM"):
            assert refused not in text, path
