"""Variables of the engines that no option stands for are read, harmless, or named."""

from pathlib import Path

import pytest

from console.checks.preflight import compatibility
from console.checks.preflight.architecture import check
from console.checks.preflight.compatibility import Loader
from console.common.errors import ServiceError
from console.common.options import variables
from console.common.options.table import table
from console.common.options.variables import rows
from console.host import units
from console.host.sample import Card, Machine
from console.host.units import UnitSpec, UnitState
from console.models.hub.checkpoint import Format
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import LlamaPlan
from tests.sizing import shapes
from tests.sizing.test_backends import PLAIN

GIB = 1 << 30
LINE = ["--gpu-memory-utilization", "0.9", "--max-model-len", "4096"]
ROOMY = Machine(
    cards=(Card("A", total=80 * GIB, free=80 * GIB, compute=(9, 0)),), ram_available=512 * GIB
)


@pytest.mark.parametrize(
    ("env", "image", "verdict"),
    [
        ({"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_API_KEY": "x"}, "", Verdict.GO),
        ({"VLLM_USE_V2_MODEL_RUNNER": "1"}, "", Verdict.UNKNOWN),
        ({"VLLM_KV_CACHE_LAYOUT": "HND"}, "", Verdict.UNKNOWN),
        ({"VLLM_USE_V1": "0"}, "", Verdict.UNKNOWN),
        ({"VLLM_USE_V1": "1"}, "", Verdict.GO),
        ({"VLLM_USE_V1": "0"}, "vllm/vllm-openai:v0.33.0", Verdict.GO),
        ({"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "vllm/vllm-openai:v0.14.1", Verdict.UNKNOWN),
        ({"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "vllm/vllm-openai:v0.33.0", Verdict.GO),
        ({"VLLM_FUSED_MOE_CHUNK_SIZE": "8192"}, "", Verdict.UNKNOWN),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G"}, "", Verdict.UNKNOWN),
        ({"PATH": "/bin", "MODEL": "x", "SGLANG_INT4_WEIGHT": "1"}, "", Verdict.GO),
    ],
)
def test_variables_of_vllm(env: dict[str, str], image: str, verdict: Verdict) -> None:
    assessment = assess(PLAIN, vllm_plan(LINE, env, image), ROOMY, advised=False)
    assert assessment.verdict is verdict, assessment.because
    assert verdict is Verdict.GO or next(iter(env)) in assessment.because


def test_a_variable_that_no_release_has_is_said() -> None:
    """vLLM passes it over: "Unknown vLLM environment variable detected"."""
    plan = vllm_plan(LINE, {"VLLM_MODEL": "x"})
    assert plan.uncounted == ()
    assert "VLLM_MODEL=x: vLLM 0.33.0 has no such variable" in plan.notes


def test_the_value_of_a_secret_is_not_shown() -> None:
    plan = vllm_plan(LINE, {"VLLM_SECRET_TOKEN": "hunter2-hunter2"})
    assert "hunter2" not in str(plan)


def test_variables_of_sglang_are_read_at_all() -> None:
    plan = sglang_plan([], env={"SGLANG_INT4_WEIGHT": "1", "SGLANG_LOG_MS": "1"})
    assert plan.uncounted == ("SGLANG_INT4_WEIGHT=1",)
    loader = Loader(engine="sglang", env={"SGLANG_INT4_WEIGHT": "1"})
    for engine in ("sglang", "kt-kernel"):
        made = compatibility.ENGINES[engine].plan(loader)
        assert "SGLANG_INT4_WEIGHT=1" in made.uncounted


@pytest.mark.parametrize("read", [llama_plan, ik_plan])
def test_variables_of_llama(read: object) -> None:
    env = {
        "LLAMA_ARG_CTX_SIZE": "4096",
        "LLAMA_DIR": "/x",
        "LLAMA_ARG_NEW_THING": "1",
        "GGML_CUDA_DISABLE_GRAPHS": "1",
        "GGML_NEW_THING": "1",
    }
    plan = read([], env)  # type: ignore[operator]
    assert isinstance(plan, LlamaPlan)
    assert plan.uncounted == ("GGML_NEW_THING=1", "LLAMA_ARG_NEW_THING=1")


def test_unified_memory_is_no_no_go_of_a_card() -> None:
    """GGML_CUDA_ENABLE_UNIFIED_MEMORY lets a card's share lie in RAM."""
    facts = from_gguf(shapes.llama_70b())
    small = Machine(cards=(Card("A", total=8 * GIB, free=8 * GIB),), ram_available=512 * GIB)
    line = ["-ngl", "99", "-c", "4096"]
    env = {"GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1"}
    assert assess(facts, llama_plan(line), small, advised=False).verdict is Verdict.NO_GO
    assessment = assess(facts, llama_plan(line, env), small, advised=False)
    assert assessment.verdict is Verdict.UNKNOWN
    assert "GGML_CUDA_ENABLE_UNIFIED_MEMORY" in assessment.because


def test_a_name_stands_once_and_is_no_options() -> None:
    names = [
        name
        for line in (Path(variables.__file__).parent / "variables.txt").read_text().splitlines()
        if line and not line.startswith("#")
        for name in line.split("  gone=")[0].split()[2:]
    ]
    assert [name for name in names if names.count(name) > 1] == []
    of_options = {name for of in ("vllm", "sglang", "llama_cpp", "ik_llama")
                  for option in table(of).options for name in option.env}  # fmt: skip
    assert of_options.isdisjoint(names)
    assert all(rows(name) for name in ("vllm", "sglang", "llama", "cuda"))


SHOWN = """Environment=CUDA_VISIBLE_DEVICES=1 "LLAMA_ARG_ALIAS=two words"
EnvironmentFiles={path} (ignore_errors=no)
EnvironmentFiles=/nowhere/a (ignore_errors=yes)
EnvironmentFiles=/nowhere/b (ignore_errors=no)
"""


def test_what_a_unit_gives_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "llama.env"
    path.write_text("# c\n; c\nLLAMA_ARG_CTX_SIZE=8192\nGGML_X='a b'\nCUDA_VISIBLE_DEVICES=0\n")
    monkeypatch.setattr(units, "_call", lambda *_: SHOWN.format(path=path))
    given = units.variables(UnitSpec("llm.service"))
    assert given.env == {
        "CUDA_VISIBLE_DEVICES": "0", "LLAMA_ARG_ALIAS": "two words", "LLAMA_ARG_CTX_SIZE": "8192",
        "GGML_X": "a b",
    }  # fmt: skip
    assert given.unread == ("/nowhere/b",)


def test_a_units_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As this user sees them in the process, or else as the unit's files say."""
    monkeypatch.setattr(units, "look", lambda _: UnitState(main=7, invocation="i"))
    monkeypatch.setattr(check, "argv_of", lambda _: ("llama-server", "-m", "x.gguf"))
    seen = {"LLAMA_ARG_CTX_SIZE": "8192", "NOTIFY_SOCKET": "/run/x", "HOME": "/"}
    monkeypatch.setattr(check, "environ", lambda _: seen)
    command = check._of_unit("baseline", UnitSpec("llm.service"))
    assert command.env == {"LLAMA_ARG_CTX_SIZE": "8192"}
    monkeypatch.setattr(check, "environ", lambda _: None)
    files = units.Variables({"LLAMA_ARG_CTX_SIZE": "4096"}, ("/etc/llm.env",))
    monkeypatch.setattr(units, "variables", lambda _: files)
    command = check._of_unit("baseline", UnitSpec("llm.service"))
    assert (command.env, command.unread) == (files.env, files.unread)


def test_variables_that_cannot_be_read_make_it_unknown() -> None:
    plan = compatibility.plan_of(Loader(unread=("/etc/llm.env",)), Format.GGUF)
    assert "/etc/llm.env" in plan.problems[0]


def test_a_systemd_that_does_not_answer_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise ServiceError("systemctl show failed")

    monkeypatch.setattr(units, "_call", fails)
    with pytest.raises(ServiceError):
        units.variables(UnitSpec("llm.service"))
