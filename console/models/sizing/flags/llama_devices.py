"""Names of devices and buffers, and patterns of tensors, as llama-server's start takes them.

Each rule was seen in b11669 with no device and with two; ik_llama.cpp's are those of its source.
"""

from __future__ import annotations

import re

from console.common.text import one_line
from console.models.sizing.flags.reading import Reading

CARDS = ("CUDA", "ROCM", "MUSA")
"""Backends whose devices are the cards of this machine, in their order; others count their own."""
MAX_SPLIT = 15
"""Entries of --tensor-split that a build for up to 16 devices takes."""
_NAME = re.compile(r"([A-Za-z]+)(\d{1,3})")
_GROUP = re.compile(r"\(\?(?![:=!])")
_OTHER_MEANING = re.compile(r"\[\[[:.=]|[*+?}]\+|\\[a-zA-Z](?<![\\][bBdDsSwWnrtfv])")
"""Where a pattern means one thing to C++ and another one here."""
_BROKEN = ("nothing to repeat", "unterminated", "unbalanced", "bad character range", "missing )",
           "invalid group reference")  # fmt: skip


def devices(reading: Reading, flag: str, value: str) -> None:
    """--device: names by a comma, without blanks, or `none` alone."""
    if value == "none":
        reading.got["devices"] = ()
        return
    numbers: list[int] = []
    for name in value.split(","):
        match = _NAME.fullmatch(name)
        if match is None and name.isalpha() and name.upper() not in ("CPU", "NONE", *CARDS):
            reading.uncounted.append(f"{flag} {one_line(name, 40)}")
        elif match is None:
            reading.refuse_value(flag, name, "a device of --list-devices, like CUDA0")
        else:
            numbers.append(int(match[2]))
            _other_backend(reading, flag, match[1], name)
    if len(set(numbers)) < len(numbers):
        reading.uncounted.append(f"{flag} {one_line(value, 60)}, which names one twice")
    reading.got["devices"] = tuple(dict.fromkeys(numbers))


def ik_devices(reading: Reading, flag: str, value: str) -> None:
    """The same of ik_llama.cpp, which leaves out what it does not find."""
    if "-" in value:
        reading.refuse_value(flag, value, "names of devices, like CUDA0")
        return
    names = [_NAME.fullmatch(name) for name in value.split(",")]
    reading.got["devices"] = tuple(dict.fromkeys(int(name[2]) for name in names if name))
    gone = [name for name in value.split(",") if _NAME.fullmatch(name) is None]
    if gone:
        words = one_line(", ".join(gone), 60)
        reading.notes.append(f"{flag} {words}: no device, and ik_llama.cpp leaves it out")


def _other_backend(reading: Reading, flag: str, family: str, name: str) -> None:
    if family.upper() not in CARDS:
        reading.notes.append(f"{flag} {name}: counted as the card of that number")


def override(reading: Reading, flag: str, value: str) -> None:
    """--override-tensor: PATTERN=BUFFER by a comma; the name of a buffer is taken as it stands."""
    for assignment in value.split(","):
        pattern, mark, buffer = assignment.partition("=")
        if not mark:
            reading.refuse_value(
                flag, assignment, "PATTERN=BUFFER, like exps=CPU (a comma parts two)"
            )
        elif buffer == "CPU" or _NAME.fullmatch(buffer):
            _pattern(reading, flag, pattern, buffer)
        elif buffer.isalpha() and buffer.upper() not in ("CPU", *CARDS):
            reading.uncounted.append(f"{flag} {one_line(assignment, 60)}")
        else:
            reading.refuse_value(flag, assignment, "a buffer that the build has, like CPU or CUDA0")


def _pattern(reading: Reading, flag: str, pattern: str, buffer: str) -> None:
    """A pattern that the loader's regular expressions (C++) and ours read alike."""
    error = "(?...) is not known there" if _GROUP.search(pattern) else ""
    differs = _OTHER_MEANING.search(pattern) is not None
    try:
        re.compile("" if differs else pattern)
    except re.error as failure:
        error = error or failure.msg
    if error.startswith(("(?", *_BROKEN)):
        reading.refuse_value(flag, pattern, f"a regular expression: {error}")
    elif error or differs:
        reading.problem(flag, pattern, "a pattern that means the same to C++ and here")
    else:
        reading.overrides.append((pattern, buffer))


_BEGUN = re.compile(r"\s*[+-]?(\d|\.\d|inf|nan)", re.IGNORECASE)
"""What begins like a number."""


def split(reading: Reading, flag: str, value: str) -> None:
    """--tensor-split: proportions; nothing but zeros is as if it were not there.

    The server takes the number at the beginning of each part, and an end without one.
    """
    words = re.split(r"[,/]+", re.sub(r"(?<=.)[,/]+$", "", value))
    try:
        parts = tuple(float(part) for part in words)
    except ValueError:
        begun = all(_BEGUN.match(part) for part in words)
        report = reading.problem if begun else reading.refuse_value
        report(flag, value, "proportions like 75,25")
        return
    if len(parts) > MAX_SPLIT:
        reading.refuse_value(flag, value, f"at most {MAX_SPLIT} proportions")
    elif not all(0 <= part < 1e9 for part in parts):
        reading.problem(flag, value, "proportions like 75,25")
    else:
        reading.got["tensor_split"] = parts if any(parts) else ()
