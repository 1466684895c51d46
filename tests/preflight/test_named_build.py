"""The build that `check checkpoint` is told: it is asked, and what it refuses counts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture import absent, support, tensor_types, vocabulary
from console.checks.preflight.architecture.absent import Absent
from console.checks.preflight.architecture.on_host import HostProgram
from console.checks.preflight.checkpoint import Judged
from console.checks.preflight.compatibility import Loader
from console.checks.preflight.of_site import Asking, build_here
from console.checks.preflight.visible import TITLE as VISIBLE_CARDS
from console.cli import main
from console.config.site.site import load_site
from console.models.gguf.header import ARCHITECTURE, Header, Tensor, Value
from console.models.loader.complaints import PRE, TOKENIZER
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.loader_plan import Strategy
from console.runtime.docker.client import connect
from tests.testbed.models import tiny_deepseek2, tiny_llama

SITE = """\
schema: omni.site/v1
name: lab
machine: {ram: 64GiB}
baseline: {process: {argv: [cat]}, url: "http://127.0.0.1:9"}
services:
  other: {process: {argv: [SERVER, -m, x.gguf, --no-mmap, -c, "512"]}, url: "http://127.0.0.1:8"}
"""
SERVER = """\
#!/bin/sh
for word; do
  [ "$word" = --no-mmap ] && { echo "error: invalid argument: --no-mmap"; exit 1; }
done
echo "error loading model: key not found in model: llama.context_length"
exit 1
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that fits; beside it llama-server, a build without --no-mmap, and a site with it."""
    server = tmp_path / "llama-server"
    server.write_text(SERVER)
    server.chmod(0o755)
    (tmp_path / "site.yaml").write_text(SITE.replace("SERVER", str(server)))
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    tiny_llama(tmp_path / "m.gguf")
    return tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--binary", "llama-server", "--args", "-c", "512"], 0, "GO"),
        (["--binary", "llama-server", "--args", "-c", "512", "--no-mmap"], 3,
         "this build has no such option"),
        (["--args", "-c", "512", "--no-mmap"], 4, "whether this build takes --no-mmap"),
        (["--service", "other"], 3, "this build has no such option"),
        (["--service", "other", "--args", "-c", "512"], 0, "GO"),
    ],
)  # fmt: skip
def test_what_the_named_build_refuses_counts(
    model: Path, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(model.parent)
    words = [f"./{word}" if word == "llama-server" else word for word in words]
    found = main(["check", "checkpoint", str(model), "--json", *words])
    told = json.loads(capsys.readouterr().out)
    assert (found, said in f"{told['verdict']} {told['because']}") == (code, True), told


@pytest.mark.parametrize("command", ["checkpoint", "gguf"])
def test_the_build_is_one(model: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", command, str(model), "--binary", "x", "--image", "y"]) == 2
    assert "--binary and --image exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--binary", "/nowhere/llama-server"], "There is no program /nowhere/llama-server"),
        (["--service", "none"], "unknown service none"),
        (["--image", "own:1"], "engine"),
    ],
)
def test_a_build_that_is_not_there_is_no_answer(
    model: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--suggest"]):
        assert main(["check", "checkpoint", str(model), *more, *words]) not in (0, 4)
        assert said in capsys.readouterr().err


MUTE = {
    "linker": "echo 'error while loading shared libraries: libllama.so: cannot open it'; exit 127",
    "silent": "exit 0", "failing": "exit 1", "aborting": "kill -ABRT $$", "chatty": "echo hello",
    "hanging": "exec sleep 60",
}  # fmt: skip
SAYS = {
    "linker": "libllama.so: cannot open it", "failing": "exit code 1", "aborting": "signal 6",
    "hanging": "did not end within", "chatty": "hello",
}  # fmt: skip


@pytest.mark.parametrize("whose", ["--binary", "--service", "baseline"])
@pytest.mark.parametrize("kind", MUTE)
def test_a_build_that_cannot_be_asked_is_unknown_with_what_it_said(
    model: Path, kind: str, whose: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("console.checks.preflight.architecture.on_host.ASK_S", 0.3)
    server = model.parent / "llama-server"
    server.write_text(f"#!/bin/sh\n{MUTE[kind]}\n")
    line = ["-m", "x.gguf", "-c", "512"]
    site = SITE.replace(", --no-mmap", "").replace("SERVER", str(server))
    if whose == "baseline":
        site = site.replace(
            "argv: [cat]", f"argv: [{server}, {', '.join(line)}]".replace("512", '"512"')
        )
    (model.parent / "site.yaml").write_text(site)
    words = {"--binary": [whose, str(server), "--args", "-c", "512"], "--service": [whose, "other"]}
    code = main(["check", "checkpoint", str(model), "--json", *words.get(whose, [])])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (4, "UNKNOWN"), told
    assert SAYS.get(kind, "could not be asked") in told["because"]
    assert "is asked" not in json.dumps(told["findings"])


def test_a_build_that_is_not_to_be_had_is_said_not_to_be_asked(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The site may be of another machine, so that this is no reason for UNKNOWN."""
    line = "{container: gone, args: [-c, '512'], url: 'http://127.0.0.1:9'}"
    site = model.parent / "site.yaml"
    head = site.read_text().partition("baseline:")[0]
    site.write_text(f"{head}baseline: {line}\n")
    assert main(["check", "checkpoint", str(model), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["title"] for one in told["findings"] if one["level"] == "warn"] == ["the build"]


@pytest.mark.parametrize("argv", ["[/opt/nowhere/llama-server, -m, x.gguf]", "[vllm-gone, serve]"])
@pytest.mark.parametrize("option", ["--no-mmap", "--mlock"])
def test_a_program_that_is_on_another_machine_is_not_to_be_had_either(
    model: Path, argv: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with "There is no program" and without a verdict: the same as a container that is
    gone."""
    site = model.parent / "site.yaml"
    site.write_text(site.read_text().replace("[cat]", argv))
    words = ["--engine", "llama.cpp", "--json", "--args", option, "-c", "512"]
    code = main(["check", "checkpoint", str(model), *words])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (4, "UNKNOWN")
    assert f"whether this build takes {option}" in told["because"]


@pytest.mark.parametrize(
    "whose", ["{container: gone, args: []}", "{process: {argv: [/opt/nowhere/llama-server]}}", ""]
)
@pytest.mark.parametrize(
    ("architecture", "pre", "words", "told"),
    [
        ("qwen3next", "", (), "architecture qwen3next: whether it has this architecture"),
        ("llama", "", ("-ctk", "q6_0"), "whether it has q6_0"),
        ("llama", "qwen35", (), "the tokenizer qwen35; llama.cpp has qwen35 since #19468"),
    ],
)  # fmt: skip
def test_what_a_build_that_is_gone_might_refuse_is_no_go(
    model: Path, whose: str, architecture: str, pre: str, words: tuple[str, ...], told: str
) -> None:
    """It was a GO with a warning: the table says of every architecture that the build decides."""
    path = model.parent / "site.yaml"
    text = path.read_text()
    if whose:
        ours = whose.removesuffix("}") + ', url: "http://127.0.0.1:9"}'
        text = text.replace('{process: {argv: [cat]}, url: "http://127.0.0.1:9"}', ours)
    path.write_text(text)
    gone = build_here(
        load_site(path), lambda: connect("unix:///nowhere/docker.sock"),
        "baseline" if whose else "none",
    )  # fmt: skip
    assert isinstance(gone, Absent)
    kv: dict[str, Value] = {ARCHITECTURE: architecture, TOKENIZER: "gpt2", PRE: pre}
    (found,) = absent.findings(gone, Loader(args=words), Header(3, "little", 32, 0, kv, (), 0))
    assert (found.level, told in f"{found.title}: {found.words}") == (Level.UNKNOWN, True)
    assert gone.why in found.words


LLAMA_BASELINE = "process: {argv: [/opt/nowhere/llama-server, -c, '512']}"
VLLM_BASELINE = "process: {argv: [/opt/nowhere/vllm, serve, x]}"


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        (LLAMA_BASELINE, []), (LLAMA_BASELINE, ["--args", "-c", "256"]),
        (LLAMA_BASELINE, ["--engine", "llama.cpp"]),
        (LLAMA_BASELINE, ["--engine", "ik_llama.cpp", "--args", "-c", "256"]),
        (VLLM_BASELINE, []), (VLLM_BASELINE, ["--engine", "llama.cpp", "--args", "-c", "256"]),
        ("container: gone, args: []", ["--args", "-c", "256"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("make", "everywhere"), [(tiny_deepseek2, False), (tiny_llama, True)])
def test_an_architecture_that_not_every_build_has_is_no_go_while_none_is_asked(
    model: Path, baseline: str, words: list[str], make: Callable[[Path], object],
    everywhere: bool, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """ik_llama.cpp#2166: --engine or --args made it a GO, as another build may be meant then."""
    make(model)
    site = model.parent / "site.yaml"
    site.write_text(site.read_text().replace("process: {argv: [cat]}", baseline))
    words = [*words, *([] if "--args" in words else ["--ctx", "256"])]
    code = main(["check", "checkpoint", str(model), "--json", *words])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == ((0, "GO") if everywhere else (4, "UNKNOWN"))
    assert ("whether it has this architecture" in told["because"]) is not everywhere


def test_what_nobody_can_tell_names_the_build_that_it_needs() -> None:
    """openai/gpt-oss-120b and Qwen3.6 asked of a baseline of another engine: ggml-org/llama.cpp
    #15091, #12108, #19468."""
    nobody = HostProgram(["cat"])
    types = tensor_types.verdict_on([Tensor("blk.0.x", (32,), 39, "MXFP4", 17)], "llama", nobody)
    assert types.finding().level is Level.UNKNOWN
    assert "llama.cpp has MXFP4 since #15091 (August 2025)" in types.finding().words
    for pre, number in (("gpt-4o", "#12108"), ("qwen35", "#19468"), ("deepseek-v3", "#11049")):
        header = Header(3, "little", 32, 0, {TOKENIZER: "gpt2", PRE: pre}, (), 0)
        (found,) = vocabulary.findings(nobody, header, sure=False)
        assert (found.level, number in found.words) == (Level.UNKNOWN, True)


def test_a_build_that_cannot_be_read_has_no_name(
    tmp_path: Path,
) -> None:
    build = HostProgram([str(tmp_path / "llama-server")])
    assert Asking(lambda: build, sure=False)({"--mlock": ("--mlock",)}) == {}
    assert support.called(build) == "the build"


@pytest.mark.parametrize("named", [True, False])
def test_a_build_that_lacks_the_architecture_is_no_go(
    model: Path, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another build than the baseline's may be meant where none is named."""
    server = model.parent / "llama-server"
    server.write_text("#!/bin/sh\necho \"error loading model: unknown model architecture: 'x'\"\n")
    site = model.parent / "site.yaml"
    site.write_text(site.read_text().replace("argv: [cat]", f"argv: [{server}]"))
    words = ["--binary", str(server)] if named else []
    code = main(["check", "checkpoint", str(model), "--json", *words, "--args", "-c", "512"])
    told = json.loads(capsys.readouterr().out)
    expected = (3, "NO-GO") if named else (4, "UNKNOWN")
    assert (code, told["verdict"]) == expected
    assert "unknown model architecture" in told["because"]


def test_a_build_of_another_engine_is_said_not_to_be_asked(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tensors"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(bytes(64))
    for named in (True, False):
        words = ["--binary", str(model.parent / "llama-server")] if named else []
        main(["check", "checkpoint", str(folder), "--engine", "vllm", *words, "--args", "-tp", "1"])
        assert ("it was not asked" in capsys.readouterr().out) is named


def test_a_build_that_cannot_be_asked_suggests_nothing(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = model.parent / "llama-server"
    server.write_text(f"#!/bin/sh\n{MUTE['linker']}\n")
    assert main(["check", "checkpoint", str(model), "--suggest", "--binary", str(server)]) == 4
    assert "libllama.so: cannot open it" in capsys.readouterr().out


@pytest.mark.parametrize(("draft", "code"), [("./m.gguf", 0), ("./other.gguf", 4)])
def test_a_draft_model_beside_the_question_is_read(
    model: Path, draft: str, code: int, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every draft model was UNKNOWN."""
    monkeypatch.chdir(model.parent)
    words = ["--engine", "llama.cpp", "--json", "--args", "-c", "512", "-md", draft]
    assert main(["check", "checkpoint", str(model), *words]) == code
    told = json.loads(capsys.readouterr().out)
    assert ("draft model" in {term["name"] for term in told["terms"]}) == (code == 0)
    assert ("--spec-draft-model ./other.gguf" in told["because"]) == (code == 4)


def test_an_unknown_names_the_reasons_of_the_sum_beside_those_of_the_checks() -> None:
    """ik_llama.cpp#1837: six uncounted options stood in the line of the memory alone."""
    doubt = Finding(Level.UNKNOWN, VISIBLE_CARDS, "whether it has this architecture")
    ledger = Assessment(Strategy.MMAP, unknown=["not counted: --lora a.gguf"])
    told = Judged((doubt,), ledger)
    assert told.verdict is Verdict.UNKNOWN
    assert "whether it has this architecture" in told.because
    assert "--lora a.gguf" in told.because
    fits = Judged((doubt,), Assessment(Strategy.MMAP))
    assert "everything fits" not in fits.because
