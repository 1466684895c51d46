"""The build assistant: the faults of the seeds, each named before the build, and nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from console.checks.preflight import Finding, Level
from console.checks.preflight.sources import disk
from console.checks.preflight.sources.assistant import BuildAsk, findings, of_directory
from console.cli import main
from console.common.errors import Exit
from console.config.lessons.registry import SHIPPED, load_lesson
from console.config.locate import shipped
from tests.preflight.build_tree import BLACKWELL, DOCKERFILE, FILES, tree


def ask(place: Path, dockerfile: str = DOCKERFILE, root: Path | None = None) -> BuildAsk:
    """A build of the tree; the Dockerfile lies beside it, as one that clones does."""
    file = place / "Dockerfile"
    file.write_text(dockerfile)
    return BuildAsk(dockerfile=file, source=root or tree(place))


def faults(asked: BuildAsk, least: Level = Level.FAIL) -> list[Finding]:
    wanted = (Level.FAIL, Level.UNKNOWN, Level.WARN)
    return [one for one in findings(asked, BLACKWELL)
            if one.level in wanted[: wanted.index(least) + 1]]  # fmt: skip


def changed(*pairs: tuple[str, str]) -> str:
    text = DOCKERFILE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def wrong(lesson: str) -> str:
    return load_lesson(SHIPPED / f"{lesson}.yaml").model.wrong


CLONE = "RUN git clone --recursive https://github.com/kvcache-ai/ktransformers.git\n"
BUILDS = DOCKERFILE[DOCKERFILE.index("WORKDIR /workspace\n") : DOCKERFILE.index("CMD")]

SEEDS = [
    # the whole installation is a comment, as on lines 59 to 61 of that Dockerfile
    ("F-011", changed((BUILDS, wrong("F-011") + "\n")), "neither copied nor cloned", "Dockerfile"),
    ("F-011", changed((" \\\n && pip install --no-build-isolation ./archive", "")),
     "nothing installs it from this tree", "Dockerfile"),
    ("F-012", changed(("FROM nvidia/cuda:12.8.0-devel-ubuntu22.04", wrong("F-012"))),
     "is CUDA 12.1", "Dockerfile:1"),
    ("F-012", changed(("whl/cu128", "whl/cu118")), "another major version", "Dockerfile:5"),
    ("F-013", changed((CLONE, wrong("F-013") + "\n")), "a shallow clone lacks", "Dockerfile:8"),
    ("F-013", changed(("--recursive ", "")), "nothing fetches them", "Dockerfile:8"),
    ("F-014", changed(("ARG USE", f"{wrong('F-014')}\nARG USE")),
     "torch.cuda.get_arch_list() in an image build", "Dockerfile:11"),
    ("F-015", changed(("pkg-config libhwloc-dev ", "")),
     "nothing installs libhwloc-dev", "ktransformers/kt-kernel/CMakeLists.txt:5"),
    ("F-015", changed(("pkg-config libhwloc-dev ", "")),
     "nothing installs pkg-config", "ktransformers/kt-kernel/CMakeLists.txt:5"),
    ("F-016", changed(("git cmake ", "git ")), "archive is built with cmake", "Dockerfile:13"),
    ("F-017", changed(("rm -rf archive/third_party && cp -r third_party archive/ \\\n && ", "")),
     "archive/third_party/pybind11 is included and is not in the tree",
     "ktransformers/archive/csrc/ktransformers_ext/CMakeLists.txt:2"),
    ("F-018", changed(("ARG USE_BALANCE_SERVE=1\n", "")), "built only with USE_BALANCE_SERVE=1",
     "ktransformers/archive/ktransformers/server/balance_serve/settings.py:2"),
    ("F-023", changed(("USE_BALANCE_SERVE=1", "USE_BALANCE_SERVE=0")),
     "custom_cache → ktransformers.server.balance_serve.settings → sched_ext",
     "ktransformers/archive/ktransformers/server/balance_serve/settings.py:2"),
    ("F-023", changed(("libtbb-dev libssl-dev", "")), "nothing installs libtbb-dev",
     "ktransformers/archive/csrc/balance_serve/CMakeLists.txt:2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("lesson", "dockerfile", "words", "place"), SEEDS, ids=[f"{s[0]}-{s[2]}" for s in SEEDS]
)
def test_each_fault_of_the_seeds_is_named_before_the_build(
    tmp_path: Path, lesson: str, dockerfile: str, words: str, place: str
) -> None:
    found = [one for one in faults(ask(tmp_path, dockerfile)) if words in one.words]
    assert [(one.place, bool(one.hint)) for one in found] == [(place, True)]
    assert lesson in found[0].lessons


def test_the_import_of_f_023_alone_is_named_at_its_own_line(tmp_path: Path) -> None:
    """Version 0.4.1 where neither the settings nor the sources of the extension are there."""
    gone = {name: None for name in FILES if "balance_serve" in name or name == "archive/setup.py"}
    setup = 'from setuptools import setup\nsetup(name="ktransformers")\n'
    root = tree(tmp_path, **{**gone, "archive/setup.py": setup})
    (found,) = faults(ask(tmp_path, root=root))
    assert found.place.endswith("models/custom_cache.py:25")
    assert "F-023" in found.lessons
    assert "no package brings it" in found.words


def test_a_part_that_this_release_does_not_have_is_named(tmp_path: Path) -> None:
    """Before the restructuring there was no archive/ (F-016)."""
    old = {n: None for n in FILES if n.startswith("archive/")}
    found = [one for one in faults(ask(tmp_path, root=tree(tmp_path, **old)))
             if one.title == "source tree"]  # fmt: skip
    assert [(one.place, one.lessons) for one in found] == [("Dockerfile:13", ("F-016",))]


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    text = changed(
        ("FROM nvidia/cuda:12.8.0-devel-ubuntu22.04", wrong("F-012")),
        ("--recursive ", "--depth 1 "),
        ("git cmake ", "git "), ("pkg-config libhwloc-dev ", ""), ("USE_BALANCE_SERVE=1", "X=1"),
        ("rm -rf archive/third_party && cp -r third_party archive/ \\\n && ", ""),
        ("ARG X", f"{wrong('F-014')}\nARG X"),
    )  # fmt: skip
    found = faults(ask(tmp_path, text))
    named = {lesson for one in found for lesson in one.lessons}
    wanted = {"F-012", "F-013", "F-014", "F-015", "F-016", "F-017", "F-018", "F-023"}
    assert wanted <= named


def test_a_good_build_gives_nothing(tmp_path: Path) -> None:
    assert faults(ask(tmp_path), Level.WARN) == []


@pytest.mark.parametrize("target", ["phase1", "phase2", "phase3", "sglang"])
def test_the_shipped_dockerfile_against_a_plausible_tree(tmp_path: Path, target: str) -> None:
    text = (shipped() / "stack/Dockerfile.ktransformers").read_text()
    asked = replace(
        ask(tmp_path, text), target=target, modules=("kt_kernel",) * (target != "phase1")
    )
    assert faults(asked, Level.WARN) == []


def test_the_other_shipped_dockerfile(tmp_path: Path) -> None:
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    file = shipped() / "stack/Dockerfile.ik-llama"
    assert faults(BuildAsk(str(tmp_path), file), Level.WARN) == []


def test_build_arguments_win_over_defaults_of_the_dockerfile(tmp_path: Path) -> None:
    asked = ask(tmp_path)
    assert faults(asked) == []
    (found,) = faults(replace(asked, args={"USE_BALANCE_SERVE": "0"}))
    assert found.title == "import sched_ext"
    bare = replace(ask(tmp_path, changed(("ARG USE_BALANCE_SERVE=1", "ARG USE_BALANCE_SERVE"))))
    assert [one.title for one in faults(bare)] == ["import sched_ext"]
    assert faults(replace(bare, args={"USE_BALANCE_SERVE": "1"})) == []


def test_a_rule_that_somebody_has_judged_is_not_asked_again(tmp_path: Path) -> None:
    text = changed(("ARG USE", f"{wrong('F-014')}\nARG USE"))
    asked = ask(tmp_path, text)
    assert len(faults(asked)) == 1
    assert faults(replace(asked, judged=frozenset({"build-time-gpu-validation"}))) == []
    why = "# omni: ignore build-time-gpu-validation F-014 the builder has a card\n"
    assert faults(ask(tmp_path, text.replace("RUN python", f"{why}RUN python"))) == []


TORCH = [
    # (what replaces the line of PyTorch, what is said)
    ("RUN pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cpu",
     "has no CUDA", Level.FAIL),
    ("RUN pip install torch==2.9.1+cu126", "minor versions differ", Level.WARN),
    ("RUN pip install torch==2.2.0 --index-url https://download.pytorch.org/whl/cu128",
     "the sources require torch >= 2.3.0", Level.FAIL),
    ("RUN pip install torch==2.9.1 && pip install https://x/f/"
     "flash_attn-2.8.3+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
     "PyTorch 2.6, not 2.9.1; the old C++ ABI (cxx11abiFALSE)", Level.FAIL),
    ("RUN pip install torch==2.9.1 && pip install ./x-1.0+cu118-cp310-cp310-linux_x86_64.whl",
     "CUDA 11, not 12; Python 3.10, not 3.11", Level.FAIL),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words", "level"), TORCH, ids=[one[1] for one in TORCH])
def test_pytorch_and_cuda_have_to_agree(
    tmp_path: Path, line: str, words: str, level: Level
) -> None:
    old = "RUN pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cu128"
    found = faults(ask(tmp_path, changed((old, line))), Level.WARN)
    said = {(one.level, bool({"F-012", "F-027"} & set(one.lessons)))
            for one in found if words in one.words}  # fmt: skip
    assert said == {(level, True)}


def test_a_second_pytorch_after_an_extension_breaks_it(tmp_path: Path) -> None:
    late = "RUN pip install torch==2.7.0\nCMD"
    (found,) = faults(ask(tmp_path, changed(("CMD", late))))
    assert "replaces PyTorch 2.9.1 for cu128 (line 5), against which" in found.words
    assert "F-027" in found.lessons


def test_an_isolated_build_against_another_pytorch_is_said(tmp_path: Path) -> None:
    (found,) = faults(ask(tmp_path, changed(("--no-build-isolation ", ""))), Level.WARN)
    assert (found.level, found.place) == (Level.WARN, "Dockerfile:13")
    assert "--no-build-isolation" in found.hint


def test_submodules_that_are_copied_have_to_be_there(tmp_path: Path) -> None:
    copies = changed(("RUN git clone --recursive https://github.com/kvcache-ai/ktransformers.git",
                      "COPY . ktransformers"))  # fmt: skip
    root = tree(tmp_path, **{"third_party/llama.cpp/CMakeLists.txt": None})
    (root / "third_party/llama.cpp").mkdir()
    asked = of_directory(root, ask(tmp_path, copies, root).dockerfile, "", {}, ())
    (found,) = faults(asked)
    assert (found.place, found.lessons) == ("ktransformers/.gitmodules:4", ("F-013",))
    (root / "third_party/llama.cpp/x").write_text("")
    assert faults(asked) == []


def test_what_is_only_perhaps_needed_does_not_stop(tmp_path: Path) -> None:
    cmake = FILES["kt-kernel/CMakeLists.txt"]
    perhaps = cmake.replace("WITH_SERVER OR WIN32", "SOMETHING STREQUAL other")
    (found,) = faults(ask(tmp_path, root=tree(tmp_path, **{"kt-kernel/CMakeLists.txt": perhaps})),
                      Level.WARN)  # fmt: skip
    assert found.level is Level.WARN
    assert "under some condition" in found.words
    on = cmake.replace('"" OFF', '"" ON')
    (found,) = faults(ask(tmp_path, root=tree(tmp_path, **{"kt-kernel/CMakeLists.txt": on})))
    assert "libboost" in found.words
    other = changed(("FROM nvidia/cuda:12.8.0-devel-ubuntu22.04", "FROM own/base:1"))
    assert [one for one in faults(ask(tmp_path, other, tmp_path / "ktransformers"))
            if "libboost" in one.words] == []  # fmt: skip


def test_a_package_that_no_table_knows_is_a_note(tmp_path: Path) -> None:
    text = FILES["kt-kernel/CMakeLists.txt"] + "find_package(PhotonLibOS REQUIRED)\n"
    asked = ask(tmp_path, root=tree(tmp_path, **{"kt-kernel/CMakeLists.txt": text}))
    assert faults(asked, Level.WARN) == []
    notes = [one for one in findings(asked, BLACKWELL) if "PhotonLibOS" in one.title]
    assert [one.level for one in notes] == [Level.OK]


def test_a_package_that_the_image_builds_itself_is_only_said(tmp_path: Path) -> None:
    """PhotonLibOS, xxHash and prometheus-cpp were built from source (F-023)."""
    name = "archive/csrc/balance_serve/CMakeLists.txt"
    text = FILES[name] + "find_package(prometheus-cpp REQUIRED)\n"
    asked = ask(tmp_path, root=tree(tmp_path, **{name: text}))
    (found,) = faults(asked)
    assert "libprometheus-cpp-dev" in found.words
    own = "RUN git clone --recursive https://github.com/jupp0r/prometheus-cpp /p && make -C /p\n"
    asked = ask(
        tmp_path, changed(("WORKDIR /workspace\n", own + "WORKDIR /workspace\n")), asked.source
    )
    assert faults(asked) == []


def test_many_findings_end_in_a_count(tmp_path: Path) -> None:
    many = "".join(f"add_subdirectory(no/{at})\n" for at in range(400))
    asked = ask(tmp_path, root=tree(tmp_path, **{"kt-kernel/CMakeLists.txt": many}))
    found = findings(asked, BLACKWELL)
    assert (len(found), found[-1].words, found[-1].level) == (201, "and 202 more", Level.FAIL)


def test_a_build_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from console.checks.preflight.sources import needs

    root = tree(tmp_path) / "kt-kernel"
    monkeypatch.setattr(needs, "_debs", lambda: frozenset({"pkg-config", "cmake"}))
    (found,) = findings(BuildAsk(source=root), BLACKWELL)
    assert (found.level, found.hint) == (Level.UNKNOWN, "sudo apt-get install libhwloc-dev")
    monkeypatch.setattr(needs, "_debs", lambda: frozenset({"pkg-config", "cmake", "libhwloc-dev"}))
    assert findings(BuildAsk(source=root), BLACKWELL) == []


def test_the_disk_of_the_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, level in ((10 * disk.GB, Level.FAIL), (90 * disk.GB, Level.OK)):
        monkeypatch.setattr(disk, "disk_free", lambda path, free=free: free)
        found = disk.room(tmp_path, 17 * disk.GB, ["nvidia/cuda 9 GB", "torch 8 GB"])
        assert (found.level, "nvidia/cuda 9 GB" in found.words) == (level, True)


# The command


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    site = str(shipped() / "sites/omni.yaml")
    code = main(["check", "build", *words, "--site", site])
    return code, capsys.readouterr().out


def test_the_command_lists_every_fault_of_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    text = changed(("git cmake ", "git "), ("USE_BALANCE_SERVE=1", "USE_BALANCE_SERVE=0"))
    asked = ask(tmp_path, text)
    given = (str(asked.source), "--dockerfile", str(asked.dockerfile))
    code, out = run(capsys, *given, "--json")
    found = [one for one in json.loads(out)["findings"] if one["level"] == "fail"]
    assert code == Exit.NO_GO
    assert {"Dockerfile:10", "Dockerfile:13"} <= {one["place"] for one in found}
    assert all(one["hint"] and one["lessons"] for one in found)
    code, out = run(capsys, *given, "--build-arg", "USE_BALANCE_SERVE=1")
    assert code == Exit.NO_GO
    assert "sched_ext:" not in out
    assert "(F-016)" in out


def test_the_command_reads_the_builds_of_a_playbook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    words = ("operation-lazarus", "--input", f"models={tmp_path}")
    code, out = run(capsys, *words)
    assert code == Exit.HOLD
    assert "step build: omni/ktransformers:phase3" in out
    source = ("--input", f"checkout={tree(tmp_path)}")
    code, out = run(capsys, *words, *source, "--input", "balance_serve=0")
    assert code == Exit.NO_GO
    assert "import sched_ext" in out


@pytest.mark.parametrize("words", [
    ("/no/such",), (".", "--build-arg", "X"), (".", "--dockerfile", "/no/such"),
    ("operation-lazarus", "--target", "x"), (".", "--input", "a=b"), ("baseline-verify",),
])  # fmt: skip
def test_bad_input_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(capsys, *words)[0] == Exit.USAGE
