"""A playbook's document with stand-ins in it; its text and its gates stay."""

import copy
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from console.bench.metrics import QUALITY_METRICS, TASK_METRICS, Metric
from console.config.playbook.captured import base_unit, read_output
from console.config.playbook.kinds import Dropped, Moved, declared, mark_of, model_of
from console.config.playbook.measuring_steps import Count, Filling
from console.config.playbook.steps import Step, ThresholdText
from console.config.site.site import Compute, Rate, load_site
from console.config.validation import ByteCount, Duration, Pattern
from console.models.gguf.read import read_header
from console.models.sizing.cards.flash_attention import has_kernel
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.loader_plan import LlamaPlan
from console.rehearsal import image
from console.rehearsal import workspace as place
from console.rehearsal.prepare import write_site
from console.rehearsal.rewrite import OWN, Rewriter, steps
from console.rehearsal.workspace import Mapping

PORTS = {"8000": 18000, "8001": 18001, "8005": 18005}
BOOK: dict[str, Any] = {
    "title": "A trial",
    "services": {
        "box": {
            "container": {"image": "omni/kt:1", "gpus": "all", "ports": ["8001:8000"],
                          "name": "kt", "network": "brain", "mounts": ["/nvme/models:/models:ro"]},
            "url": "http://127.0.0.1:8001", "ready": {"timeout": "30m", "stable_for": "10s"},
        },
        "host": {
            "process": {"argv": ["/nvme/env/bin/python", "-m", "sglang.launch_server", "--port",
                                 8005], "env": {"A": "b"}},
            "url": "http://127.0.0.1:8005",
        },
        "room": {"process": {"argv": ["python3", "-m", "http.server", "8005"],
                             "environment": {"conda": "/nvme/env"}},
                 "url": "http://127.0.0.1:8005"},
    },
    "guards": [{"metric": "host.ram_available", "below": "24GiB"},
               {"metric": "gpu.memory_used", "above": "126GiB", "of": "sum"}],
    "phases": [{"title": "One", "steps": [
        {"id": "build", "build": {"context": ".", "tag": "omni/kt:1", "target": "x",
                                  "args": {"A": "1"}},
         "unless": {"run": ["docker", "image", "inspect", "omni/kt:1"]}},
        {"id": "arch", "run": ["python3"], "where": {"image": "omni/kt:1", "gpus": "all"}},
        {"id": "get", "download": {"of": "fits", "to": "/nvme"}, "retry": {"attempts": 3}},
        {"id": "bench", "benchmark": {"service": "box", "runs": 9}},
        {"id": "soak", "soak": {"service": "box", "duration": "1h", "arrivals": "fixed"}},
        {"id": "go", "gate": [{"metric": "soak.hangs", "go": "== 0", "min_samples": 100}]},
        {"id": "here", "host": {"ports": [8001, 9999], "disk": {"path": "/", "free": "60GB"}}},
        {"id": "like", "contract": {"url": "http://127.0.0.1:8000", "against": "kept.json"}},
        {"id": "suite", "contract": {"service": "box", "suite": ["bench", "localhost:8000"]}},
        {"id": "cut", "cutover": {"to": "box", "port": 8000, "watch": "5m"}},
    ]}],
    "finally": [{"id": "report", "report": {"to": "/home/me/evaluation.md"}}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def rewritten(fault: str = "") -> tuple[dict[str, Any], Rewriter]:
    rewriter = Rewriter(Mapping("base:1", fault, PORTS, cpus=0.25, ram_below=4 << 30))
    before = copy.deepcopy(BOOK)
    made = rewriter(BOOK, Path("/books"))
    assert before == BOOK, "the document itself is left alone"
    return made, rewriter


def step(made: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in steps(made) if one["id"] == name)


def test_a_container_is_a_stand_in_without_cards_under_a_quota() -> None:
    made, rewriter = rewritten()
    box = made["services"]["box"]
    tag = rewriter.images["omni/kt:1"]
    assert tag.startswith("omni-rehearsal/omni-kt:1-")
    assert (box["container"]["image"], box["url"]) == (tag, "http://127.0.0.1:18001")
    assert box["container"]["ports"] == ["18001:8000"]
    assert (box["container"]["cpus"], box["container"]["name"]) == (0.25, place.own_name("kt"))
    assert not {"gpus", "network"} & set(box["container"])
    models, holds = box["container"]["mounts"]
    assert models == f"{place.work()}/nvme/models:/models:ro"
    assert Path(models.split(":")[0]).is_dir()
    assert holds.startswith(f"{place.holds()}:")


def test_a_model_server_on_the_host_becomes_a_container_for_its_quota() -> None:
    made, _ = rewritten()
    host = made["services"]["host"]
    assert "process" not in host
    assert host["container"]["command"] == [
        "python3", "-m", "sglang.launch_server", "--port", 18005
    ]  # fmt: skip
    assert (host["container"]["network"], host["container"]["env"]) == ("host", {"A": "b"})
    assert made["services"]["room"]["process"]["argv"][-1] == "18005", "anything else stays"


def test_steps_use_the_same_stand_ins() -> None:
    made, rewriter = rewritten()
    tag = rewriter.images["omni/kt:1"]
    build = step(made, "build")
    assert build["build"]["tag"] == build["unless"]["run"][-1] == tag
    assert (Path(build["build"]["context"]) / "Dockerfile").read_text().startswith("FROM base:1\n")
    assert not {"target", "args"} & set(build["build"])
    assert rewriter.built == {tag}
    assert step(made, "arch")["where"] == {"image": tag}
    assert step(made, "like")["contract"] == {"url": "http://127.0.0.1:18000", "repeat": 1}
    suite = {"service": "box", "suite": ["bench", "localhost:18000"]}
    assert step(made, "suite")["contract"] == suite
    assert step(made, "cut")["cutover"] == {"to": "box", "port": 18000, "watch": "10s"}
    assert step(made, "here")["host"]["ports"] == [18001, 9999]
    assert step(made, "get").keys() == {"id", "note"}
    assert step(made, "report")["report"]["to"] == f"{place.directory()}/reports/evaluation.md"


def test_times_are_shortened_and_gates_are_not() -> None:
    made, _ = rewritten()
    assert step(made, "bench")["benchmark"] == {"service": "box", "runs": 5, "max_tokens": 32}
    soak = step(made, "soak")["soak"]
    assert soak == {"service": "box", "duration": "70s", "every": "50ms", "max_tokens": 2}
    gate = BOOK["phases"][0]["steps"][5]
    assert step(made, "go") == gate


@pytest.mark.parametrize(
    ("key", "written", "made"),
    [("context", "90 %", "90 %"), ("context", 100_000, 7000), ("context", 2000, 2000)],
)
def test_a_soak_that_fills_the_context_has_time_for_it(key: str, written: Any, made: Any) -> None:
    soak = {"service": "box", "duration": "1h", key: written}
    tree = {"title": "t", "phases": [{"steps": [{"id": "soak", "soak": soak}]}]}
    rewriter = Rewriter(Mapping("base:1"))
    (found,) = steps(rewriter(tree, Path("/books")))
    assert (found["soak"][key], found["soak"]["duration"]) == (made, "120s")
    told = [note for note in rewriter.notes if key in note]
    assert told == ([] if written == made else ["step soak: context 100000 → 7000"])


def test_a_soak_that_fills_the_context_has_time_for_as_many_answers_as_a_gate_wants() -> None:
    """On a busy machine such an answer took 2 s, and a GO of 100 requests ended as HOLD."""
    soak = {"service": "box", "duration": "1h", "context": "90 %"}
    gate = [{"metric": "soak.hangs", "go": "== 0", "min_samples": 100}]
    tree = {"title": "t", "phases": [{"steps": [{"id": "soak", "soak": soak}, {"gate": gate}]}]}
    found = Rewriter(Mapping("base:1", "", PORTS))(tree, Path("/books"))
    assert found["phases"][0]["steps"][0]["soak"]["duration"] == "200s"


@pytest.mark.parametrize(
    ("written", "made"), [([512, 2048], [1024]), ([512], [512]), ([256, 512], [512]), ("x", "x")]
)
def test_prompts_stay_long_enough_for_an_estimate(written: Any, made: Any) -> None:
    bench = {"service": "box", "prompt_lengths": written}
    tree = {"title": "t", "phases": [{"steps": [{"id": "bench", "benchmark": bench}]}]}
    (found,) = steps(Rewriter(Mapping("base:1"))(tree, Path("/books")))
    assert found["benchmark"]["prompt_lengths"] == made


@pytest.mark.parametrize(("key", "named"), [("text", QUALITY_METRICS), ("tasks", TASK_METRICS)])
def test_figures_of_quality_are_made_up_for_the_same_gates(
    key: str, named: dict[str, Metric]
) -> None:
    asked = {"service": "box", key: "/nvme/x"}
    tree = {"title": "t", "phases": [{"steps": [{"id": "q", "quality": asked}]}]}
    rewriter = Rewriter(Mapping("base:1"))
    (found,) = steps(rewriter(tree, Path("/books")))
    step = Step.model_validate(found)
    said = " ".join((step.run or [])[1:])
    units = {name: base_unit(output.unit) for name, output in step.outputs.items()}
    assert units == {name: metric.unit for name, metric in named.items()}
    for output in step.outputs.values():
        assert read_output(output.pattern, output.unit, said) is not None
    assert [note for note in rewriter.notes if note.startswith("step q: no model is asked")]


def test_the_guard_acts_before_a_stand_in_hurts_this_machine() -> None:
    made, _ = rewritten()
    assert made["guards"][0]["below"] == "4096MiB"
    assert made["guards"][1] == BOOK["guards"][1]


def test_a_fault_has_images_of_its_own() -> None:
    made, rewriter = rewritten("never-ready")
    assert made["services"]["box"]["ready"]["timeout"] == "20s"
    assert rewriter.images["omni/kt:1"] != rewritten()[1].images["omni/kt:1"]


# -- the made-up checkpoint of `source=stand-in`, which the ordinary preflight reads ---------------


def test_a_path_that_was_moved_has_a_made_up_checkpoint_too() -> None:
    asked = {"engine": "llama.cpp", "repo": str(place.work() / "nvme/models/deepseek-r1")}
    tree = {"title": "t", "phases": [{"steps": [{"id": "fits", "checkpoint": asked}]}]}
    (made,) = steps(Rewriter(Mapping("base:1"))(tree, Path("/books")))
    assert made["checkpoint"]["repo"] == str(place.work() / "checkpoint" / "gguf")


@pytest.mark.parametrize(("engine", "kind"), [("kt-kernel", "bf16"), ("llama.cpp", "gguf")])
def test_only_the_word_is_replaced_and_the_plan_says_so(engine: str, kind: str) -> None:
    asked: dict[str, Any] = {"engine": engine, "include": "*Q4*", "ctx": 8}
    tree = {"title": "t", "phases": [{"steps": [
        {"id": "fits", "checkpoint": {**asked, "repo": "stand-in"}},
        {"id": "real", "checkpoint": {**asked, "repo": "a/b"}},
    ]}]}  # fmt: skip
    rewriter = Rewriter(Mapping("base:1"))
    made, real = [one["checkpoint"] for one in steps(rewriter(tree, Path("/books")))]
    assert made == {"engine": engine, "ctx": 8, "repo": str(place.work() / "checkpoint" / kind)}
    assert real == {**asked, "repo": "a/b"}
    assert [note.partition(":")[0] for note in rewriter.notes] == ["step fits"]


def test_true_headers_over_holes() -> None:
    path = image.put_checkpoint(gguf=False) / "model.safetensors"
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        table = json.loads(file.read(length))
    assert max(one["data_offsets"][1] for one in table.values()) == path.stat().st_size - 8 - length
    assert path.stat().st_blocks * 512 < 1 << 20 < path.stat().st_size
    (weights,) = image.put_checkpoint(gguf=True).iterdir()
    header = read_header(str(weights)).header
    assert header.architecture == "llama"
    # else the memory of a playbook that asks for flash attention cannot be told
    assert has_kernel(from_gguf(header), LlamaPlan(type_k="q8_0", type_v="q8_0"))


def test_a_moved_conda_environment_has_an_interpreter_and_nothing_else() -> None:
    home = place.work() / "nvme/envs/kt"
    book = {"phases": [{"steps": [{"id": "a", "run": ["x"], "environment": {"conda": str(home)}}]}]}
    rewriter = Rewriter(Mapping("base:1", "", PORTS, cpus=0.25, ram_below=0))
    (made,) = steps(rewriter(book, Path("/books")))
    assert "environment" not in made
    assert [one.name for one in (home / "bin").iterdir()] == ["python"]
    assert "step a: its environment is not used" in rewriter.notes


def test_a_rehearsal_calls_nobody(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(
        "schema: omni.site/v1\nname: ws\nnotify: [{mail: root}]\n"
        "baseline: {container: base, url: 'http://127.0.0.1:8000'}\n"
    )
    place.site().parent.mkdir(parents=True)
    site = load_site(file)
    assert site.model.notify
    made = write_site(site, Rewriter(Mapping("base:1", "", PORTS)), tmp_path / "m.gguf")
    assert load_site(made).model.notify == []


# -- what is declared with each field of each kind -------------------------------------------------

REAL = "http://127.0.0.1:8000/v1"
IMAGE = "omni/kt:1"
MEANT: dict[str, Any] = {
    "Duration": Duration, "ByteCount": ByteCount, "Pattern": Pattern, "Threshold": ThresholdText,
    "Filling": Filling, "Compute": Compute, "Rate": Rate, "Count": Count,
}  # fmt: skip
NOTHING_TO_DO = {*MEANT, "Literal", "int", "float", "bool"}
"""Types that name nothing outside of the run: no address, port, image, path or service."""


def walked(
    model: type[BaseModel], *place: str
) -> Iterator[tuple[tuple[str, ...], type[BaseModel], FieldInfo]]:
    """Every field of a step that holds no other model, by its keys, and those with a function."""
    for name, field in model.model_fields.items():
        inner = model_of(field)
        if inner is None or mark_of(field, Moved) is Moved.OWN:
            yield (*place, name), model, field
        if inner is not None:
            yield from walked(inner, *place, name, *(["[]"] if "list[" in str(field) else []))


FIELDS = {".".join(keys): (keys, model, field) for keys, model, field in walked(Step)}
OWN_PLACES = {keys for keys, _, field in FIELDS.values() if mark_of(field, Moved) is Moved.OWN}


def type_of(field: FieldInfo) -> str:
    """The name of a field's type; that of a part of it where it is optional or a list."""
    parts = list(declared(field))
    for name, meant in MEANT.items():
        if any(part in parts for part in get_args(meant)[1:]):
            return name
    if any(get_origin(part) is Literal for part in parts):
        return "Literal"
    plain = [part for part in parts if part in (str, int, float, bool)]
    return "str" if str in plain or not plain else plain[0].__name__


def is_port(field: FieldInfo) -> bool:
    parts = [*declared(field)]
    bounds = [
        bound for part in parts for bound in getattr(part, "metadata", None) or [part]
    ]  # fmt: skip
    lowest = [bound.ge for bound in bounds if isinstance(bound, Ge)]
    highest = [bound.le for bound in bounds if isinstance(bound, Le)]
    return (lowest, highest) == ([1], [65535])


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_says_what_a_rehearsal_does_with_it(name: str) -> None:
    """A new kind, or a new key, is refused here until its type names nothing outside of the run, or
    until it is declared with it what a rehearsal has to do."""
    keys, model, field = FIELDS[name]
    if any((*keys[:end],) in OWN_PLACES for end in range(1, len(keys))):
        return  # the function for the whole of it has it
    mark = mark_of(field, Moved) or mark_of(field, Dropped)
    assert mark is not None or type_of(field) in NOTHING_TO_DO, "mark it: kinds.Moved"
    if is_port(field):
        assert mark is Moved.PORT
    if "image" in keys[-1]:
        assert mark is Moved.IMAGE
    if mark is Moved.OWN:
        assert (model, keys[-1]) in OWN


def put(keys: tuple[str, ...], value: object) -> dict[str, Any]:
    made: Any = value
    for key in reversed(keys):
        made = [made] if key == "[]" else {key: made}
    return {"id": "x", **made}


def test_whatever_a_step_can_hold_no_rehearsal_reaches_what_is_real() -> None:
    """Every text of every kind as the real address, every port as the real port, every image as the
    real image. A new kind, or a new key, is tried here without a line about it."""
    tried = 0
    for keys, _, field in FIELDS.values():
        mark = mark_of(field, Moved)
        if mark is Moved.PROSE or "args" in keys or keys[-1] == "env":
            continue
        values: list[object] = [REAL, [REAL]] if str in declared(field) else []
        if mark is Moved.PORT or is_port(field):
            values = [[8000], 8000]
        if mark is Moved.IMAGE or "image" in keys[-1]:
            values = [[IMAGE], IMAGE]
        for value in values:
            book = {**BOOK, "phases": [{"title": "p", "steps": [put(keys, value)]}], "finally": []}
            (step,) = steps(Rewriter(Mapping("base:1", "", PORTS))(book, Path("/books")))
            assert "127.0.0.1:8000" not in json.dumps(step), (keys, step)
            assert f'"{IMAGE}"' not in json.dumps(step), (keys, step)
            assert ": 8000" not in json.dumps(step), (keys, step)
            assert "[8000" not in json.dumps(step), (keys, step)
            tried += 1
    assert tried > 100


def rewritten_step(step: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    tree = {"title": "t", "phases": [{"steps": [{"id": "x", **step}]}]}
    rewriter = Rewriter(Mapping("base:1", "", PORTS))
    (made,) = steps(rewriter(tree, Path("/books")))
    return made, rewriter.notes


def test_what_proves_a_manual_step_asks_no_real_server() -> None:
    """A person reads the rest of it, and it was left alone as a whole."""
    made, _ = rewritten_step(
        {"manual": {"do": f"look at {REAL}", "verify": {"http": {"url": REAL}}}}
    )
    assert made["manual"]["do"] == f"look at {REAL}"
    assert made["manual"]["verify"]["http"]["url"] == "http://127.0.0.1:18000/v1"


@pytest.mark.parametrize(
    ("written", "every"), [({"watch": "10m", "every": "30s"}, "10s"), ({}, None)]
)
def test_a_watch_is_short_whatever_is_written_of_it(
    written: dict[str, str], every: str | None
) -> None:
    """Five minutes without a word, and refused with one: a shorter watch than its interval."""
    made, _ = rewritten_step({"cutover": {"to": "box", **written}})
    assert (made["cutover"]["watch"], made["cutover"].get("every")) == ("10s", every)
    Step.model_validate(made)


def test_one_image_of_a_host_step_may_stand_without_a_list() -> None:
    made, _ = rewritten_step({"host": {"images": IMAGE}})
    assert made["host"]["images"].startswith("omni-rehearsal/omni-kt:1-")
