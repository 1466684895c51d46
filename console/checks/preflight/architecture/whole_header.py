"""Whether the operator's own build takes the keys and tensors of a file, before the download.

Its loader is given the file's header, a hole as long as the tensors, and one tensor that no model
has. It reads the keys, looks every tensor up and compares its shape, and ends with the count of the
tensors before it reserves anything: so the first thing that it would refuse in the real file is
what it says, and a file without fault ends with one tensor too many. The vocabulary is left out; it
is asked for by itself (`vocabulary`).
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Sequence
from dataclasses import replace

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture import names, vocabulary
from console.checks.preflight.architecture.in_image import ImageBuild
from console.checks.preflight.architecture.names import LoaderAnswer
from console.checks.preflight.architecture.on_host import HostProgram
from console.checks.preflight.architecture.support import Engine, called
from console.checks.preflight.header import TITLE, findings_of
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.models.gguf.header import Array, Header, Tensor
from console.models.gguf.skeleton import skeleton
from console.models.loader import likeness
from console.models.loader.complaints import of_gating, of_names, of_scaling, of_vocabulary
from console.models.loader.serving import of_whole
from console.models.loader.tables import complaints

SPARE = Tensor("omni.spare.weight", (32,), 0, "F32", 128)
_COUNT = re.compile(r"wrong number of tensors; expected (\d+), got (\d+)")
_KEY = re.compile(r"key not found in model: (\S+)")
_REFUSED = re.compile(
    r"key not found in model|missing tensor|tensor '.*' not found|has wrong shape|invalid n_rot"
    r"|missing .* tensor|duplicated tensor"
)
"""What a loader says of keys and tensors. Whatever else it says may come from what the header that
it is given lacks of the real one: the vocabulary, lists of words, the widths of numbers."""
_ASSERTED = re.compile(r"GGML_ASSERT\(.*\) failed")


def ask_loader(
    header: Header, engine: object, cancelled: threading.Event | None = None
) -> LoaderAnswer:
    """The loader's answer on a whole header; None if it is no program of this machine or in an
    image with a shell, or its words say neither. Raises Cancelled."""
    if not isinstance(engine, HostProgram | ImageBuild) or not header.tensors:
        return LoaderAnswer(None)
    tensors = (*header.tensors, SPARE)
    try:
        head, size = skeleton(replace(header, tensors=tensors, tensor_count=len(tensors)))
        answer = LoaderAnswer(None)
        for _ in range(2):  # its log may come too late: see `support`
            answer = read(engine.load(head, cancelled=cancelled, size=size), header)
            if answer.accepted is not None:
                break
    except (ConsoleError, OSError, ValueError, OverflowError, struct.error) as error:
        return LoaderAnswer(None, one_line(str(error)))
    return answer


def read(lines: Sequence[str], header: Header) -> LoaderAnswer:
    """What a program's output says of a header with a spare tensor."""
    due = len(header.tensors or ())
    for line in lines:
        words = one_line(line, names.LINE)
        if counts := _COUNT.search(words):
            return _counted(due, int(counts[1]) - 1, int(counts[2]))
        if asserted := _ASSERTED.search(words):
            return LoaderAnswer(None if _left_out(header) else False, asserted[0])
        if names.FAILED not in words:
            continue
        failure = words[words.index(names.FAILED) :]
        key = _KEY.search(failure)
        if key and key[1] in header.kv:
            return LoaderAnswer(None, failure)  # it was left out of the header that was given
        if _REFUSED.search(failure):
            return LoaderAnswer(False, failure)
    return LoaderAnswer(None)


def _left_out(header: Header) -> bool:
    """Whether the header that was given lacks a list of the architecture's own."""
    prefix = f"{header.architecture}."
    return any(
        key.startswith(prefix) and isinstance(value, Array) and value.values is None
        for key, value in header.kv.items()
    )


def _counted(due: int, have: int, used: int) -> LoaderAnswer:
    if have != due:
        return LoaderAnswer(None)
    if used == have:
        return LoaderAnswer(True)
    return LoaderAnswer(False, f"wrong number of tensors; expected {have}, got {used}")


def findings(
    engine: Engine, header: Header, *, sure: bool = True, always: bool = False,
    cancelled: threading.Event | None = None,
) -> list[Finding]:  # fmt: skip
    """What a build says of a whole header, and what is known without it where it does not say.
    `sure`: this build loads the file, and not another one that the question is about. `always`: its
    tokenizer is asked for even if every build has it. Raises Cancelled."""
    named = vocabulary.findings(engine, header, sure=sure, always=always, cancelled=cancelled)
    answer = ask_loader(header, engine, cancelled)
    left = [*of_vocabulary(header), *of_gating(header), *of_whole(header)]
    left += likeness.of_types(header)
    if not named:
        left += of_names(header)
    if answer.accepted is None or not sure:
        left += [*complaints(header), *of_scaling(header), *likeness.complaints(header)]
    return [*findings_of(left), *named, *_refused(answer, engine, sure=sure)]


def _refused(answer: LoaderAnswer, engine: Engine, *, sure: bool) -> list[Finding]:
    """A refusal in words; one of a build that may not be meant is no verdict."""
    if answer.accepted is not False:
        return []
    words = f"{called(engine)} refuses its keys and tensors: {answer.line}"
    if sure:
        hint = "take another copy or conversion of the model, or a build that it was made for"
        return [Finding(Level.FAIL, TITLE, words, hint)]
    hint = "is this the build that is to load it? `check gguf` asks another one"
    return [Finding(Level.UNKNOWN, TITLE, words, hint)]
