"""Guards and lease in a playbook: what is understood, and what is refused at which place."""

from hypothesis import given
from hypothesis import strategies as st

from console.config.site.guard import GuardModel, figure
from console.recovery.guard.config import Limit
from console.recovery.guard.metrics import METRICS
from tests.playbook.conftest import SERVICES, Book, steps_text

NOTE = steps_text("{id: a, note: x}")
GIB = 1 << 30


def one(book: Book, guard: str, **options: object) -> Limit:
    (limit,) = book.load(SERVICES + f"guards:\n- {guard}\n" + NOTE, **options).guards  # type: ignore[arg-type]
    return limit


LIMITS = {
    "{metric: host.ram_available, below: 24GiB, for: 2s}":
        Limit("host.ram_available", below=24 * GIB, for_s=2.0),
    "{metric: host.swap_in_rate, above: 400MiB/s, for: 10s}":
        Limit("host.swap_in_rate", above=400 * 2**20, for_s=10.0),
    "{metric: gpu.memory_used, above: 126GiB, of: sum}":
        Limit("gpu.memory_used", above=126 * GIB, of="sum"),
    "{metric: gpu.memory_free, below: 1GB, of: GPU-1234}":
        Limit("gpu.memory_free", below=1e9, of="GPU-1234"),
    "{metric: gpu.temperature, above: 87C, for: 5s, of: max}":
        Limit("gpu.temperature", above=87.0, for_s=5.0, of="max"),
    "{metric: gpu.temperature, above: 87.5 °C, of: GPU-1234}":
        Limit("gpu.temperature", above=87.5, of="GPU-1234"),
    "{metric: host.pressure, above: 30%, act: warn}":
        Limit("host.pressure", above=30.0, act="warn"),
    "{metric: host.time_to_full, below: 20s}": Limit("host.time_to_full", below=20.0),
    "{metric: disk.free, below: 5GiB, of: /nvme, missing: breach}":
        Limit("disk.free", below=5 * GIB, of="/nvme", missing="breach"),
    "{metric: service.restarts, above: 0, of: cand}":
        Limit("service.restarts", above=0.0, of="cand"),
    "{metric: service.ram_used, above: 10GiB}": Limit("service.ram_used", above=10 * GIB),
    "{log: cand, matches: 'CUDA error|out of memory', count: 3}":
        Limit(log="cand", matches="CUDA error|out of memory", count=3),
}  # fmt: skip


def test_guards_as_the_sentinel_takes_them(book: Book) -> None:
    for guard, limit in LIMITS.items():
        found = one(book, guard)
        assert found.source == "playbook, line 6"
        assert found.to_json() | {"source": ""} == limit.to_json() | {"source": ""}
        assert Limit.from_json(found.to_json()) == found


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
    assert [line.partition(": ")[0] for line in found] == ["6:12", "7:9", "11:18"]


def test_a_lease(book: Book) -> None:
    for text, seconds in {"30m": 1800.0, "0s": 0.0, "1h30m": 5400.0}.items():
        assert book.load(f"lease: {text}\n" + NOTE).model.lease == seconds
    for text in ("30", "-1m", "soon", "31d"):
        (said,) = book.problems(f"lease: {text}\n" + NOTE)
        assert said.startswith("4:8: 'lease'"), text
    loaded = book.load(NOTE)
    assert (loaded.model.lease, loaded.guards) == (None, ())


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()),
       st.sampled_from(sorted({metric.unit for metric in METRICS.values()})))  # fmt: skip
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
