"""The fleet file: strict, and every problem with its place."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.common.errors import InvalidFile, UsageError
from console.config.validation import json_schema
from console.fleet import fleet_file
from console.fleet.inventory import Host, load_fleet
from console.frontends.cli.site.slurm import pairs
from console.runner.slurm.job import Wish
from tests.wrong_files import wrong_files

HEAD = "schema: omni.fleet/v1\n"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def load(tmp_path: Path, text: str) -> tuple[Host, ...]:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return load_fleet(str(path)).hosts


def test_hosts_take_what_the_file_says_for_all(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        HEAD + "command: /opt/omni\nlease: 20m\n"
        "hosts:\n  a: {}\n  b: {ssh: ops@beta, command: ~/x y/omni, lease: 1h}\n",
    )
    assert found == (
        Host("a", "a", "/opt/omni", 1200.0),
        Host("b", "ops@beta", "~/x y/omni", 3600.0),
    )
    assert found[1].words("bridge") == "exec ~/'x y/omni' bridge"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("all", "`all` means every host"),
        ("-x", "a host's name"),
        ("a b", "a host's name"),
        ("aüb", "ASCII letters"),
        (".a", "a letter or a digit first"),
    ],
)
def test_a_name_that_means_something_else_is_refused(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile) as refused:
        load(tmp_path, f"{HEAD}hosts: {{'{name}': {{}}}}\n")
    assert words in str(refused.value.lines())


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("hosts:\n  a: {ssh: -oProxyCommand=x}\n", "3:12", "no - in front"),
        ("hosts:\n  a: {ssh: 'x; rm -rf /'}\n", "3:12", "a name that ssh knows"),
        ("hosts:\n  a: {shs: b}\n", "3:7", "did you mean 'ssh'?"),
        ("hosts:\n  a: {lease: 2s}\n", "3:14", "expected at least 60 s"),
        ("hosts:\n  a:\n", "3:3", "a: {} is a mapping without keys"),
        ("hosts:\n  a: {ssh: 'root@127.0.0.1:2222'}\n", "3:12", "a port belongs in"),
        ("hosts:\n  a: {ssh: 'a:22'}\n", "3:12", "~/.ssh/config"),
        ("hosts:\n  a: {ssh: 'root@'}\n", "3:12", "USER@NAME"),
        ("hosts:\n  a: {command: ''}\n", "3:16", "leave `command` away"),
        ("command: '  '\nhosts: {a: {}}\n", "2:10", "leave `command` away"),
        ("command: -x\nhosts: {a: {}}\n", "2:10", "no - and no blank in front"),
        (
            "hosts: {" + ", ".join(f"a{n}: {{}}" for n in range(201)) + "}\n",
            "2:8",
            "'hosts' has 201 entries; expected at most 200",
        ),
        ("hosts: {a: {slurm: {partition: -x}}}\n", "2:", "no - in front"),
        ("hosts: {a: {slurm: {time: soon}}}\n", "2:", "8:00:00"),
        ("hosts: {a: {slurm: {colour: red}}}\n", "2:", "colour"),
        ("hosts:\n  a:\n    slurm:\n      # partition: gpu\n", "4:5", "`slurm: {}` asks"),
        ("hosts: {}\n", "2:8", "at least"),
        ("hosts:\n  -a: {}\n", "3:", "-a"),
        ("host: {}\n", "2:1", "did you mean 'hosts'?"),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_column(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    with pytest.raises(InvalidFile) as refused:
        load(tmp_path, HEAD + text)
    told = "\n".join(refused.value.lines())
    assert f"fleet.yaml:{place}" in told
    assert words in told


def test_an_address_with_colons_is_an_alias(tmp_path: Path) -> None:
    text = "hosts: {a: {ssh: 'fe80::1'}, b: {ssh: 'root@fd00::a:1'}, 1: {}}\n"
    assert [one.ssh for one in load(tmp_path, HEAD + text)] == ["fe80::1", "root@fd00::a:1", "1"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("time", "abc", "8:00:00"), ("time", "0", "0 sets no limit"),
        ("time", "1", "more than 2 min"), ("time", "2", "more than 2 min"),
        ("time", "", "leave `time` away"),
        ("time", "9" * 400 + "-1", "8:00:00"), ("exclusive", "maybe", "true or false"),
        ("partition", "", "leave `partition` away"), ("gres", "a b", "`sbatch --gres`"),
        ("node", "-x", "`sinfo --Node`"), ("begin", " ", "leave `begin` away"),
        ("colour", "red", "colour"), ("partitoin", "gpu", "did you mean 'partition'?"),
    ],
)  # fmt: skip
def test_a_wish_is_judged_the_same_in_the_file_and_in_a_command(
    tmp_path: Path, key: str, value: str, words: str
) -> None:
    with pytest.raises(InvalidFile) as in_file:
        load(tmp_path, f"{HEAD}hosts:\n  a:\n    slurm:\n      {key}: '{value}'\n")
    with pytest.raises(UsageError) as typed:
        Wish.read(pairs([f"{key}={value}"]))
    assert in_file.value.exit_code == typed.value.exit_code == 2
    for error in (in_file.value, typed.value):
        assert words in "\n".join(error.lines())
        assert error.hint
    assert "fleet.yaml:5:" in str(in_file.value)


def test_minutes_are_a_number_and_an_empty_key_is_no_wish(tmp_path: Path) -> None:
    (host,) = load(tmp_path, HEAD + "hosts: {a: {slurm: {time: 90}}}\n")
    assert host.slurm == {"time": "90", "exclusive": "true"}
    for text, words in (
        ("time: 0", "0 sets no limit"), ("time: 1.5", "in quotes"), ("time: true", "in quotes"),
        ("time:", "leave `time` away"), ("account: 7", "put it in quotes"),
    ):  # fmt: skip
        with pytest.raises(InvalidFile) as refused:
            load(tmp_path, f"{HEAD}hosts:\n  a:\n    slurm:\n      {text}\n")
        assert words in str(refused.value)
        assert "fleet.yaml:5:" in str(refused.value)


def test_an_editor_finds_what_the_program_refuses() -> None:
    told = json_schema(fleet_file.FleetModel, "fleet")
    hosts, fields = told["properties"]["hosts"], told["$defs"]["HostModel"]["properties"]

    def takes(shape: Any, value: str) -> bool:
        (text,) = (one for one in shape.get("anyOf", [shape]) if "pattern" in one)
        return re.search(text["pattern"], value) is not None

    for name, sound in (("boxa", True), ("1", True), ("all", False), ("aüb", False), ("-a", False)):
        assert takes(hosts["propertyNames"], name) == sound
    assert hosts["maxProperties"] == 200
    for lease, sound in (("60s", True), ("1h30m", True), ("1m 5s", True), ("5s", False),
                         ("59.5s", False), ("soon", False)):  # fmt: skip
        assert takes(fields["lease"], lease) == sound
    for alias, sound in (("ops@10.0.0.12", True), ("fe80::1", True), ("a:22", False)):
        assert takes(fields["ssh"], alias) == sound
    assert [takes(fields["command"], x) for x in ("~/omni", "", " ")] == [True, False, False]
    assert fields["slurm"]["$ref"].endswith("SlurmModel"), "and no null"
    time = told["$defs"]["SlurmModel"]["properties"]["time"]
    assert (time["minimum"], takes(time, "1-12"), takes(time, "abc")) == (3, True, False)


def test_a_host_says_what_its_allocation_is_asked_for_with(tmp_path: Path) -> None:
    text = (
        "hosts: {a: {slurm: {gres: gpu:1, begin: 23:00, time: 8:00:00}}, b: {slurm: {}}, c: {}}\n"
    )
    for found in (load(tmp_path, HEAD + text), load(tmp_path, HEAD + text)):
        assert [one.slurm for one in found] == [
            {"gres": "gpu:1", "begin": "23:00", "time": "8:00:00", "exclusive": "true"},
            {"exclusive": "true"}, {},
        ]  # fmt: skip


def test_hosts_are_chosen_by_name_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(HEAD + "hosts: {a: {}, b: {}, c: {}}\n")
    fleet = load_fleet(str(tmp_path / "f.yaml"))
    assert [one.name for one in fleet.chosen("c, a")] == ["c", "a"]
    assert [one.name for one in fleet.chosen("all")] == ["a", "b", "c"]
    for wrong in ("", "a,a", "a,d", "all,a"):
        with pytest.raises(UsageError, match=r"which hosts|no host"):
            fleet.chosen(wrong)


def test_the_file_is_found_like_the_site_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OMNI_FLEET", raising=False)
    with pytest.raises(UsageError, match=r"no fleet file: .*/omni-console/fleet\.yaml"):
        load_fleet(None)
    (tmp_path / "mine.yaml").write_text(HEAD + "hosts: {a: {}}\n")
    monkeypatch.setenv("OMNI_FLEET", str(tmp_path / "mine.yaml"))
    assert load_fleet(None).path.name == "mine.yaml"


def test_what_was_read_holds_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()
    before = fleet_file.read_hosts
    monkeypatch.setattr(fleet_file, "read_hosts", lambda path: read.append(path) or before(path))
    assert load(tmp_path, HEAD + "hosts: {a: {lease: 20m}}\n")[0].lease_s == 1200.0
    path = tmp_path / "fleet.yaml"
    assert load_fleet(str(path)).hosts == (Host("a", "a", "omni-console", 1200.0),)
    assert len(read) == 1
    assert [one.name for one in load(tmp_path, HEAD + "hosts: {b: {}}\n")] == ["b"]
    path.write_text("hosts: 7")
    with pytest.raises(InvalidFile):
        load_fleet(str(path))
    assert len(read) == 3


def test_a_wrong_copy_of_what_was_read_is_read_anew(tmp_path: Path) -> None:
    hosts = load(tmp_path, HEAD + "hosts: {b: {lease: 20m}}\n")
    copy = tmp_path / "cache/omni-console/fleet.json"
    text = copy.read_text()
    for _, wrong in wrong_files(text):
        copy.write_text(wrong)
        assert load_fleet(str(tmp_path / "fleet.yaml")).hosts == hosts
        assert copy.read_text() == text


PARTS = (
    [], ["run", "trial", "--on", "all"], ["tell", "a", "next"], ["rollback", "a"], ["report"],
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("before", [True, False])
def test_the_fleet_file_that_is_named_is_the_one_that_is_read(
    part: list[str], before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNI_FLEET", str(tmp_path / "default.yaml"))

    def given(file: str) -> list[str]:
        named = ["--fleet", file]
        return ["fleet", *named, *part] if before else ["fleet", *part, *named]

    assert main(given("other.yaml")) == 2
    assert "other.yaml" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(given(""))
    assert ended.value.code == 2
    assert "argument --fleet: an empty path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("omni-console", "ssh ops@a omni-console rollback"),
        ("~/omni/bin/omni-console", "ssh ops@a '~/omni/bin/omni-console rollback'"),
        ("/opt/my omni/console", "ssh ops@a ''\"'\"'/opt/my omni/console'\"'\"' rollback'"),
    ],
)
def test_what_is_pasted_into_a_shell_names_the_hosts_own_home(command: str, typed: str) -> None:
    """Without quotes this machine's shell put its own home in the place of `~`."""
    host = Host("a", "ops@a", command)
    assert host.typed("rollback") == typed
    told = subprocess.run(
        ["sh", "-c", f"ssh() {{ shift; echo \"$@\"; }}; {typed}"], capture_output=True, text=True,
        env={"HOME": "/home/mine", "PATH": os.environ["PATH"]}, check=True,
    )  # fmt: skip
    assert f"exec {told.stdout.strip()}" == host.words("rollback")
