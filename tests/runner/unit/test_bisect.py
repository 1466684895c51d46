"""The search of a bisect, the order of its versions, and what it keeps on disk."""

import math
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.clock import SystemClock
from console.common.errors import HostBusy, InvalidFile, UsageError
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView, StepView
from console.journal.state import RunState, StepState
from console.runner.bisect import drive
from console.runner.bisect.candidates import between, of_file, of_git, of_words, shown, subject
from console.runner.bisect.drive import Driver
from console.runner.bisect.record import BisectQuery, Pending, Record, Try, held, kept, opened, read
from console.runner.bisect.search import (
    Standing,
    Word,
    contradiction,
    standing,
    unproven,
)
from tests.wrong_files import wrong_files


def search(count: int, first_bad: int, skipped: set[int]) -> tuple[Standing, dict[int, Word]]:
    """Try versions until the end; where it stands then, and what was tried."""
    found: dict[int, Word] = {}
    while (at := standing(count, found).following) is not None:
        assert at not in found, "nothing is tried twice"
        bad = Word.BAD if at >= first_bad else Word.GOOD
        found[at] = Word.SKIP if at in skipped else bad
    return standing(count, found), found


@given(st.integers(2, 200), st.randoms(use_true_random=False), st.floats(0.0, 1.0))
def test_whatever_is_planted_is_found(count: int, chance: random.Random, share: float) -> None:
    first_bad = chance.randrange(1, count)
    skipped = {at for at in range(1, count - 1) if chance.random() < share}
    here, tried = search(count, first_bad, skipped)
    assert first_bad in here.suspects
    assert set(here.suspects) - {here.bad} <= skipped, "only what was skipped is left open"
    if not {first_bad, first_bad - 1} & skipped:
        assert list(here.suspects) == [first_bad]
    met = sum(word is Word.SKIP for word in tried.values())
    assert len(tried) <= math.ceil(math.log2(count - 1)) + 2 * met


@given(st.integers(2, 500), st.randoms(use_true_random=False))
def test_without_skips_it_takes_no_more_runs_than_it_said(
    count: int, chance: random.Random
) -> None:
    said = standing(count, {}).max_runs
    assert said == math.ceil(math.log2(count - 1))
    here, tried = search(count, chance.randrange(1, count), set())
    assert len(tried) <= said
    assert len(here.suspects) == 1


def test_the_neighbours_nearest_the_middle_come_first() -> None:
    tried, found = [], dict[int, Word]()
    while (at := standing(8, found).following) is not None:
        tried.append(at)
        found[at] = Word.SKIP
    assert tried == [3, 2, 4, 1, 5, 6]


def test_an_end_that_was_tried_has_to_be_what_it_was_said_to_be() -> None:
    assert unproven(5, {}) == [0, 4]
    assert unproven(5, {0: Word.GOOD}) == [4]
    assert contradiction(5, {0: Word.GOOD, 4: Word.BAD}) is None
    assert contradiction(5, {0: Word.BAD}) == 0
    assert contradiction(5, {0: Word.GOOD, 4: Word.SKIP}) == 4
    assert standing(5, {0: Word.GOOD, 4: Word.BAD}) == standing(5, {})


def test_a_list_is_walked_from_the_good_one_to_the_bad_one(tmp_path: Path) -> None:
    listed = of_words("b1,b2, b3 b4,b5")
    assert between(listed, "b2", "b4") == ("b2", "b3", "b4")
    assert between(listed, "b4", "b2") == ("b4", "b3", "b2")
    file = tmp_path / "tags"
    file.write_text("# oldest first\nb1\n\nb2  # the day before\n")
    assert of_file(file) == ["b1", "b2"]


@pytest.mark.parametrize(
    ("listed", "good", "bad"),
    [("b1,b2", "b1", "b9"), ("b1,b2", "b9", "b2"), ("b1,b2", "b1", "b1"), ("b1,b2,b1", "b2", "b1")],
)
def test_a_list_that_cannot_be_walked_is_refused(listed: str, good: str, bad: str) -> None:
    with pytest.raises(UsageError):
        between(of_words(listed), good, bad)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Four commits on the first line, and a branch of two that was merged into it."""
    place = tmp_path / "repo"
    place.mkdir()
    named = ["-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main"]

    def git(*words: str) -> None:
        subprocess.run(["git", *named, *words], cwd=place, check=True, capture_output=True)

    def commit(words: str) -> None:
        git("commit", "--allow-empty", "-m", words)

    git("init")
    commit("one")
    git("tag", "one")
    git("checkout", "-b", "side")
    commit("beside")
    git("checkout", "main")
    commit("two")
    git("merge", "--no-ff", "-m", "three", "side")
    commit("four\x1b[31m")
    return place


def test_commits_are_those_of_the_first_line(repo: Path) -> None:
    commits = of_git(repo, "one", "main")
    assert len({len(one) for one in commits}) == 1
    assert [subject(repo, one) for one in commits] == ["one", "two", "three", "four"]
    assert len(shown(commits[0], git=True)) < len(commits[0])


@pytest.mark.parametrize(("good", "bad"), [("main", "one"), ("one", "one"), ("--all", "main")])
def test_commits_that_no_line_joins_are_refused(repo: Path, good: str, bad: str) -> None:
    with pytest.raises(UsageError):
        of_git(repo, good, bad)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BisectQuery:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return BisectQuery("trial", "d1", "local", "image", ("v1", "v2", "v3"), {"port": "1"})


def test_the_same_words_find_what_was_kept(asked: BisectQuery) -> None:
    first = opened(asked, 5.0, fresh=False)
    first.tries.append(
        Try(1, Word.BAD, "slow", "r1", "bench.tok_s", {"bench.tok_s": "3 tok/s"}, 9.0)
    )
    first.pending = Pending(2, 6.0, "r2")
    first.save()
    again = opened(asked, 7.0, fresh=False)
    assert again == first
    assert again.words == {1: Word.BAD}
    assert kept() == [first]
    assert opened(asked, 7.0, fresh=True).tries == []


@pytest.mark.parametrize(
    "other",
    [
        BisectQuery("trial", "d2", "local", "image", ("v1", "v2", "v3"), {"port": "1"}),
        BisectQuery("trial", "d1", "other", "image", ("v1", "v2", "v3"), {"port": "1"}),
        BisectQuery("trial", "d1", "local", "build", ("v1", "v2", "v3"), {"port": "1"}),
        BisectQuery("trial", "d1", "local", "image", ("v1", "v3"), {"port": "1"}),
        BisectQuery("trial", "d1", "local", "image", ("v1", "v2", "v3"), {"port": "2"}),
    ],
)
def test_other_words_are_another_bisect(asked: BisectQuery, other: BisectQuery) -> None:
    opened(asked, 5.0, fresh=False).save()
    assert not opened(other, 6.0, fresh=False).path.exists()


def test_one_process_at_a_time_goes_on_with_a_bisect(asked: BisectQuery) -> None:
    record = Record(asked, 5.0)
    with held(record), pytest.raises(HostBusy), held(record):
        pass
    with held(record):
        pass


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 99}'])
def test_a_torn_record_is_said_and_begun_anew_only_when_asked(
    asked: BisectQuery, text: str
) -> None:
    record = Record(asked, 5.0)
    record.save()
    record.path.write_text(text)
    with pytest.raises(UsageError):
        opened(asked, 6.0, fresh=False)
    assert kept() == []
    assert opened(asked, 6.0, fresh=True).tries == []


def test_a_record_with_one_wrong_value_is_refused_by_its_key(asked: BisectQuery) -> None:
    record = Record(asked, 5.0, [Try(1, Word.BAD, "slow")], Pending(2, 6.0))
    record.save()
    assert kept() == [record]
    for key, text in wrong_files(record.path.read_text()):
        record.path.write_text(text)
        with pytest.raises(UsageError, match="cannot be read") as refused:
            read(record.path)
        assert key == "no object" or refused.value.detail.startswith(f"{key}: expected"), key
        assert kept() == []


def test_a_version_with_which_no_run_can_begin_is_skipped_and_asked_again_later(
    asked: BisectQuery,
) -> None:
    started: list[str] = []

    def start(version: str) -> RunDir:
        started.append(version)
        raise InvalidFile("no run starts", [], "")

    def never(run: RunDir) -> None:
        raise AssertionError(run)

    for _ in range(2):
        record = opened(asked, 5.0, fresh=False)
        driver = Driver(
            record, SystemClock(), start=start, follow=never, resume=never, say=lambda text: None
        )
        driver.go(verify=False)
        assert read(record.path).words == {1: Word.SKIP}
    assert started == ["v2", "v2"]


def test_what_fails_before_a_version_began_is_tried_once_more(
    asked: BisectQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline could not be measured: that says nothing of the version, which is good."""
    row = StepView("baseline:measure", "", "", "measure", state=StepState.FAILED)
    failed = RunView(state=RunState.FAILED, steps=[row])
    went = RunView(state=RunState.SUCCEEDED)
    views = {"1": failed, "2": went, "3": failed, "4": failed}
    runs = iter(views)
    monkeypatch.setattr(drive, "view_of", lambda run: (views[run.id], "over"))

    def judged(at: int, run: RunDir, view: RunView) -> Try:
        return Try(at, Word.GOOD if view is went else Word.SKIP, "why", run.id)

    monkeypatch.setattr(drive, "judged", judged)
    for word in (Word.GOOD, Word.SKIP):
        record = opened(asked, 5.0, fresh=True)
        driver = Driver(
            record, SystemClock(), start=lambda version: RunDir(tmp_path / next(runs)),
            follow=lambda run: None, resume=lambda run: None, say=lambda text: None,
        )  # fmt: skip
        driver.go(verify=False)
        assert read(record.path).words == {1: word}
    assert next(runs, None) is None
