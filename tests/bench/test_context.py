"""The machine around a run: a /proc of our own, so that every process does what the test says."""

import os
from pathlib import Path

import pytest

from console.bench.benchmark import Benchmark, Protocol
from console.bench.interference import SWAP_IN_LEAST, Engine, Surroundings
from console.bench.sample import Sample
from tests.bench.machine import BASELINE, OTHER, PAGE, RUN_S, SERVER, Host, NoWatch, still
from tests.bench.scripted import reply, scripted, streams


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return still(tmp_path)


def busy(around: Surroundings) -> list[tuple[str, float, int, bool]]:
    """Who worked beside the benchmark: name, most cores, in how many runs, whether an engine."""
    found = around.close()["busy"]
    return [(one["name"], one["cores"], one["runs"], one["engine"]) for one in found]


def test_a_quiet_machine(host: Host) -> None:
    around = host.surroundings()
    sample = host.run(around, p100=3.9, p200=0.01, p300=0.1)
    assert (sample.void, sample.swapped_in, sample.major_faults) == ("", 0, 0)
    assert around.flags() == []
    found = around.close()
    assert found["busy"] == []
    assert found["server"] == {"argv": ["llama-server"]}
    assert (found["swapped_in"], found["cards_words"], found["runs"]) == (0, "no NVIDIA driver", 1)


def test_the_baseline_at_work_makes_a_run_void(host: Host) -> None:
    around = host.surroundings()
    assert "baseline (3.5 cores)" in host.run(around, p100=1.0, p200=3.5).void
    assert around.flags() == [], "the void run says it"
    assert busy(around) == [("baseline", 3.5, 1, True)]
    host.add(201, "worker", parent=BASELINE)
    assert "baseline (1.0 cores)" in host.run(host.surroundings(), p201=1.0).void, "its child too"


@pytest.mark.parametrize(
    ("name", "argv", "cores", "void"),
    [
        ("llama-server", "/opt/llama-server -m x.gguf", 0.3, True),
        ("ollama", "ollama runner", 0.3, True),
        ("python3", "python3 /srv/koboldcpp.py", 0.3, True),
        ("llama-server", "/opt/llama-server", 0.1, False),
        ("sglang::schedul", "sglang::scheduler_TP0", 1.0, False),
        ("sglang::schedul", "sglang::scheduler_TP0", 1.9, True),
        ("python3", "python3 -m vllm.entrypoints", 1.0, False),
        ("python3", "python3 train.py", 1.9, False),
        ("vim", "vim llama.cpp", 1.0, False),
    ],
)
def test_engines_by_name(host: Host, name: str, argv: str, cores: float, void: bool) -> None:
    """SGLang and vLLM turn one core at idle; that alone says nothing."""
    host.add(400, name, argv=argv)
    sample = host.run(host.surroundings(), p400=cores)
    assert bool(sample.void) == void


def test_an_unknown_server_may_be_the_engine_itself(host: Host) -> None:
    """Where nobody knows which processes are measured, a name is no reason to void."""
    around = host.surroundings(known=False)
    assert host.run(around, p100=3.9).void == ""
    assert len(around.flags()) == 1
    assert busy(around) == [("llama-server", 3.9, 1, False)]


def test_other_work_is_said_and_not_held_against_the_run(host: Host) -> None:
    around = host.surroundings()
    assert [host.run(around, p300=share).void for share in (1.5, 0.9, 0.0)] == ["", "", ""]
    assert len(around.flags()) == 1
    assert busy(around) == [("cc1plus", 1.5, 2, False)]


def test_an_interpreter_is_named_by_what_it_runs(host: Host) -> None:
    host.add(400, "python3", argv="python3 -u /srv/jobs/pytest.py -n 2 --token hunter2")
    around = host.surroundings()
    host.run(around, p400=1.0)
    assert "hunter2" not in "".join(around.flags())
    assert busy(around) == [("python3 pytest.py", 1.0, 1, False)]


def test_processes_that_came_and_went_are_seen_in_the_whole(host: Host) -> None:
    """`make -j` itself sleeps, and each of its compilers is gone before the second look."""
    around = host.surroundings()
    assert host.run(around, unseen=8.0).void == ""
    assert busy(around) == [("short-lived processes", 8.0, 1, False)]


def test_our_own_processes_are_no_contamination(host: Host) -> None:
    host.add(500, "python3", parent=os.getpid())
    around = host.surroundings()
    host.run(around, **{f"p{os.getpid()}": 0.5, "p500": 1.0})
    found = around.close()
    assert (len(around.flags()), found["busy"]) == (1, [])
    assert (found["console_cores"], found["client_cores"]) == (0.5, 0.5)


def test_a_baseline_that_we_started_is_still_the_baseline(host: Host) -> None:
    """A host process is a child of the runner, and so is the candidate."""
    host.processes[BASELINE]["parent"] = host.processes[SERVER]["parent"] = os.getpid()
    host.write()
    assert "baseline" in host.run(host.surroundings(), p100=1.0, p200=1.0).void
    assert host.run(host.surroundings(), p100=1.0).void == ""


def test_a_number_that_was_given_away_is_another_process(host: Host) -> None:
    """The new one has used less CPU than the old: no share below zero, none of the old one's."""
    host.work(OTHER, 50.0)
    around = host.surroundings()
    before = around.look()
    host.processes[OTHER] |= {"start": 8, "cpu": 5.0}
    host.now += RUN_S
    host.write()
    around.judge(Sample(), before, around.look())
    assert busy(around) == [("cc1plus", 0.5, 1, False)]


@pytest.mark.parametrize(
    ("swapped", "seconds", "void"),
    [
        (SWAP_IN_LEAST, RUN_S, False),
        (SWAP_IN_LEAST + PAGE, RUN_S, True),
        (60 * 2**20, 61.0, False),
        (62 * 2**20, 61.0, True),
    ],
)
def test_swapping_in_makes_a_run_void(host: Host, swapped: int, seconds: float, void: bool) -> None:
    """A long run may swap in more."""
    around = host.surroundings()
    sample = host.run(around, pages=swapped // PAGE, seconds=seconds)
    assert (sample.swapped_in, bool(sample.void)) == (swapped, void)
    assert around.close()["swapped_in"] == swapped


def test_major_faults_are_counted_and_allowed(host: Host) -> None:
    """A model larger than memory is read by mmap: that is how it runs, not what spoils it."""
    around = host.surroundings()
    before = around.look()
    host.faults += 900
    host.processes[SERVER]["faults"] += 800
    host.now += RUN_S
    host.write()
    sample = around.judge(Sample(), before, around.look())
    assert (sample.major_faults, sample.void) == (900, "")
    found = around.close()
    assert (found["major_faults"], found["server_major_faults"]) == (900, 800)


def test_a_run_that_is_void_already_keeps_its_reason(host: Host) -> None:
    assert host.run(host.surroundings(), Sample(void="short"), p200=1.0).void == "short"


def test_a_kernel_without_counters_says_nothing(tmp_path: Path) -> None:
    clock = iter((0.0, RUN_S)).__next__
    around = Surroundings(None, proc=tmp_path / "none", monotonic=clock, watch=NoWatch())
    before = around.look()
    sample = around.judge(Sample(), before, around.look())
    assert (sample.void, sample.swapped_in, sample.major_faults) == ("", None, None)
    assert around.close()["swapped_in"] is None


def test_hostile_names_are_harmless(host: Host) -> None:
    host.add(600, "\x1b[2J) S 1 (", argv="\x1b[31mllama")
    around = host.surroundings()
    sample = host.run(around, p600=2.0)
    assert "\x1b" not in sample.void + "".join(around.flags()) + str(around.close())


def test_a_benchmark_keeps_its_context_and_closes_it_whatever_happens(host: Host) -> None:
    protocol = Protocol(max_tokens=8, runs=2, max_runs=2, warmup=0)
    around = host.surroundings()
    with scripted(streams(reply(8)), documents={"/props": {"total_slots": 4}}) as server:
        result = Benchmark(server.url, protocol, surroundings=around).run()
        assert (result.context["slots"], result.context["runs"]) == (4, 2)

        def stop(*_: object) -> None:
            raise RuntimeError("the deadline")

        closed: list[str] = []
        around.close = lambda: closed.append("closed") or {}  # type: ignore[method-assign, func-returns-value, return-value, assignment]
        with pytest.raises(RuntimeError):
            Benchmark(server.url, protocol, surroundings=around, progress=stop).run()
    assert closed == ["closed"]


def test_this_very_machine() -> None:
    """Against the real /proc: this process is found, and nothing raises. What else runs here is
    no part of it: the two looks are too near each other for a share."""
    around = Surroundings(Engine("me", os.getpid()), watch=NoWatch(), monotonic=lambda: 1.0)
    look = around.look()
    assert look.processes[os.getpid()].parent == os.getppid()
    assert look.cpu_s is not None
    assert look.faults is not None
    around.judge(Sample(), look, around.look())


@pytest.mark.parametrize(
    "argv",
    [
        "/opt/venv/bin/python /opt/venv/bin/omni-console attach", "omni-console",
        "/usr/bin/python3 -P -m console.cli runner x", "python3.11 -m console",
    ],
)  # fmt: skip
def test_the_console_beside_a_run_is_told_by_itself(host: Host, argv: str) -> None:
    """Whoever follows a run is no foreign load; a busy one is said all the same."""
    host.add(400, "python3", argv=argv)
    around = host.surroundings()
    assert host.run(around, p400=0.6, p100=2.0).void == ""
    host.run(around)
    found = around.close()
    assert (found["busy"], found["console_cores"], found["client_cores"]) == ([], 0.3, 0.0)
    assert len(around.flags()) == 1


def test_a_quiet_console_is_not_worth_a_word(host: Host) -> None:
    host.add(400, "python3", argv="omni-console")
    around = host.surroundings()
    host.run(around, **{"p400": 0.03, f"p{os.getpid()}": 0.01})
    assert around.flags() == []
    found = around.close()
    assert found["console_cores"] == pytest.approx(0.04, abs=0.003)
    assert found["client_cores"] == pytest.approx(0.01, abs=0.003)


@pytest.mark.parametrize(
    "argv",
    [
        "python3 console.py", "python3 -m consoles", "python3 train.py omni-console",
        "python3 -P -m console.rehearsal.demo.engine", "python3 -m", "vim",
    ],
)  # fmt: skip
def test_what_only_looks_like_the_console_is_foreign(host: Host, argv: str) -> None:
    host.add(400, "other", argv=argv)
    around = host.surroundings()
    host.run(around, p400=0.6)
    [(name, cores, _, engine)] = busy(around)
    assert (name.split()[0], cores, engine) == ("other", 0.6, False)
