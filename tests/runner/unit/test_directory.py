"""A run's directory, and finding a run by what somebody types."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from console.common import paths
from console.common.errors import UsageError
from console.journal.run_dir import RunDir, RunMeta, all_runs, create, find_run
from tests.wrong_files import wrong_files

META = RunMeta("", "x", "/base", "0" * 64, "ws", "/site", {"port": "8001"}, owner="op")


def made(name: str) -> RunDir:
    """A run whose directory has a name of one's own."""
    run = RunDir(paths.runs_dir() / name)
    run.path.mkdir(parents=True)
    run.write_meta(META)
    return run


def test_the_text_is_utf_8_whatever_the_locale_says() -> None:
    code = (
        "from console.journal.run_dir import RunMeta, create\n"
        "m = RunMeta('', 'x', '/b', '', 'ws', '/s')\n"
        "print(create('x', m, 'a: \\u2265', '').path)"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code], capture_output=True, text=True, check=True,
        env={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "XDG_STATE_HOME": str(paths.state_dir())},
    )  # fmt: skip
    assert (Path(done.stdout.strip()) / "playbook.yaml").read_bytes() == b"a: \xe2\x89\xa5"


@pytest.mark.parametrize("text", ["20", "zzz", "\x1b[31m"])
def test_a_run_nobody_can_tell(text: str) -> None:
    made("20250101-000000-a-1111")
    made("20260101-000000-b-2222")
    with pytest.raises(UsageError) as caught:
        find_run(text)
    assert "20260101-000000-b-2222" in caught.value.detail
    assert "\x1b" not in "".join(caught.value.lines())


def test_a_run_by_its_directory(tmp_path: Path) -> None:
    run = made("20250101-000000-a-1111")
    moved = run.path.rename(tmp_path / "elsewhere")
    assert find_run(str(moved)).meta().owner == "op"
    with pytest.raises(UsageError):
        find_run(f"{tmp_path}/nothing")


def test_a_damaged_description_is_said() -> None:
    run = made("20250101-000000-a-1111")
    for content in (b"", b"{}", b"[]", b"null", b"\xff", b'{"run_id": "x"}', b'{"nope": 1}', b"{"):
        (run.path / "run.json").write_bytes(content)
        with pytest.raises(UsageError):
            run.meta()
        assert not run.readable


def test_a_description_with_one_wrong_value_is_refused_by_its_key() -> None:
    run = made("20250101-000000-a-1111")
    for path in (run.path / "run.json", run.inputs):
        good = path.read_text()
        for key, wrong in wrong_files(good):
            path.write_text(wrong)
            with pytest.raises(UsageError, match="is not a run") as caught:
                run.meta()
            assert key == "no object" or f"{key}: expected" in caught.value.detail, key
        path.write_text(good)
    assert run.readable


def test_a_log_never_leaves_the_directory() -> None:
    for step in ("a", "baseline:stop-2", "../../etc/passwd", "x/y", "\x00"):
        path = RunDir(Path("/runs/r")).attempt_log(step, 2)
        assert (path.parent, path.name.endswith(".2.log")) == (Path("/runs/r/attempts"), True)


def test_what_is_created_is_found_and_nobody_else_may_look() -> None:
    assert all_runs() == []
    with pytest.raises(UsageError):
        find_run(None)
    run = create("x", META, "text: ünï\r\n", "site: 漢\n")
    assert (run.meta().run_id, run.meta().inputs) == (run.id, {"port": "8001"})
    assert run.playbook.read_bytes() == "text: ünï\r\n".encode()
    assert run.site.read_text("utf-8") == "site: 漢\n"
    assert {p.name for p in run.path.iterdir() if p.is_dir()} == {"rollback", "logs", "attempts"}
    assert stat.S_IMODE(run.path.stat().st_mode) & 0o077 == 0, "an argv may hold keys"
    data = json.loads((run.path / "run.json").read_text())
    assert set(data) == set(RunMeta.__dataclass_fields__) - {"inputs"}
    assert stat.S_IMODE(run.inputs.stat().st_mode) == 0o600
    ids = {run.id, *(create("x", META, "", "").id for _ in range(4))}
    assert ids == {r.id for r in all_runs()}
    assert len(ids) == 5, "of one second"


def test_newest_first_and_found_by_beginning_or_end() -> None:
    a, b, c = "20250101-000000-a", "20260101-000000-b-2222", "20250101-000000-a-2"
    for name in (a, b, c):
        made(name)
    (paths.runs_dir() / "20270101-000000-empty").mkdir()
    (paths.runs_dir() / "stray.txt").write_text("x")
    assert [r.id for r in all_runs()] == [b, c, a]
    asked = {None: b, a: a, "a-2": c, "b-2222": b, "2026": b}
    assert {text: find_run(text).id for text in asked} == asked
