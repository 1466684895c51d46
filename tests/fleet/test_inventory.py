"""The fleet file: strict, and every problem with its place."""

from pathlib import Path

import pytest

from console.common.errors import InvalidFile, UsageError
from console.fleet import fleet_file
from console.fleet.inventory import Host, load_fleet

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
    ("text", "place", "words"),
    [
        ("hosts:\n  a: {ssh: -oProxyCommand=x}\n", "3:12", "no - in front"),
        ("hosts:\n  a: {ssh: 'x; rm -rf /'}\n", "3:12", "a name that ssh knows"),
        ("hosts:\n  a: {shs: b}\n", "3:7", "did you mean 'ssh'?"),
        ("hosts:\n  a: {lease: 2s}\n", "3:14", "60"),
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
    (tmp_path / "cache/omni-console/fleet.json").write_text("[1]")
    assert [one.name for one in load_fleet(str(path)).hosts] == ["b"]
    path.write_text("hosts: 7")
    with pytest.raises(InvalidFile):
        load_fleet(str(path))
    assert len(read) == 4
