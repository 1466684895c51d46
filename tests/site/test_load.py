"""The site file: strict, with every problem at its place; guards held against its machine."""

from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import Exit, InvalidFile
from console.config.playbook.inputs import SecretSource
from console.config.site.guard import trouble
from console.config.site.notify import KINDS, SURROUNDINGS, variables
from console.config.site.site import Site, load_site
from console.host.process import ProcessSpec
from console.host.sample import Card, Machine
from console.host.units import UnitSpec
from console.recovery.guard.config import Limit
from console.runner.prepare.baseline import written
from console.runtime.spec import ComposeSpec, ExistingContainer, Mount

HEAD = "schema: omni.site/v1\nname: ws\n"
BASELINE = "baseline: {container: base, url: 'http://127.0.0.1:8000'}\n"
GIB = 1 << 30
MACHINE = "machine: {ram: 377GiB, swap: 207GiB}\n"
GPUS = "gpus: [{uuid: GPU-a, memory: 96GiB}, {uuid: GPU-b, memory: 32GiB}]\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "site.yaml"


def load(path: Path, body: str, head: str = HEAD) -> Site:
    path.write_text(head + body, "utf-8")
    return load_site(path)


def problems(path: Path, body: str, head: str = HEAD) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        load(path, body, head)
    assert caught.value.exit_code is Exit.USAGE
    said = [str(p) for p in caught.value.problems]
    assert [line for line in said if not line.startswith(f"{path}:")] == []
    return [line.removeprefix(f"{path}:") for line in said]


def test_the_smallest_site(path: Path) -> None:
    site = load(path, BASELINE)
    spec = site.baseline_spec()
    assert (site.name, spec.name, spec.url) == ("ws", "baseline", "http://127.0.0.1:8000")
    assert spec.runs == ExistingContainer("base")
    assert (spec.ready.path, spec.ready.timeout_s, spec.exclusive) == ("/health", 900.0, False)
    assert (site.service_specs(), site.guards, site.model.lease) == ({}, (), None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("'*****'", True), ("--api-key=*****", True), ("http://u:*****@h:1", True),
        ("Bearer *****", True), ("'** *** **'", False), ("'******'", False), ("a*****", False),
    ],
)  # fmt: skip
def test_a_mask_is_no_value(path: Path, value: str, said: bool) -> None:
    body = "baseline:\n  url: http://127.0.0.1:8000\n  process:\n    argv: [serve]\n"
    body += f"    env:\n      A_TOKEN: {value}\n"
    if not said:
        assert load(path, body).name == "ws"
        return
    assert [one.split(";")[0] for one in problems(path, body)] == [
        "8:16: A_TOKEN: ***** is what is shown instead of a secret"
    ]


def test_who_is_told(path: Path) -> None:
    body = "notify:\n- {webhook: 'https://u:pw@h:1/x', headers: {A: {env: TOKEN}}}\n"
    body += (
        "- {ntfy: {file: /run/topic}, on: [run-end]}\n- {command: [say, hi, 3]}\n- {mail: a@b}\n"
    )
    web, ntfy, command, mail = load(path, BASELINE + body).model.notify
    assert web.headers == {"A": SecretSource(env="TOKEN")}
    assert set(KINDS) - {*web.on} == {"lessons-due"}
    assert (ntfy.on, command.command) == (["run-end"], ["say", "hi", "3"])
    words = [one.words for one in (web, ntfy, command, mail)]
    assert words == ["webhook https://h:1", "ntfy /run/topic", "command say", "mail a@b"]
    assert load(path, BASELINE).model.notify == []
    assert variables([]) == ()
    assert set(variables([web, ntfy])) - {*SURROUNDINGS} == {"TOKEN"}


def test_a_unit(path: Path) -> None:
    body = "baseline: {unit: {name: %s%s}, url: 'http://127.0.0.1:8000'}\n"
    site = load(path, body % ("llama@big.service", ", user: true"))
    assert site.baseline_spec().runs == UnitSpec("llama@big.service", user=True)
    assert written(site).unit == UnitSpec("llama@big.service", user=True)
    for wrong in ("llama", "-x.service", "a b.service", "x.socket", "../x.service"):
        assert problems(path, body % (wrong, "")), wrong


def test_a_baseline_has_no_environment_that_a_rollback_would_have_to_read(path: Path) -> None:
    body = "baseline:\n  process: {argv: [serve], environment: {conda: /envs/kt}}\n"
    (said,) = problems(path, f"{body}  url: http://127.0.0.1:8000\n")
    assert "a rollback starts the baseline by what was sealed" in said
    body = "services:\n  a: {process: {argv: [serve], environment: {conda: kt}}, url: 'http://127.0.0.1:8001'}\n"
    runs = load(path, BASELINE + body).service_specs()["a"].runs
    assert isinstance(runs, ProcessSpec)
    assert runs.within.conda == str(path.parent / "kt")


def test_a_compose_baseline_is_relative_to_the_site_file(path: Path) -> None:
    site = load(
        path,
        "baseline:\n  compose: {file: stack/c.yaml, service: llm, profile: prod}\n"
        "  url: http://127.0.0.1:8000/\n  ready: {http: /v1, timeout: 15m, stable_for: 10s}\n",
    )
    spec = site.baseline_spec()
    assert spec.runs == ComposeSpec((path.parent / "stack/c.yaml",), "llm", ("prod",))
    assert (spec.url, spec.ready.stable_for_s) == ("http://127.0.0.1:8000", 10.0)
    base = written(site)
    assert (base.container_id, base.container_name, base.compose_argv[-1]) == ("", "", "llm")


def test_a_process_baseline_is_sealed_with_its_program_and_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(first: str) -> str:
        text = f"baseline: {{process: {{argv: ['{first}'], cwd: x}}, url: 'http://h:1'}}\n"
        return written(load(path, text)).program

    tool = path.parent / "bin" / "serve"
    tool.parent.mkdir()
    tool.touch(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    monkeypatch.setenv("OTHER", "no")
    assert [program(one) for one in ("serve", str(tool), "nowhere")] == [str(tool), str(tool), ""]
    assert program("./serve") == str(path.parent / "x" / "serve")
    process = "baseline: {process: {argv: [serve]}, url: 'http://h:1'}\n"
    environment = dict(written(load(path, process)).environment)
    assert environment["PATH"] == str(tool.parent)
    assert not {"OTHER", "OMNI_RUN"} & {*environment}


def test_a_process_baseline(path: Path) -> None:
    site = load(
        path,
        "baseline: {process: {argv: [serve, --port, '8000'], env: {A: b}, cwd: x},"
        " url: 'http://h:1'}\n",
    )
    runs = site.baseline_spec().runs
    assert runs == ProcessSpec(("serve", "--port", "8000"), (("A", "b"),), str(path.parent / "x"))


def test_services_and_mounts(path: Path) -> None:
    site = load(
        path,
        BASELINE + "services:\n  cand:\n    url: http://127.0.0.1:8001\n    exclusive: true\n"
        "    container:\n      image: img\n      mounts: ['models:/m', '/n:/n:rw']\n"
        "      ports: ['8001:8080']\n      memory: 24GiB\n      gpus: all\n",
    )
    spec = site.service_specs()["cand"]
    assert spec.exclusive
    assert spec.runs.mounts == (  # type: ignore[union-attr]
        Mount(str(path.parent / "models"), "/m", True), Mount("/n", "/n", False),
    )  # fmt: skip
    assert spec.runs.ports == ((8001, 8080),)  # type: ignore[union-attr]
    assert spec.runs.memory_bytes == 24 * 2**30  # type: ignore[union-attr]


def test_a_service_may_be_called_like_a_container_that_is_never_stopped(path: Path) -> None:
    box = "services: {c: {container: {image: i, name: mine}, url: 'http://a:1'}}\n"
    site = load(path, BASELINE + "protected: [c]\n" + box)
    assert list(site.model.services) == ["c"]


def test_what_a_container_never_gets(path: Path) -> None:
    """Ports are two numbers and never an address; and no key that opens the host to it."""
    body = "services: {{c: {{url: 'http://a:1', container: {{image: i, {}}}}}}}\n"
    for port in ("0:80", "8001:65536", "127.0.0.1:8001:80", "a:b"):
        (said,) = problems(path, BASELINE + body.format(f"ports: ['{port}']"))
        assert "HOST:CONTAINER" in said, port
    for key in ("restart: always", "network_mode: host"):
        (said,) = problems(path, BASELINE + body.format(key))
        assert "unknown key" in said, key


def test_a_file_that_is_no_site(path: Path) -> None:
    for text in ("", "- a\n", "words\n"):
        (said,) = problems(path, text, head="")
        assert said.startswith("1:1: ")


def test_a_home_directory_of_nobody_is_a_name_like_any_other(path: Path) -> None:
    body = (
        "services: {c: {url: 'http://a:1', container: {image: i, mounts: ['~nobody-here:/x']}}}\n"
    )
    spec = load(path, BASELINE + body).service_specs()["c"]
    source = spec.runs.mounts[0].source  # type: ignore[union-attr]
    assert source == str(path.parent / "~nobody-here")


# -- guards --------------------------------------------------------------------------------------


def test_guards_and_a_lease(path: Path) -> None:
    text = BASELINE + MACHINE + "lease: 30m\nguards:\n"
    site = load(path, text + "- {metric: host.ram_available, below: 24GiB, for: 2s}\n")
    assert site.model.lease == 1800.0
    assert site.guards == (
        Limit("host.ram_available", below=24 * GIB, for_s=2.0, source="site, line 7"),
    )


def test_what_fits(path: Path) -> None:
    text = BASELINE + MACHINE + GPUS + "guards:\n"
    text += "- {metric: gpu.memory_used, above: 126GiB, of: sum}\n"
    text += "- {metric: gpu.memory_used, above: 31GiB, of: GPU-b}\n"
    text += "- {metric: host.swap_used, above: 100GiB}\n"
    assert len(load(path, text).guards) == 3


def test_what_is_not_known_of_a_machine_decides_nothing() -> None:
    for limit in (
        Limit("host.ram_available", below=1e15), Limit("host.swap_used", above=1e15),
        Limit("gpu.memory_used", above=1e15, of="sum"), Limit(log="x", matches="y"),
    ):  # fmt: skip
        assert trouble(limit, Machine()) == ""
    half = Machine(cards=(Card("a", "GPU-a", 96 * GIB), Card("b", "GPU-b")))
    assert trouble(Limit("gpu.memory_used", above=1e15, of="sum"), half) == ""
    assert trouble(Limit("host.swap_free", below=1 * GIB), Machine(swap_total=0)) == ""


@pytest.mark.parametrize(
    ("flag", "more", "refused"),
    [
        ("--api-key", "", True), ("--api-key", "\n      - --api-key\n      - k", False),
        ("--api-key", "\n      - --api-key=k", False), ("--ssl-keyfile-password", "", True),
        ("--hf-token", "", False),
    ],
)  # fmt: skip
def test_a_command_line_that_lacks_its_key_starts_nothing(
    tmp_path: Path, flag: str, more: str, refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server with a key would come back without one, open to everybody."""
    path = tmp_path / "site.yaml"
    path.write_text(
        "schema: omni.site/v1\nname: keyed\nbaseline:\n  url: http://127.0.0.1:9\n"
        "  process:\n    argv:\n      - /nowhere/llama-server\n      # left out, because it is "
        f"secret: the value of {flag}; write here: - {flag}, then - VALUE{more}\n    cwd: /tmp\n"
    )
    if not refused:
        assert load_site(path).name == "keyed"
        return
    with pytest.raises(InvalidFile) as caught:
        load_site(path)
    assert f"the value of {flag} is missing" in str(caught.value.problems)
    assert load_site(path, lacking=True).name == "keyed"
    assert main(["--site", str(path), "rollback"]) == 2
    assert f"the value of {flag} is missing" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "env", "refused"),
    [
        ("VLLM_API_KEY", "", True), ("LLAMA_API_KEY", "", True), ("SGLANG_API_KEY", "", True),
        ("OLLAMA_PASSWORD", "env: {OTHER: x}", True),
        ("LLAMA_API_KEY", "env: {LLAMA_API_KEY: k}", False),
        ("HF_TOKEN", "", False), ("HF_HUB_TOKEN", "", False), ("LLAMA_ARG_HF_TOKEN", "", False),
    ],
)  # fmt: skip
def test_an_environment_that_lacks_its_key_starts_nothing(
    tmp_path: Path, name: str, env: str, refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "schema: omni.site/v1\nname: keyed\nbaseline:\n  url: http://127.0.0.1:9\n"
        f"  process:\n    argv: [/nowhere/llama-server]\n    cwd: /tmp\n    {env}\n"
        f"    # left out of env, because it is secret: {name}\n"
    )
    if not refused:
        assert load_site(path).name == "keyed"
        return
    with pytest.raises(InvalidFile) as caught:
        load_site(path)
    assert f"the value of {name} is missing" in str(caught.value.problems)
    assert load_site(path, lacking=True).name == "keyed"
    assert main(["--site", str(path), "rollback"]) == 2
    assert "into a line of process.env" in " ".join(capsys.readouterr().err.split())


def test_a_word_that_holds_a_password_is_asked_for_as_long_as_its_line_stands(
    tmp_path: Path,
) -> None:
    path = tmp_path / "site.yaml"
    left = (
        "# left out, because it is secret: the value of a word with a password in it; write here: "
        "- VALUE"
    )
    head = (
        "schema: omni.site/v1\nname: keyed\nbaseline:\n  url: http://127.0.0.1:9\n"
        "  process:\n    argv:\n      - /nowhere/serve\n"
    )
    path.write_text(f"{head}      {left}\n    cwd: /tmp\n")
    with pytest.raises(InvalidFile):
        load_site(path)
    path.write_text(f"{head}      - redis://:x@127.0.0.1\n    cwd: /tmp\n")
    assert load_site(path).name == "keyed"
