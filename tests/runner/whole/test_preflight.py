"""What ends a run before anything is paid: preflight steps, against a hub of true shapes over
loopback; guards that are breached already; and shipped trials on the example site's machine."""

import json
import os
from pathlib import Path

import pytest

from console.config.locate import shipped
from console.models.sizing.load_curve import Envelope
from tests.preflight.build_tree import DOCKERFILE, tree
from tests.runner.e2e.sites import UP, book, guards
from tests.runner.scenes import BIG, GGUF, KNOWN, SMALL, output
from tests.runner.world import Outcome
from tests.runner.world import WorldBase as World
from tests.testbed.hub import LocalHub
from tests.testbed.nvml import RTX_5090, Nvml

FIT = f"id: fit, checkpoint: {{repo: {BIG}, loader: resident}}"


def test_642_gib_that_cannot_fit_end_a_run_before_anything_is_paid(
    world: World, hub: LocalHub
) -> None:
    late = "id: late, run: [touch, paid]"
    done = world.go(world.write("b.yaml", book(FIT, late)))
    assert done.code == 3, done
    assert done.json["decision"] == "no_go"
    said = output(world, "fit")
    for words in ("163 files, 642.0 GiB (689.3 GB)", "RTX PRO 6000", "short", "The three biggest"):
        assert words in said, said
    assert "NO-GO" in world.run.report.read_text()
    assert not (world.root / "paid").exists()
    envelope = Envelope.from_json(done.json["envelopes"]["fit"])
    assert envelope.points
    assert "Memory predicted by `fit`" in world.run.report.read_text()
    assert world.serves()


def test_a_no_go_is_downloaded_only_when_somebody_types_it(world: World, hub: LocalHub) -> None:
    small = f"id: fit, checkpoint: {{repo: {SMALL}, engine: sglang}}, on_no_go: continue"
    fetch = "id: fetch, download: {of: fit, to: weights}"
    path = world.write("b.yaml", book(small, fetch))
    done = world.go(path)
    assert "nobody is attached to type an override" in str(done.json["steps"]), done
    assert not (world.root / "weights/model.gguf").exists()
    world.detach(path)
    world.state("waiting_approval")
    wrong = world.tell("approve")
    assert wrong.code != 0
    assert "download anyway" in wrong.err
    assert world.tell("approve", "--confirm", "download anyway").code == 0
    view, step = world.over(), world.at("fetch")
    assert "override of fit's NO-GO, approved by" in step.detail
    assert "sizes verified" in step.detail
    assert (world.root / "weights/model.gguf").stat().st_size == 300_000
    assert any(verb.verb == "approve" for verb in view.verbs)


def test_a_download_that_is_aborted_leaves_no_child(world: World, hub: LocalHub) -> None:
    held = hub.hold("model.gguf", 1000)
    fetch = f"id: fetch, download: {{repo: {SMALL}, to: weights}}"
    world.detach(world.write("b.yaml", book(fetch)))
    world.until(lambda: world.pids("step"), "the download's child is named")
    assert world.tell("abort").code == 0
    view = world.over()
    held.release()
    assert str(view.state) == "cancelled"
    assert not world.pids("step")


def test_a_repository_that_is_not_to_be_had_is_said_in_words(world: World, hub: LocalHub) -> None:
    wanted = {
        "gated": "NO-GO: access: example/gated is gated",
        "empty": "example/empty is empty",
        "nobody": "missing, private or gated",
    }
    steps = [
        f"id: {name}, checkpoint: {{repo: example/{name}, loader: resident}}, "
        "on_no_go: continue, on_failure: continue"
        for name in wanted
    ]
    done = world.go(world.write("b.yaml", book(*steps)))
    assert done.code == 3, done
    shown = {step["id"]: json.dumps(step) for step in done.json["steps"]}
    for verdict in done.json["verdicts"]:
        shown[verdict["step"]] += json.dumps(verdict)
    for name, words in wanted.items():
        assert words in shown[name], shown[name]
        assert words in world.run.report.read_text()


def test_the_host_is_asked_and_what_it_lacks_is_a_no_go(world: World, hub: LocalHub) -> None:
    step = "id: here, host: {method: AMXINT8, ports: [1], disk: {path: ., free: 1MiB}}"
    done = world.go(world.write("b.yaml", book(step)))
    assert done.code == 3, done
    said = output(world, "here")
    assert "AMX" in said
    assert "S-013" in said
    assert "377.0 GiB RAM" in said


# -- guards ----------------------------------------------------------------------------------------

NOW = [
    ("metric: disk.free, below: 900TiB, of: /", "disk free (/) ", "below 900.0 TiB"),
    ("metric: disk.free, below: 900TiB", "disk free (", "below 900.0 TiB"),
    ("metric: disk.free, below: 1GiB, of: /no/such", "disk.free of /no/such", "no such directory"),
    ("metric: gpu.memory_used, above: 1GiB, of: sum, missing: breach", "VRAM used", "as breached"),
]


def test_guards_that_would_act_at_once_cost_no_outage(world: World) -> None:
    path = world.write("b.yaml", guards(*(row for row, _, _ in NOW)) + book(UP))
    own = {"metric": "disk.free", "below": "800TiB", "of": str(world.root)}
    world.site.write_text(json.dumps(json.loads(world.site.read_text()) | {"guards": [own]}))
    before = world.baseline()
    planned = world.console("plan", str(path))
    assert planned.code == 0, planned
    done = world.go(path)
    assert done.code == 2, done
    told = json.dumps(done.json)
    warnings = [line for line in planned.out.splitlines() if "WARNING" in line]
    [site] = [line for line in warnings if "(site, line 1)" in line]
    assert "below 800.0 TiB" in site
    warnings.remove(site)
    for line, (warning, (_, *words)) in enumerate(zip(warnings, NOW, strict=True), 2):
        assert "NO RUN WOULD START" in warning, planned
        for text in (*words, f"(playbook, line {line})"):
            assert text in warning, planned
            assert text in told, done
    assert not world.runs
    assert world.baseline() == before


def test_a_guard_that_cannot_be_looked_at_is_only_told(world: World) -> None:
    path = world.write(
        "b.yaml", guards("metric: gpu.memory_used, above: 1GiB, of: sum") + book("id: a, note: x")
    )
    planned = world.console("plan", str(path))
    assert "it guards nothing" in planned.out, planned
    assert "NO RUN" not in planned.out, planned
    assert world.go(path).code == 0


# -- shipped playbooks -----------------------------------------------------------------------------


def shipped_trial(omni: World, name: str, *more: str, **inputs: str) -> Outcome:
    given = {"ram_floor": "64MiB", "reports": str(omni.root / "reports"), **inputs}
    if name == "kt-sglang-resurrection":
        given["models"] = str(omni.root)
    pairs = [word for pair in given.items() for word in ("--input", "=".join(pair))]
    return omni.console("run", name, "--json", *pairs, *more)


@pytest.mark.parametrize(
    ("name", "inputs", "words"),
    [
        ("kt-sglang-resurrection", {}, (
            "163 files, 641.3 GiB (688.6 GB)",
            "converting FP8 experts ended in a segmentation fault",
            "AMX kernels need the processor flags amx_tile and amx_int8",
            "host RAM has 354.0 GiB and needs", "GiB short",
        )),
        ("kt-sglang-resurrection", {"source": GGUF, "include": "*Q4_K_M*"}, (
            "it accepts no GGUF", "download the safetensors checkpoint",
        )),
        ("kt-sglang-evaluation", {}, (
            "converting FP8 experts ended in a segmentation fault",
            "624 GB of INT8 experts met 474 GB of memory",
            "host RAM has 354.0 GiB and needs 699.3 GiB: 345.3 GiB short",
        )),
        ("kt-sglang-evaluation", {"method": "MOE_INT4"}, (
            "compiled for ARM (KML) and Intel (AMX) only, not for AMD's BLIS",
        )),
    ],
    ids=["resurrection", "of a GGUF", "evaluation", "of INT4"],
)  # fmt: skip
def test_a_shipped_trial_ends_before_it_costs_anything_and_says_why(
    omni: World, name: str, inputs: dict[str, str], words: tuple[str, ...]
) -> None:
    def files() -> set[Path]:
        return {path for path in shipped().rglob("*") if "__pycache__" not in path.parts}

    before = files()
    if not inputs:
        refused = shipped_trial(omni, name)
        assert refused.code == 9, refused
        assert "known-blocker=WHY" in refused.err + refused.out
    done = shipped_trial(omni, name, *KNOWN, **inputs)
    assert (done.code, done.json["decision"]) == (3, "no_go"), done
    states = omni.states()
    building = "build" if "build" in states else "kernel"
    assert [states[step] for step in ("fits", "here", building)] == [
        "succeeded", "pending", "pending",
    ]  # fmt: skip
    assert omni.serves(), "the baseline never stopped"
    (report,) = (omni.root / "reports").glob("*.md")
    assert "NO-GO" in report.read_text()
    said = output(omni, "fits")
    assert [one for one in words if one not in said] == [], said
    assert files() == before, "nothing is written beside the shipped files"


DOCKER = """\
#!/bin/sh
case "$*" in
    *RestartPolicy*) echo "{policy}" ;;
    *State.Status*) echo "{neighbour}" ;;
    ps*) printf '{stray}' ;;
esac
"""
SWAPON = "#!/bin/sh\necho '{swap}'\n"
WELL = {"policy": "unless-stopped", "neighbour": "running", "stray": "", "swap": "/nvme/swap200g"}
BROKEN = {"policy": "no", "neighbour": "exited", "stray": "old-trial\\n", "swap": "/swap.img"}


@pytest.mark.parametrize(
    "broken",
    [(), ("stray",), tuple(BROKEN)],
    ids=["all is well", "one is not back", "none is back"],
)
def test_what_did_not_come_back_is_no_go(
    world: World, nvml: Nvml, tmp_path: Path, broken: tuple[str, ...]
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("docker", DOCKER), ("swapon", SWAPON)):
        told = WELL | {key: BROKEN[key] for key in broken}
        (programs / name).write_text(text.format(**told))
        (programs / name).chmod(0o755)
    site = json.loads(world.site.read_text())
    knows = {"protected": ["qdrant", "letta"], "defaults": {"swap": "/nvme/swap200g"}}
    world.site.write_text(json.dumps(site | {"gpus": [{"uuid": RTX_5090.uuid}]} | knows))
    cards = nvml.env(nvml.write(tmp_path / "cards", (RTX_5090,)))
    done = world.console(
        "run", "reboot-recovery", "--json", "--input", "baseline=deepseek-r1",
        "--input", f"reports={tmp_path}", **cards,
        PATH=f"{programs}:{os.environ['PATH']}",
    )  # fmt: skip
    decision, code = ("no_go", 3) if broken else ("go", 0)
    assert done.json["decision"] == decision, done.json["because"]
    assert done.code == code, done
    asked = ("policy", "swap", "neighbour", "stray", "speed")
    wanted = ["NO-GO" if name in broken else "GO" for name in asked]
    [gate] = [one for one in world.view().verdicts if one.step == "as-before"]
    assert [row["verdict"] for row in gate.criteria] == wanted


BUILDER = "#!/bin/sh\necho built >> {root}/built\n"


def building(world: World, dockerfile: str, build: str = "", *first: str, args: str = "{}") -> Path:
    """A playbook that builds the seeds' tree, and a docker command that only notes it."""
    tree(world.root)
    for name, text in (("docker", BUILDER.format(root=world.root)), ("Dockerfile", dockerfile)):
        (world.root / name).write_text(text)
        (world.root / name).chmod(0o755)
    keys = (
        f"context: empty, dockerfile: Dockerfile, tag: 'x:1', source: ktransformers, args: {args}"
    )
    (world.root / "empty").mkdir(exist_ok=True)
    return world.write("b.yaml", book(*first, f"id: make, build: {{{keys}{build}}}"))


@pytest.mark.parametrize("build", ["", ", preflight: tell"])
def test_a_build_never_begins_with_a_fault_that_is_known(world: World, build: str) -> None:
    """None of it is an error of lint, which would have stopped the run itself."""
    faulty = DOCKERFILE.replace("libtbb-dev", "")
    path = building(world, faulty, build, args="{USE_BALANCE_SERVE: '0'}")
    env = {"PATH": f"{world.root}:{os.environ['PATH']}"}
    done = world.go(path, **env)
    assert (world.root / "built").exists() is bool(build), done
    said, [step] = output(world, "make"), world.view().steps[:1]
    assert "fail ktransformers/archive/ktransformers/server/balance_serve/settings.py:2" in said
    assert "hint: ARG or ENV USE_BALANCE_SERVE=1 before the build" in said
    if not build:
        assert (str(step.state), step.cause) == ("failed", "precondition")
        assert "a fault is known, so it was not begun" in step.detail
        more = building(world, faulty, args="{USE_BALANCE_SERVE: '1'}")
        world.go(more, **env)
        assert "nothing installs libtbb-dev" in output(world, "make")
        good = building(world, DOCKERFILE)
        assert world.go(good, **env).code == 0
        assert (world.root / "built").read_text() == "built\n"


def test_a_host_step_lists_the_faults_of_every_build(world: World) -> None:
    here = "id: here, host: {builds: [make]}, on_no_go: stop"
    done = world.go(building(world, DOCKERFILE, "", here, args="{USE_BALANCE_SERVE: '0'}"))
    assert (done.code, world.states()["make"]) == (3, "pending"), done
    [verdict] = done.json["verdicts"]
    assert "F-023" in json.dumps(verdict)
    other = world.write("c.yaml", book("id: here, host: {builds: [else]}"))
    refused = world.console("plan", str(other))
    assert refused.code == 2
    assert "'else' is no build step" in refused.out + refused.err
