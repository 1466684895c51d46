"""A quality step before it runs: program, models, flags, files in a container, plan, disk."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.common import paths
from console.common.errors import InvalidFile
from console.config.playbook.measuring_steps import QualityStep
from console.config.site.site import Site, load_site
from console.host.process import ProcessSpec
from console.journal.run_view import RunView, StepMeasurement
from console.render.report.benchmarks import quality_lines
from console.runner.prepare import quality
from console.runner.prepare.plan import make_plan
from console.runner.prepare.quality import program_of, trial
from console.runtime.spec import ContainerSpec, Mount, ServiceSpec
from tests.common.harmful import harmful
from tests.runner.unit.conftest import MakePlan
from tests.testbed.models import tiny_llama

SERVER = ("numactl", "-m", "0", "/opt/llama/llama-server")
FLAGS = ("-ngl", "-1", "--port=8001", "-ot", "exps=CPU", "-ctk", "q8_0", "--no-mmap", "-c", "4096",
         "-fa", "--jinja", "-t=8")  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("new", "old"):
        tiny_llama(tmp_path / f"{name}.gguf")
    return tmp_path


@pytest.fixture
def site(models: Path) -> Site:
    argv = f"[llama-server, -m, {models}/old.gguf, --port, '8000']"
    path = models / "site.yaml"
    path.write_text(
        "schema: omni.site/v1\nname: here\n"
        f"baseline: {{process: {{argv: {argv}}}, url: 'http://127.0.0.1:8000'}}\n"
    )
    return load_site(path)


def process(models: Path, *words: str) -> ServiceSpec:
    argv = (*SERVER, "-m", str(models / "new.gguf"), *words)
    return ServiceSpec("cand", "http://127.0.0.1:1", ProcessSpec(argv))


def asked(**keys: object) -> QualityStep:
    return QualityStep.model_validate({"service": "cand", **keys})


def test_models_and_flags_are_those_of_both_command_lines(models: Path, site: Site) -> None:
    made = trial(asked(), process(models, *FLAGS), site, models)
    assert made.program == (*SERVER[:3], "/opt/llama/llama-perplexity")
    assert (made.model.name, made.base.name) == ("new.gguf", "old.gguf")
    both = ("-ngl", "-1", "-ot", "exps=CPU", "--no-mmap", "-fa", "-t=8")
    assert made.flags == (*both[:4], "-ctk", "q8_0", *both[4:])
    assert made.base_flags == both
    assert trial(asked(args=["-t", 4]), process(models, *FLAGS), site, models).flags == ("-t", "4")


def test_what_is_not_known_has_to_be_named(models: Path, site: Site) -> None:
    spec = replace(process(models), runs=ProcessSpec(("sglang", "--model", "x")))
    with pytest.raises(ValueError, match="cand names no GGUF file: model: PATH"):
        trial(asked(), spec, site, models)
    with pytest.raises(ValueError, match=r"no program of llama\.cpp: program:"):
        trial(asked(model="new.gguf"), spec, site, models)
    assert trial(asked(model="new.gguf", program=["p"]), spec, site, models).program == ("p",)


def test_two_builds_of_one_model_are_compared_each_by_its_own_tool(
    models: Path, site: Site
) -> None:
    runs = ProcessSpec((*SERVER, "-m", str(models / "old.gguf"), "-t", "8"))
    spec = replace(process(models), runs=runs)
    made = trial(asked(), spec, site, models)
    assert (made.builds, made.base_program, made.base_flags) == (True, ("llama-perplexity",), ())
    assert made.program[-1] == "/opt/llama/llama-perplexity"
    (missing,) = quality.unready(asked(), spec, site, SimpleNamespace(base=models))  # type: ignore[arg-type]
    assert "there is no llama-perplexity, with which the baseline's build" in missing[1]
    told = next(quality.words(asked(), {"cand": spec}, site, models))
    assert told.startswith("compares old.gguf by this build with the same by the baseline's on")
    given = trial(asked(program=["p"]), spec, site, models)
    assert (given.builds, given.base_program) == (False, ("p",))


def test_another_build_has_log_probabilities_of_its_own(models: Path, site: Site) -> None:
    tool = models / "llama-perplexity"
    tool.write_text("one")
    tool.chmod(0o755)
    step = asked(program=[str(tool)])
    first = trial(step, process(models), site, models).sealed
    tool.write_text("another")
    assert trial(step, process(models), site, models).sealed != first


def test_flags_with_underscores_are_shared_as_well() -> None:
    words = ["llama-server", "--cache_type_k", "q8_0", "--port", "1", "--n_gpu_layers", "-1"]
    shared = quality._picked(words, quality.SHARED.__contains__)
    assert shared == ("--cache_type_k", "q8_0", "--n_gpu_layers", "-1")


def test_the_tool_lies_beside_the_program() -> None:
    assert program_of(["llama-server", "-m", "x"]) == ("llama-perplexity",)
    assert program_of(["sh", "-c", "exec /app/llama-server -m x"]) == ("/app/llama-perplexity",)
    assert program_of(["python", "-m", "sglang"]) == ()


def test_a_container_sees_files_by_the_mounts_of_its_service(models: Path, site: Site) -> None:
    runs = ContainerSpec("img", ("-m", "/models/new.gguf"), mounts=(Mount(str(models), "/models"),))
    spec = ServiceSpec("cand", "http://127.0.0.1:1", runs)
    made = trial(asked(base="/models/old.gguf"), spec, site, models)
    assert made.program == ()  # the image's own entrypoint is known only to the engine
    assert (made.model, made.base) == (models / "new.gguf", models / "old.gguf")
    assert quality.placed(runs, made.base, "base") == ("/models/old.gguf", None)
    other = Path("/elsewhere/x.txt")
    mount = Mount("/elsewhere", "/omni-quality/text")
    assert quality.placed(runs, other, "text") == ("/omni-quality/text/x.txt", mount)


def test_another_file_or_text_has_log_probabilities_of_its_own(models: Path, site: Site) -> None:
    text = models / "t.txt"
    text.write_text("one")
    step = asked(text="t.txt")
    first = trial(step, process(models), site, models).sealed
    assert trial(asked(text="t.txt", args=["-t", 1]), process(models), site, models).sealed == first
    assert trial(asked(text="t.txt", ctx=256), process(models), site, models).sealed != first
    text.write_text("two")
    second = trial(step, process(models), site, models).sealed
    assert second != first
    with (models / "old.gguf").open("ab") as file:
        file.write(b"more")
    assert trial(step, process(models), site, models).sealed not in (first, second)


def test_a_disk_that_is_too_full_is_named_with_its_place(
    models: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trial(asked(chunks=1000, ctx=8192), process(models), site, models)
    size = quality.needs(made)
    assert size is not None
    assert size > 1 << 30
    monkeypatch.setattr(quality, "space", lambda path: SimpleNamespace(free=size + (1 << 30)))
    assert quality.no_room(made) == ""
    monkeypatch.setattr(quality, "space", lambda path: SimpleNamespace(free=size + (1 << 30) - 1))
    assert str(paths.quality_dir()) in quality.no_room(made)
    playbook = SimpleNamespace(base=models)
    found = list(quality.unready(asked(chunks=1000, ctx=8192), process(models), site, playbook))  # type: ignore[arg-type]
    assert [(key, hint) for key, _, _, hint, _ in found] == [("chunks", quality.ROOM_HINT)]


def rows(plan: MakePlan, *steps: str) -> str:
    made = plan(*steps)
    return " ".join(f"{'!' if row.baseline_down else ''}{row.id}" for row in made.steps)


ASKED = "program: [p], model: /m.gguf, base: /b.gguf"
EXCLUSIVE = f"{{id: q, quality: {{service: cand, {ASKED}}}}}"
FREE = f"{{id: q, quality: {{service: beside, {ASKED}}}}}"
NOTE = "{id: n, note: x}"


def test_the_baseline_is_down_for_a_service_that_needs_its_memory(plan: MakePlan) -> None:
    back = "baseline:restore-1 n restore"
    assert rows(plan, EXCLUSIVE, NOTE) == f"!baseline:stop !q {back}"
    assert rows(plan, EXCLUSIVE.replace("}}", ", beside: true}}"), NOTE) == "q n restore"
    assert rows(plan, FREE, NOTE) == "q n restore"
    down = plan(EXCLUSIVE).at("baseline:stop").effects
    assert "THE BASELINE STOPS HERE: llama-perplexity loads models itself" in down[0]


def test_with_cards_the_baseline_is_always_down(plan: MakePlan) -> None:
    made = plan(FREE, NOTE)
    gpus = [SimpleNamespace(uuid="GPU-1")]
    model = made.site.model.model_copy(update={"gpus": gpus})
    again = make_plan(made.playbook, replace(made.site, model=model))
    assert [row.id for row in again.steps][:2] == ["baseline:stop", "q"]


def test_a_service_that_fills_the_card_has_to_be_stopped_first(plan: MakePlan) -> None:
    up = "{id: up, service: {start: other}}"
    with pytest.raises(InvalidFile, match="'other' is up by then"):
        plan(up, EXCLUSIVE)
    assert plan(up, "{id: down, service: {stop: other}}", EXCLUSIVE)


def test_a_report_holds_against_odd_records() -> None:
    odd = "\x1b[31m|<b>\u202e\nx"
    tasks = [{"ask": odd, "said": odd, "right": False}, 3, None]
    quality = {"of": odd, "model": odd, "tasks": tasks, "chunks": None}
    view = RunView(
        measured={"q": StepMeasurement(quality=quality)},
        metrics={"q": {odd: {"value": "x", "low": odd, "n": None}}},
    )
    text = "\n".join(quality_lines(view, "q"))
    assert harmful(text.replace("\n", "")) == []
    assert "| wrong answers | said |" in text
