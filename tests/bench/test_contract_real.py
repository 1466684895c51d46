"""The contract on real llama.cpp servers: the same one, another chat template, no Jinja, another
quantization, each named by its right words."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import gguf
import numpy
import pytest

from console.bench.contract.compare import Comparison, compare
from console.bench.contract.fingerprint import Fingerprint, take
from console.cli import main
from console.config.contract import contract_cases
from tests.bench.embedded import embedded
from tests.testbed.models import tiny_llama

CASES = contract_cases()
BARE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Serve = Callable[..., str]


def quantized(source: Path, to: Path) -> None:
    """The same model with its matrices in four bits, which is coarse enough to be heard."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(to, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        data = numpy.asarray(tensor.data)
        if len(data.shape) == 1 or tensor.name.startswith("token_embd"):
            writer.add_tensor(tensor.name, data)
            continue
        kind = gguf.GGMLQuantizationType.Q4_0
        made = gguf.quants.quantize(data.astype(numpy.float32), kind)
        writer.add_tensor(tensor.name, made, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contract") / "tiny.gguf"
    tiny_llama(path)
    return path


@pytest.fixture(scope="module")
def serve(model: Path) -> Iterator[Serve]:
    """Starts a server with these flags, on a link to the model that has a log of its own."""
    with ExitStack() as stack:

        def start(*flags: str, of: Path = model) -> str:
            link = model.with_name(f"{len(list(model.parent.iterdir()))}.gguf")
            link.symlink_to(of)
            return stack.enter_context(embedded(link, "--alias", "tiny", *flags))

        yield start


@pytest.fixture(scope="module")
def plain(serve: Serve) -> tuple[str, Fingerprint]:
    url = serve("--chat-template", CHATML)
    return url, take(url, CASES)


def against(plain: tuple[str, Fingerprint], url: str) -> Comparison:
    return compare(plain[1], take(url, CASES))


def test_the_same_server_twice_and_another_of_the_same_are_the_same(
    plain: tuple[str, Fingerprint], serve: Serve
) -> None:
    url, first = plain
    assert first.engine == "llama.cpp"
    assert [name for name, one in first.cases.items() if "offered" not in one.states] == []
    assert first.cases["schema-enum"].values("form", "object") == ["fits"] * 2
    assert first.cases["grammar-digits"].values("form", "text") == ["fits"] * 2
    assert first.cases["too-long"].values("form", "error") == ["exceed_context_size_error"] * 2
    assert sum(bool(one.answers[0].tokens) for one in first.cases.values()) >= 15
    for found in (against(plain, url), against(plain, serve("--chat-template", CHATML))):
        assert found.same, found.changes
        assert found.words().startswith("same tools, of which none was called; same schemas; same ")


def test_another_chat_template_is_named(plain: tuple[str, Fingerprint], serve: Serve) -> None:
    found = against(plain, serve("--chat-template", BARE))
    assert "chat template of props" in found.words()
    assert found.cases("protocol", "form")[0] == "props"
    # those are asked without the template
    assert not [name for name in found.differing if name.startswith("plain-")]
    assert {"haiku", "conversation"} <= {*found.differing}
    [row] = [one for one in found.changes if one.case == "haiku"]
    assert row.before.startswith("token ")
    assert "(p 0." in row.before


def test_without_jinja_tools_are_dropped(plain: tuple[str, Fingerprint], serve: Serve) -> None:
    found = against(plain, serve("--chat-template", CHATML, "--no-jinja"))
    assert found.words().startswith("tools dropped; ")
    assert found.metrics()["tools_changed"] == (7, 7)
    [row] = [one for one in found.changes if one.case == "tool-required"]
    assert "--jinja" in row.after


def test_another_quantization_has_other_words_and_the_same_form(
    plain: tuple[str, Fingerprint], serve: Serve, model: Path
) -> None:
    quantized(model, small := model.with_name("small.bin"))
    assert small.stat().st_size < model.stat().st_size
    found = against(plain, serve("--chat-template", CHATML, of=small))
    assert found.formed("tools") == []
    assert found.formed("protocol") == []
    assert {name for name in found.differing if name.startswith("plain-")}
    share, _ = found.metrics()["answers_differ"]
    assert share is not None
    assert 0 < share < 1
    assert f"{len(found.differing)} of {found.worded} answers differ" in found.words()


def test_the_command_ends_with_its_exit_code(
    plain: tuple[str, Fingerprint], serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = str(tmp_path / "kept.json")
    assert main(["check", "contract", plain[0], "--save", kept]) == 0
    assert main(["check", "contract", plain[0], "--against", kept]) == 0
    assert main(["check", "contract", serve("--chat-template", BARE), "--against", kept]) == 3
    assert "props" in capsys.readouterr().out
