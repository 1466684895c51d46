"""The search for the fastest flags: command lines, what is measured next, and what is kept."""

import itertools
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from console.bench.tune.outcome import (
    Goal,
    Outcome,
    Speed,
    speed,
    together,
    undominated,
)
from console.bench.tune.points import Points
from console.bench.tune.search import Search
from console.bench.tune.space import Flag, Point, Space, space, value_of
from console.common import record, redact
from tests.wrong_files import wrong_files

GIB = 1 << 30
BASE = ("llama-server", "-m", "model.gguf", "-t", "8", "--ubatch-size=512", "--mlock")


def measured(rate: float) -> Outcome:
    return Outcome("measured", decode=speed(rate))


# -- command lines ---------------------------------------------------------------------------------


def test_todays_values_are_the_start_and_are_found_by_any_spelling() -> None:
    made = space({"--threads": ["4", "16"], "-ub": ["256"], "-fa": ["on"]}, BASE)
    assert made.changes(made.start) == "as it is"
    assert made.argv(BASE, made.start) == BASE
    assert [flag.values[at] for flag, at in zip(made.flags, made.start, strict=True)] == [
        "8",
        "512",
        None,
    ]


def test_a_point_replaces_a_flag_however_it_was_written() -> None:
    made = space({"-t": ["4"], "-ub": ["256"], "-fa": ["on"], "--mlock": [None, ""]}, BASE)
    point = tuple(
        flag.values.index(value)
        for flag, value in zip(made.flags, ["4", "256", "on", None], strict=True)
    )
    assert made.argv(BASE, point) == (
        "llama-server", "-m", "model.gguf", "-t", "4", "-ub", "256", "-fa", "on",
    )  # fmt: skip
    assert made.changes(point) == "-t 4 -ub 256 -fa on (no --mlock)"


def test_a_flag_with_underscores_or_a_short_name_is_the_same_flag() -> None:
    base = ("llama-server", "--ctx_size", "8192", "--n_gpu_layers", "20", "-ctk", "q8_0")
    found = [value_of(base, one) for one in ("-c", "-ngl", "--cache-type-k")]
    assert found == ["8192", "20", "q8_0"]
    made = space({"--ctx-size": ["4096"], "--cache_type_k": ["f16"]}, base)
    words = made.argv(base, (1, 1))
    assert words[1:3] == ("--ctx-size", "4096")
    assert words[5:] == ("--cache_type_k", "f16")
    with pytest.raises(ValueError, match="varied twice"):
        space({"-c": ["1"], "--ctx_size": ["2"]}, base)


def test_a_flag_of_a_wrapper_is_changed_where_it_stands() -> None:
    base = ("numactl", "--interleave", "all", "llama-server", "-m", "x.gguf")
    made = space({"--interleave": ["0", None]}, base)
    assert made.argv(base, (1,))[:3] == ("numactl", "--interleave", "0")
    assert made.argv(base, (2,)) == ("numactl", "llama-server", "-m", "x.gguf")


def test_several_flags_take_the_same_value() -> None:
    made = space({"-ctk -ctv": ["f16", "q8_0"]}, BASE)
    assert made.argv(("x",), (2,)) == ("x", "-ctk", "q8_0", "-ctv", "q8_0")


@pytest.mark.parametrize(
    ("flags", "argv", "words"),
    [
        ({"-t": ["1"], "--threads": ["2"]}, BASE, "varied twice"),
        ({"-t": ["1"]}, ("x", "-t", "1", "--threads", "2"), "2 times"),
        ({"-ctk -ctv": ["f16"]}, ("x", "-ctk", "q8_0"), "one by one"),
        ({"--api-key": ["a"]}, BASE, "secret"),
        ({"-t": ["1"]}, ("/bin/bash", "-lc", "exec llama-server -m x.gguf"), "do not reach"),
    ],
)
def test_what_cannot_be_varied_is_refused(
    flags: dict[str, list[str | None]], argv: Sequence[str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        space(flags, argv)


def test_flags_behind_a_script_that_hands_them_on_are_varied() -> None:
    base = ("sh", "-c", 'exec llama-server -m x.gguf "$@"', "llama-server")
    assert space({"-t": ["4"]}, base).argv(base, (1,))[-2:] == ("-t", "4")


def test_a_value_that_looks_like_a_flag_is_a_number() -> None:
    assert value_of(("x", "-ngl", "-1", "-c", "4096"), "--gpu-layers") == "-1"
    assert value_of(("x", "--mlock", "-c", "4096"), "--mlock") == ""
    assert value_of(("x",), "--mlock") is None
    assert value_of(("x", "--temp", "-.5"), "--temp") == "-.5"


# -- the search ------------------------------------------------------------------------------------


def grid(sizes: Sequence[int]) -> Space:
    flags = (
        Flag((f"--f{n}",), tuple(f"v{v}" for v in range(size))) for n, size in enumerate(sizes)
    )
    return Space(tuple(flags), (0,) * len(sizes))


def surface(seed: int, sizes: Sequence[int], together: float) -> Callable[[Point], float]:
    """A rate by the product of each flag's effect and of each pair's."""
    chance = random.Random(seed)
    single = [[chance.gauss(0, 0.2) for _ in range(size)] for size in sizes]
    pairs = {
        (i, a, j, b): chance.gauss(0, together)
        for i, j in itertools.combinations(range(len(sizes)), 2)
        for a in range(sizes[i]) for b in range(sizes[j])
    }  # fmt: skip

    def rate(point: Point) -> float:
        total = sum(single[n][value] for n, value in enumerate(point))
        total += sum(
            pairs[i, a, j, b] for (i, a), (j, b) in itertools.combinations(enumerate(point), 2)
        )
        return 10 * math.exp(total)

    return rate


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_many_combinations_is_found_with_few_measurements(seed: int) -> None:
    made = grid((4, 5, 3, 2, 3, 2))
    rate = surface(seed, (4, 5, 3, 2, 3, 2), together=0.02)
    asked: list[Point] = []

    def ask(point: Point) -> Outcome:
        asked.append(point)
        return measured(rate(point))

    found = Search(made, Goal(), ask).run()
    assert found.best is not None
    assert rate(found.best) >= 0.98 * max(map(rate, made.points()))
    assert len(asked) == len(set(asked)) <= 0.2 * made.size


def test_a_range_that_does_not_fit_is_halved_until_the_last_that_does() -> None:
    layers = [str(n) for n in range(65)]
    made = space({"-ngl": layers}, ("x", "-ngl", "0"))
    asked: list[int] = []

    def ask(point: Point) -> Outcome:
        count = int(layers[point[0]])
        asked.append(count)
        return measured(1.0 + count) if count <= 41 else Outcome("card", why="out of memory")

    found = Search(made, Goal(), ask).run()
    assert found.best == (41,)
    assert max(asked) == 64
    assert len(asked) <= 16


def test_what_surely_takes_more_than_what_did_not_fit_is_never_started() -> None:
    made = space(
        {"-c": ["4096", "8192"], "-ub": ["512", "1024"]}, ("x", "-c", "4096", "-ub", "512")
    )
    asked: list[str] = []

    def ask(point: Point) -> Outcome:
        asked.append(made.changes(point))
        return (
            Outcome("host")
            if "8192" in asked[-1]
            else measured(1.0 if "1024" in asked[-1] else 2.0)
        )

    found = Search(made, Goal(), ask).run()
    assert found.best == made.start
    assert sorted(asked) == ["-c 8192", "-ub 1024", "as it is"]


@pytest.mark.parametrize(("flag", "every"), [("-ngl", "-1"), ("-c", "0"), ("--ctx-size", "0")])
def test_a_number_that_means_all_or_automatic_is_not_the_smallest(flag: str, every: str) -> None:
    """All layers, or the model's whole context, do not fit; fewer do."""
    made = space({flag: [every, "4096", "8192"]}, ("x",))

    def ask(point: Point) -> Outcome:
        value = made.flags[0].values[point[0]]
        return Outcome("card") if value == every else measured(10.0 + point[0])

    found = Search(made, Goal(), ask).run()
    assert sorted(one.fate for one in found.outcomes.values()) == ["card"] + ["measured"] * 3
    assert found.best == (3,)


def test_more_layers_on_the_card_are_tried_where_the_host_was_full() -> None:
    made = space({"-ngl": ["0", "10", "20"]}, ("x", "-ngl", "0"))
    found = Search(made, Goal(), lambda point: measured(5.0) if point[0] else Outcome("host")).run()
    assert found.best in ((1,), (2,))


def test_a_point_beyond_the_envelope_does_not_win_and_is_kept() -> None:
    made = space({"-b": ["256", "512"]}, ("x", "-b", "256"))
    found = Search(
        made, Goal(vram=8 * GIB),
        lambda point: Outcome(
            "measured", decode=speed(9.0 + point[0]), vram=(7 + 2 * point[0]) * GIB
        ),
    ).run()  # fmt: skip
    assert found.best == (0,)
    assert len(found.outcomes) == 2


def test_no_more_points_are_measured_than_asked_for() -> None:
    made, rate = grid((6, 6, 6)), surface(1, (6, 6, 6), 0.1)
    found = Search(made, Goal(), lambda point: measured(rate(point)), most=7).run()
    assert len(found.outcomes) == 7
    assert "7 points" in found.why


def test_what_is_known_costs_nothing_of_what_may_be_measured() -> None:
    made, rate = grid((6, 6, 6)), surface(1, (6, 6, 6), 0.1)
    first = Search(made, Goal(), lambda point: measured(rate(point)), most=7).run()
    asked: list[Point] = []

    def ask(point: Point) -> Outcome:
        asked.append(point)
        return measured(rate(point))

    again = Search(made, Goal(), ask, most=7, known=first.outcomes).run()
    assert len(asked) == 7
    assert not set(asked) & first.outcomes.keys()
    assert len(again.outcomes) == 14


def test_nothing_that_can_be_measured_is_said() -> None:
    found = Search(grid((2, 2)), Goal(), lambda _: Outcome("failed", why="no")).run()
    assert (found.best, found.why) == (None, "no point could be measured")


# -- what is kept ----------------------------------------------------------------------------------


def test_a_request_is_all_its_tokens_over_the_sum_of_both_times() -> None:
    found = Outcome("measured", decode=speed(10.0), prompt=speed(100.0))
    goal = Goal("request", prompt_tokens=100, answer_tokens=10)
    assert goal.score(found) == pytest.approx(110 / 2.0)
    assert goal.score(Outcome("measured", decode=speed(10.0))) is None


def test_points_survive_a_torn_line_and_a_later_one_counts(tmp_path: Path) -> None:
    kept = Points(tmp_path, {"model": "a"})
    kept.keep(("x", "-t", "1"), measured(1.0), at=1.0)
    with kept.path.open("a") as file:
        file.write('{"key": "abc", "outc')
    kept.keep(("x", "-t", "3"), Outcome("host", why="killed"), at=2.0)
    kept.keep(("x", "-t", "1"), measured(4.0), at=3.0)
    with kept.path.open("a") as file:
        odd = {"fate": "measured", "decode": {"starts": [[0]]}}
        file.write(json.dumps({"key": "abc", "outcome": odd}) + "\n")
    again = Points(tmp_path, {"model": "a"})
    assert again.read() == 2
    assert again.get(("x", "-t", "1")) == measured(4.0)
    assert again.get(("x", "-t", "3")) == Outcome("host", why="killed")


def test_a_point_with_one_wrong_value_is_measured_anew(tmp_path: Path) -> None:
    kept = Points(tmp_path, {})
    kept.keep(("x",), replace(measured(1.0), ram=3, turns=("a",)), at=1.0)
    line = kept.path.read_text()
    for _, text in wrong_files(line, leave="argv"):
        kept.path.write_text(text + "\n")
        again = Points(tmp_path, {})
        assert again.read() == 0, text
        again.forget(0.5)


def test_no_secret_of_a_command_line_or_an_environment_is_written(tmp_path: Path) -> None:
    kept = Points(tmp_path / "tune", {"env": "HF_TOKEN=hf_environment"})
    kept.keep(("x", "--api-key", "sk-commandline"), measured(1.0), at=1.0)
    written = kept.path.read_text()
    assert "hf_environment" not in written
    assert "sk-commandline" not in written
    assert kept.path.stat().st_mode & 0o77 == kept.path.parent.stat().st_mode & 0o77 == 0


def test_no_known_secret_is_written_wherever_it_stands(tmp_path: Path) -> None:
    known = redact.Known(("s3cretvalue",))
    kept = Points(tmp_path / "tune", {}, known)
    why = "cannot open http://me:s3cretvalue@host"
    kept.keep(("x", "--url", "http://me:s3cretvalue@host"), Outcome("host", why=why), at=1.0)
    assert "s3cretvalue" not in kept.path.read_text()


def test_another_model_is_another_file(tmp_path: Path) -> None:
    assert Points(tmp_path, {"model": "a"}).path != Points(tmp_path, {"model": "b"}).path


def test_an_outcome_is_read_as_it_was_written() -> None:
    found = Outcome("measured", Speed(((1.0, 2.0), (3.0,))), None, 3, 4, 5, "why", ("", "run 1"))
    assert record.of(Outcome, record.parse(record.text(found))) == found


def test_two_measurements_are_two_starts() -> None:
    both = together(measured(1.0), measured(3.0), "run 1")
    assert Goal().by_turn(both) == {"run 1": 3.0}
    assert both.decode == Speed(((1.0,), (3.0,)))
    assert (both.starts, Goal().score(both), Goal().rates(both)) == (2, 1.0, [1.0, 3.0])


def test_the_front_is_what_nothing_beats() -> None:
    points = {
        "fast and big": Outcome("measured", speed(10.0), vram=20 * GIB),
        "slow and small": Outcome("measured", speed(5.0), vram=10 * GIB),
        "slow and big": Outcome("measured", speed(4.0), vram=20 * GIB),
        "broken": Outcome("failed"),
    }
    assert [name for name, _ in undominated(points.items())] == ["fast and big", "slow and small"]
