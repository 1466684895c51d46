"""What a preflight says, word for word: `make golden` writes it anew."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.checks.preflight import Finding, host
from console.checks.preflight.architecture import support
from console.checks.preflight.architecture.names import LoaderAnswer, Presence
from console.checks.preflight.architecture.on_host import HostProgram
from console.checks.preflight.architecture.support import accepts
from console.checks.preflight.compatibility import Question, check
from console.checks.preflight.gpu import check_archs, check_cuda, check_driver
from console.cli import main
from console.host.gpu.inventory import Cards
from console.host.sample import Card, Machine
from tests.preflight.test_compatibility import ADA, BIG, DARK, DRIVERS, MET, WORKSTATION, XEON, ZEN5
from tests.preflight.test_example_site import INT8, R1
from tests.preflight.test_oracle import NO, YES, Build

BAD_WORDS = [
    ["checkpoint", "../../etc"], ["checkpoint", R1, "--engine", "nothing"],
    ["checkpoint", INT8, "--line", "fast"], ["checkpoint", INT8, "--ctx", "-5"],
    ["checkpoint", INT8, "--engine", "sglang", "--loader", "mmap"],
    ["host", "--disk", ".", "--need", "7"], ["checkpoint", "http://127.0.0.1:1/org/name"],
    ["host", "--cuda", "twelve"], ["gguf", "org/na\x1b[31mme"],
]  # fmt: skip


def shown(found: Iterable[Finding]) -> list[str]:
    return [
        " | ".join([one.level.value, one.title, one.words, one.hint, *one.lessons, one.source])
        for one in found
    ]


def test_the_table(snapshot: SnapshotAssertion) -> None:
    asked = list(MET)
    asked += [
        *(Question("kt-kernel", "gguf", "deepseek2", method=method)
          for method in ("AMXINT8", "AMXINT4", "MOE_INT8", "")),
        Question("kt-kernel", method="AMXINT8", machine=Machine()),
        Question("kt-kernel", "gguf", "deepseek2", method="LLAMAFILE"),
        Question("kt-kernel", method="AMXINT8", machine=WORKSTATION),
        Question("kt-kernel", method="AMXINT8", machine=Machine(cpu_flags=XEON)),
        Question("kt-kernel", method="AMXINT8"), Question("tgi"),
        Question("sglang", "safetensors", "brand_new", "int3", machine=WORKSTATION),
        Question("dynamo", machine=Machine(cards=(Card("a", compute=(12, 0)), Card("?")))),
    ]  # fmt: skip
    assert [shown(check(question)) for question in asked] == snapshot


def test_cards_and_drivers(snapshot: SnapshotAssertion) -> None:
    found: list[Finding] = [
        check_archs([BIG, ADA], ("sm_75", "sm_86", "sm_89"), "PyTorch 2.1"),
        check_archs([BIG, ADA], ("sm_86", "sm_120"), "PyTorch"), check_archs([BIG], (), "PyTorch"),
        check_archs([BIG], None, "PyTorch"), check_archs([BIG, DARK], ("sm_120",), "PyTorch"),
        check_archs([DARK], ("sm_120",), "PyTorch"), *check_cuda([BIG, ADA], (12, 8), "x"),
        *check_cuda([BIG, ADA], (12, 4), "image x"), *check_cuda([BIG], None, "image"),
        *check_cuda([Card("new", compute=(15, 0))], (13, 0), "image"),
    ]  # fmt: skip
    found += [check_driver(*asked[:3], least=asked[3]) for asked in DRIVERS]
    assert all(one.text.isprintable() for one in found)
    assert check_cuda([DARK], (12, 8), "image") == ()
    assert shown(found) == snapshot


def test_the_host(
    snapshot: SnapshotAssertion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zen = Machine(cpu_flags=ZEN5, cpu_name="AMD Ryzen Threadripper PRO 9995WX 96-Cores")
    old = Machine(cpu_flags=frozenset({"avx2"}))
    dark = Machine(given={"cpu_flags": "/proc/cpuinfo: Permission denied"})
    methods = ("AMXINT8", "FP8", "LLAMAFILE", "NEWEST", "")
    found = [one for machine in (zen, old, dark) for method in methods
             for one in host.processor(machine, method)]  # fmt: skip
    for release in ("6.8.0-45-generic", "6.14.0"):
        found += [
            host.kernel(sched_ext=more, root=tmp_path, release=release) for more in (False, True)
        ]
    (tmp_path / "sys/kernel/sched_ext").mkdir(parents=True)
    found += [host.kernel(sched_ext=True, root=tmp_path, release="6.14.0")]
    found += [host.numa(Machine(numa_nodes=nodes)) for nodes in (1, 4, None)]
    for free, need in (
        (100 << 30, 10 << 30), (100 << 30, 101 << 30), (100 << 30, 99 << 30), (100 << 30, None),
        (10**12, 960 * 10**9), (10**12, 940 * 10**9),
    ):  # fmt: skip
        monkeypatch.setattr(host, "disk_free", lambda path, free=free: free)
        found.append(host.disk(Path("/models"), need))
    there = Cards((Card("a", "GPU-1"), Card("b", "GPU-2")))
    for uuids in (["GPU-1"], ["GPU-1", "GPU-9"]):
        found += host.cards_present(uuids, there)
    found += host.cards_present(["GPU-1"], Cards(words="none"))
    assert host.cards_present([], there) == ()
    found += [*host.ports([70_000]), host.engine("unix:///nowhere/no.sock")]
    assert shown(found) == snapshot


def test_an_architecture(snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "package_list", lambda: ("1.2.3", frozenset({"llama"})))
    clip = LoaderAnswer(False, "CLIP cannot be used as main model, use it with --mmproj instead")
    builds: dict[str, Build] = {
        f"{said.accepted} {presence}": Build({"x": said}, presence, key="")
        for said in (YES, NO, LoaderAnswer(None))
        for presence in (*Presence, None)
    }
    more: Mapping[str, Build] = {
        "it knows": Build({"x": NO, "x2": YES}, Presence.ABSENT, ("x2",), key=""),
        "it hangs": Build(trouble="it hangs", presence=Presence.ABSENT, key=""),
        "nothing": Build(trouble="no engine", presence=None, key=""),
        "no room": Build(trouble="disk full", key=""),
        "a projector": Build({"x": clip}, key=""),
    }
    said: dict[str, Any] = {}
    for name, build in (builds | more).items():
        verdict = accepts("x", build)
        said[name] = [*shown([verdict.finding()]), verdict.second]
    for name in ("", "a b", "llama"):
        said[f"name {name}"] = shown([accepts(name, Build(presence=None, key="")).finding()])
    for argv in (["/nowhere/llama-server"], ["sleep", "0"]):
        [line] = shown([accepts("llama", HostProgram(argv)).finding()])
        said[argv[0]] = re.sub(r"sha256 \w+", "sha256 …", line)
    assert said == snapshot


def test_bad_words(
    snapshot: SnapshotAssertion, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)  # where `../../etc` is no directory of this machine's
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = {}
    for argv in BAD_WORDS:
        code = main(["check", *argv])
        said[" ".join(argv[1:])] = [int(code), capsys.readouterr().err]
    assert said == snapshot
