"""Guards and lease in a playbook: what is understood, and what is refused at which place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.guard.limits import METRICS, Limit
from console.playbook.schema import playbook_schema
from console.site.guard import GuardModel, figure
from tests.playbook.book import SERVICES, Book, steps_text

NOTE = steps_text("{id: a, note: x}")
GIB = 1 << 30


def one(book: Book, guard: str, **options: object) -> Limit:
    (limit,) = book.load(SERVICES + f"guards:\n- {guard}\n" + NOTE, **options).guards  # type: ignore[arg-type]
    return limit


@pytest.mark.parametrize(
    ("guard", "limit"),
    [
        ("{metric: host.ram_available, below: 24GiB, for: 2s}",
         Limit("host.ram_available", below=24 * GIB, for_s=2.0)),
        ("{metric: host.swap_in_rate, above: 400MiB/s, for: 10s}",
         Limit("host.swap_in_rate", above=400 * 2**20, for_s=10.0)),
        ("{metric: gpu.memory_used, above: 126GiB, of: sum}",
         Limit("gpu.memory_used", above=126 * GIB, of="sum")),
        ("{metric: gpu.memory_free, below: 1GB, of: GPU-1234}",
         Limit("gpu.memory_free", below=1e9, of="GPU-1234")),
        ("{metric: host.pressure, above: 30%, act: warn}",
         Limit("host.pressure", above=30.0, act="warn")),
        ("{metric: host.time_to_full, below: 20s}", Limit("host.time_to_full", below=20.0)),
        ("{metric: disk.free, below: 5GiB, of: /nvme, missing: breach}",
         Limit("disk.free", below=5 * GIB, of="/nvme", missing="breach")),
        ("{metric: service.restarts, above: 0, of: cand}",
         Limit("service.restarts", above=0.0, of="cand")),
        ("{metric: service.ram_used, above: 10GiB}", Limit("service.ram_used", above=10 * GIB)),
        ("{log: cand, matches: 'CUDA error|out of memory', count: 3}",
         Limit(log="cand", matches="CUDA error|out of memory", count=3)),
    ],
)  # fmt: skip
def test_a_guard_as_the_sentinel_takes_it(book: Book, guard: str, limit: Limit) -> None:
    found = one(book, guard)
    assert found.source == "playbook, line 6"
    assert found.to_json() | {"source": ""} == limit.to_json() | {"source": ""}
    assert Limit.from_json(found.to_json()) == found


REFUSED = [
    ("{metric: host.ram, below: 24GiB}", "6:12: 'metric' is 'host.ram'; expected one of host.ram_"),
    ("{metric: host.ram_available}", "6:3: a guard on a metric has below or above"),
    ("{metric: host.ram_available, below: 1GiB, above: 2GiB}", "and only one of them"),
    ("{metric: host.ram_available, above: 1GiB}", "is bad when it is low: write below"),
    ("{metric: host.swap_used, below: 1GiB}", "is bad when it is high: write above"),
    ("{metric: host.ram_available, below: 24}", "6:39: 'below' is 24; expected bytes with a unit"),
    ("{metric: host.ram_available, below: 24Gb}", "expected bytes with a unit"),
    ("{metric: host.ram_available, below: true}", "expected bytes with a unit"),
    ("{metric: host.ram_available, below: 0B}", "never below zero"),
    ("{metric: host.ram_available, below: 1MiB}", "too late: the kernel acts before that"),
    ("{metric: host.swap_in_rate, above: 1GiB}", "expected bytes a second with a unit"),
    ("{metric: host.swap_in_rate, above: 1GiB/min}", "expected bytes a second with a unit"),
    ("{metric: host.pressure, above: 30}", "expected a percentage"),
    ("{metric: host.pressure, above: 100%}", "never above 100 %"),
    ("{metric: host.pressure, above: -1%}", "expected a percentage"),
    ("{metric: host.pressure_some, above: 0%}", "above 0 % is breached on any day"),
    ("{metric: service.ram_used, above: 0B}", "is breached by any service that lives"),
    ("{metric: service.ram_used, above: 1B, of: cand}", "1.0 MiB is the least"),
    ("{metric: host.time_to_full, below: 20}", "expected a duration with a unit"),
    ("{metric: service.restarts, above: 1.5}", "expected a whole number"),
    ("{metric: service.restarts, above: -1}", "expected a whole number"),
    ("{metric: service.restarts, above: 1, of: candy}", "6:44: unknown service 'candy'; expected"),
    ("{metric: gpu.memory_used, above: 1GiB}", "of: sum, of: max, of: min or a card's UUID"),
    ("{metric: gpu.memory_used, above: 1GiB, of: all}", "a card's UUID (GPU-…), not all"),
    ("{metric: host.ram_available, below: 1GiB, of: cand}", "'of' is no part of host.ram"),
    ("{metric: host.ram_available, below: 1GiB, for: 2}", "'for' is 2; expected a duration"),
    ("{metric: host.ram_available, below: 1GiB, for: 2h}", "'for' is '2h'; expected at most 1h"),
    ("{metric: host.ram_available, below: 1GiB, count: 2}", "count belongs to a guard on a log"),
    ("{metric: host.ram_available, below: 1GiB, act: stop}", "'act' is 'stop'; expected"),
    ("{metric: host.ram_available, below: 1GiB, missing: no}", "'missing' is 'no'"),
    ("{metric: host.ram_available, bellow: 1GiB}", "unknown key 'bellow'"),
    ("{below: 1GiB}", "a guard names a metric, or a log"),
    ("{log: cand}", "names the service (log) and what its lines match"),
    ("{matches: x}", "names the service (log) and what its lines match"),
    ("{log: cand, matches: '('}", "6:24: 'matches' is '('; expected a valid regular expression"),
    ("{log: cand, matches: '.*'}", "is met by any line"),
    ("{log: cand, matches: x, count: 0}", "'count' is 0"),
    ("{log: candy, matches: x}", "6:9: unknown service 'candy'; expected one of cand"),
    ("{log: cand, matches: x, metric: host.pressure}", "on a metric or on a log, not both"),
    ("{log: cand, matches: x, for: 2s}", "of and for belong to metrics"),
    ("{log: baseline, matches: x}", "unknown service 'baseline'"),
    ("just words", "'0' is 'just words'; expected a mapping"),
]


@pytest.mark.parametrize(("guard", "said"), REFUSED)
def test_what_no_guard_can_mean(book: Book, guard: str, said: str) -> None:
    found = book.problems(SERVICES + f"guards:\n- {guard}\n" + NOTE)
    assert [line for line in found if said in line] != [], found


def test_a_guard_on_a_service_of_the_site(book: Book) -> None:
    limit = one(book, "{log: fast, matches: x}", site_services=frozenset({"fast"}))
    assert limit.log == "fast"


def test_an_input_may_fill_a_limit(book: Book) -> None:
    body = "inputs: {floor: {type: bytes, default: 3GiB}}\n"
    body += "guards: [{metric: host.ram_available, below: '${{ inputs.floor }}'}]\n"
    (limit,) = book.load(body + NOTE).guards
    assert limit.below == 3 * GIB


def test_every_problem_at_once_beside_a_broken_step(book: Book) -> None:
    body = SERVICES + "guards:\n- {metric: nope, below: 1GiB}\n- {log: candy, matches: x}\n"
    found = book.problems(body + steps_text("{id: a, run: 3}"))
    assert len([line for line in found if "'metric' is 'nope'" in line]) == 1
    assert len([line for line in found if "unknown service 'candy'" in line]) == 1
    assert any("'run' is 3" in line for line in found)


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800.0), ("0s", 0.0), ("1h30m", 5400.0)])
def test_a_lease(book: Book, text: str, seconds: float) -> None:
    assert book.load(f"lease: {text}\n" + NOTE).model.lease == seconds


@pytest.mark.parametrize("text", ["30", "-1m", "soon", "31d"])
def test_no_lease(book: Book, text: str) -> None:
    assert any("'lease' is" in line for line in book.problems(f"lease: {text}\n" + NOTE))


def test_without_a_lease_there_is_none(book: Book) -> None:
    loaded = book.load(NOTE)
    assert (loaded.model.lease, loaded.guards) == (None, ())


def test_the_schema_knows_them() -> None:
    schema = playbook_schema()
    guard = schema["$defs"]["GuardModel"]["properties"]
    assert {"metric", "below", "above", "for", "of", "log", "matches", "count", "act",
            "missing"} == set(guard)  # fmt: skip
    assert set(METRICS) <= set(str(guard["metric"]).replace("'", " ").split())
    assert schema["properties"]["lease"]["description"].startswith("how long the baseline may be")


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()),
       st.sampled_from(sorted(set(METRICS.values()))))  # fmt: skip
def test_a_figure_is_a_number_or_says_its_form(value: object, unit: str) -> None:
    try:
        found = figure(value, unit)
    except ValueError:
        return
    assert found >= 0


@given(st.dictionaries(
    st.sampled_from(sorted(GuardModel.model_fields)),
    st.one_of(st.text(max_size=8), st.integers(), st.sampled_from([*METRICS, "1GiB", "3s", "5%"])),
))  # fmt: skip
def test_whatever_is_a_guard_is_a_limit(data: dict[str, object]) -> None:
    try:
        model = GuardModel.model_validate({"for" if k == "for_" else k: v for k, v in data.items()})
    except ValueError:
        return
    assert Limit.from_json(model.limit("x").to_json()) == model.limit("x")
