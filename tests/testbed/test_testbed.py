"""The real parts are real: an engine, two images, Compose and a scripted NVML library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.testbed import compose
from tests.testbed.cache import Unavailable, folder
from tests.testbed.engine import Engine, ensure_engine, in_use
from tests.testbed.nvml import RTX_5090, RTX_PRO_6000, Card, Nvml, ensure_nvml

READ_CARDS = """
import json, pynvml
def ask(call, *arguments):
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        return type(error).__name__
pynvml.nvmlInit()
cards = []
for index in range(pynvml.nvmlDeviceGetCount()):
    card = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    if isinstance(card, str):
        cards.append(card)
        continue
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, card)
    util = ask(pynvml.nvmlDeviceGetUtilizationRates, card)
    cards.append({
        "name": pynvml.nvmlDeviceGetName(card),
        "uuid": pynvml.nvmlDeviceGetUUID(card),
        "memory": memory if isinstance(memory, str) else [memory.used, memory.total],
        "util": util if isinstance(util, str) else util.gpu,
        "temp": pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
        "power": pynvml.nvmlDeviceGetPowerUsage(card),
        "mig": ask(pynvml.nvmlDeviceGetMigMode, card),
        "pci": pynvml.nvmlDeviceGetPciInfo(card).busId,
        "procs": [[p.pid, p.usedGpuMemory]
                  for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card)],
    })
print(json.dumps(cards))
"""


ROOT = Path(__file__).parents[2]
Done = subprocess.CompletedProcess[str]


def call(argv: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT) -> Done:
    env = {**os.environ, **(env or {})}
    return subprocess.run(argv, env=env, cwd=cwd, timeout=240, capture_output=True, text=True)


def docker(env: dict[str, str], *arguments: str) -> Done:
    return call(["docker", *arguments], env)


def read_cards(library: Nvml, script: Path, program: str = READ_CARDS) -> list[object]:
    done = call([sys.executable, "-c", program], library.env(script))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, list)
    return answer


def test_the_engine_answers_on_a_socket_of_its_own_with_compose_2(
    engine: Engine, docker_env: dict[str, str]
) -> None:
    done = docker(docker_env, "info", "--format", "{{json .DockerRootDir}} {{.ServerVersion}}")
    version = compose.version(engine.docker, Path(engine.docker_config))

    assert done.returncode == 0, done.stderr
    assert version is not None
    assert int(version.split(".")[0]) >= 2
    if engine.private:
        assert engine.socket != "/var/run/docker.sock"
        assert len(engine.socket) < 100
        assert '"/var/lib/docker"' not in done.stdout


@pytest.mark.full
def test_the_python_client_reaches_it_too(engine: Engine) -> None:
    import docker as sdk

    client = sdk.DockerClient(base_url=engine.host)
    try:
        assert client.ping()
    finally:
        client.close()


@pytest.mark.full
def test_asking_again_finds_the_same_engine(engine: Engine) -> None:
    def pid() -> str:
        return (folder("engine") / "dockerd.pid").read_text() if engine.private else ""

    before = pid()

    assert ensure_engine() == engine
    assert pid() == before


@pytest.mark.full
def test_an_engine_in_use_is_not_stopped_by_hand(engine: Engine) -> None:
    if not engine.private:
        pytest.skip("only a private engine is ours to stop")

    done = call([sys.executable, "-m", "tests.testbed", "down"])

    assert in_use()
    assert done.returncode == 1


@pytest.mark.full
def test_a_busy_container_serves_a_published_port(
    docker_env: dict[str, str], busy_image: str
) -> None:
    serve = "mkdir /www && echo hello >/www/index.html && exec httpd -f -p 80 -h /www"
    options = ("-d", "--rm", "--label", "omni.test=1", "-p", "127.0.0.1::80")
    started = docker(docker_env, "run", *options, busy_image, "sh", "-c", serve)
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    try:
        probe = "for i in $(seq 300); do wget -qO- 127.0.0.1 && exit; sleep 0.2; done; exit 1"
        inside = docker(docker_env, "exec", name, "sh", "-c", probe)
        port = docker(docker_env, "port", name, "80").stdout.strip()
    finally:
        docker(docker_env, "rm", "-f", name)

    assert inside.stdout == "hello\n"
    assert port.startswith("127.0.0.1:")


@pytest.mark.full
def test_compose_starts_and_stops_a_project(
    docker_env: dict[str, str], busy_image: str, tmp_path: Path
) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        f"name: omni-testbed-{uuid.uuid4().hex[:10]}\n"
        "services:\n"
        "  one:\n"
        f"    image: {busy_image}\n"
        "    command: [sleep, '60']\n"
        "    stop_grace_period: 0s\n"
        "    labels: {omni.test: '1'}\n"
    )
    project = ("compose", "-f", str(file))
    try:
        up = docker(docker_env, *project, "up", "-d", "--wait")
        listed = docker(docker_env, *project, "ps", "--services", "--status", "running")
    finally:
        down = docker(docker_env, *project, "down")

    assert up.returncode == 0, up.stderr
    assert listed.stdout.split() == ["one"]
    assert down.returncode == 0, down.stderr


@pytest.mark.full
def test_the_llama_image_holds_working_programs(
    docker_env: dict[str, str], llama_image: str
) -> None:
    options = ("--rm", "--label", "omni.test=1")
    for program in ("llama-server --version", "llama-bench --help", "curl -V"):
        done = docker(docker_env, "run", *options, llama_image, *program.split())
        assert done.returncode == 0, done.stderr
        assert done.stdout + done.stderr


def test_pynvml_reads_two_unlike_cards(nvml: Nvml, tmp_path: Path) -> None:
    big = RTX_PRO_6000.but(util=87, temp=71, power=412_000, procs={4242: 90_000_000_000})
    script = nvml.write(tmp_path / "cards", [big, RTX_5090])

    first, second = read_cards(nvml, script)

    assert first == {
        "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "uuid": RTX_PRO_6000.uuid,
        "memory": [RTX_PRO_6000.mem_used, RTX_PRO_6000.mem_total],
        "util": 87,
        "temp": 71,
        "power": 412_000,
        "mig": [0, 0],
        "pci": "00000000:01:00.0",
        "procs": [[4242, 90_000_000_000]],
    }
    assert isinstance(second, dict)
    assert second["name"] == "NVIDIA GeForce RTX 5090"
    assert second["memory"] == [RTX_5090.mem_used, RTX_5090.mem_total]
    assert second["mig"] == "NVMLError_NotSupported"


def test_a_card_may_be_lost_or_lack_what_it_is_asked_and_calls_may_fail(
    nvml: Nvml, tmp_path: Path
) -> None:
    odd = RTX_5090.but(mem_used=None, fail={"nvmlDeviceGetUtilizationRates": 999})
    script = nvml.write(tmp_path / "cards", [odd, RTX_5090.but(lost=True)])

    card, lost = read_cards(nvml, script)

    assert isinstance(card, dict)
    assert card["memory"] == "NVMLError_NotSupported"
    assert card["util"] == "NVMLError_Unknown"
    assert lost == "NVMLError_GpuIsLost"


def test_a_program_sees_the_script_change_under_it(nvml: Nvml, tmp_path: Path) -> None:
    script = nvml.write(tmp_path / "cards")
    program = (
        "import pynvml as n; n.nvmlInit(); card = n.nvmlDeviceGetHandleByIndex(1)\n"
        "def temp(): print(n.nvmlDeviceGetTemperature(card, n.NVML_TEMPERATURE_GPU), flush=True)\n"
        "temp(); input(); temp(); input()\n"
        "try: temp()\nexcept n.NVMLError as error: print(type(error).__name__, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **nvml.env(script)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        said = [child.stdout.readline()]
        for card in (RTX_5090.but(temp=88), RTX_5090.but(lost=True)):
            nvml.write(script, [RTX_PRO_6000, card])
            child.stdin.write("\n")
            said.append(child.stdout.readline())

    assert [line.strip() for line in said] == ["35", "88", "NVMLError_GpuIsLost"]


@pytest.mark.full
def test_a_call_hangs_as_long_as_the_script_says(nvml: Nvml, tmp_path: Path) -> None:
    script = nvml.write(tmp_path / "cards", hang={"nvmlDeviceGetCount_v2": 1})
    begin = time.monotonic()

    assert len(read_cards(nvml, script)) == 2

    assert time.monotonic() - begin >= 1


def test_mig_instances_are_found_below_their_card(nvml: Nvml, tmp_path: Path) -> None:
    part = Card("MIG 1g.24gb", "MIG-0001", 24_000_000_000, 1_000, "0:01:00", util=None)
    script = nvml.write(tmp_path / "cards", [RTX_PRO_6000.but(mig=1, util=None, instances=[part])])
    program = (
        "import json, pynvml as n; n.nvmlInit(); card = n.nvmlDeviceGetHandleByIndex(0)\n"
        "part = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)\n"
        "parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)\n"
        "print(json.dumps([n.nvmlDeviceGetMaxMigDeviceCount(card), n.nvmlDeviceGetUUID(part),"
        "n.nvmlDeviceGetMemoryInfo(part).total, n.nvmlDeviceGetIndex(parent)]))"
    )

    assert read_cards(nvml, script, program) == [7, "MIG-0001", 24_000_000_000, 0]


def test_an_old_driver_lacks_functions(nvml: Nvml, tmp_path: Path) -> None:
    old = ensure_nvml(without=["nvmlDeviceGetMigMode"])
    script = nvml.write(tmp_path / "cards")
    program = READ_CARDS.replace(
        "pynvml.nvmlInit()",
        "pynvml.nvmlInit()\nprint(json.dumps([ask(pynvml.nvmlDeviceGetMigMode,"
        " pynvml.nvmlDeviceGetHandleByIndex(0))])); raise SystemExit",
    )

    assert read_cards(old, script, program) == ["NVMLError_FunctionNotFound"]


def test_without_a_script_there_is_no_driver(nvml: Nvml, tmp_path: Path) -> None:
    program = (
        "import json, pynvml\ntry:\n    pynvml.nvmlInit()\n"
        "except pynvml.NVMLError as error:\n    print(json.dumps([type(error).__name__]))"
    )

    answer = read_cards(nvml, tmp_path / "nothing", program)

    assert answer == ["NVMLError_DriverNotLoaded"]


def test_a_named_engine_that_does_not_answer_is_unavailable(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OMNI_TEST_DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")

    with pytest.raises(Unavailable, match="no Docker engine answers"):
        ensure_engine()


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
