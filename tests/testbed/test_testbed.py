"""The private engine is nobody else's, and what did not run for want of it is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import compose
from tests.testbed.engine import Engine, in_use

ROOT = Path(__file__).parents[2]


def call(
    argv: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **(env or {})}
    return subprocess.run(argv, env=env, cwd=cwd, timeout=240, capture_output=True, text=True)


def test_the_engine_answers_on_a_socket_of_its_own_with_compose_2(engine: Engine) -> None:
    place = engine.run("info", "--format", "{{json .DockerRootDir}}")
    assert compose.version(engine.docker, Path(engine.docker_config)) is not None
    if engine.private:
        assert engine.socket != "/var/run/docker.sock"
        assert len(engine.socket) < 100
        assert '"/var/lib/docker"' not in place


@pytest.mark.full
def test_an_engine_in_use_is_not_stopped_by_hand(engine: Engine) -> None:
    if not engine.private:
        pytest.skip("only a private engine is ours to stop")
    done = call([sys.executable, "-m", "tests.testbed", "down"])
    assert in_use()
    assert done.returncode == 1


PROBE = "def test_it(busy_image): assert busy_image\n"


@pytest.mark.parametrize(("required", "status"), [("0", 0), ("1", 1)])
def test_the_plugin_names_what_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: str, status: int
) -> None:
    (tmp_path / "test_probe.py").write_text(PROBE)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    env = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
        "OMNI_TEST_DOCKER_HOST": f"unix://{tmp_path}/nobody.sock",
        "OMNI_REQUIRE_ENGINE": required,
    }
    argv = [sys.executable, "-m", "pytest", "-p", "tests.testbed.plugin", "-p", "no:cacheprovider"]
    done = call([*argv, "--rootdir", str(tmp_path), str(tmp_path)], env, tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert "no Docker engine answers" in done.stdout
    assert "test_probe.py::test_it" in done.stdout
    assert ("did not run for want of a real part" in done.stdout) == (required == "0")
