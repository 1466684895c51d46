"""A line as a reader takes it: without what is not seen in it, or only by a terminal.

The name of a secret may be broken by colours, a zero-width space, a backspace or a carriage return,
or be written in full-width letters or in the escapes of a URL. What marks a secret is looked for in
the bare line, too.
"""

from __future__ import annotations

import re

from console.common.patterns import lazy

_CSI = r"[0-?]*[ -/]*[@-~]?"
_STRING = r"[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
# OSC, DCS, SOS, PM and APC have a payload that runs to BEL or ST; then two-byte escapes, and a
# lone ESC. Each way begins with one letter: `re` then looks for those few at full speed.
ESCAPES = re.compile(
    rf"\x1b(?:\[{_CSI}|[\]PX^_]{_STRING}|[ -/]*[0-~]?)|\x9b{_CSI}"
    rf"|\x90{_STRING}|\x98{_STRING}|\x9d{_STRING}|\x9e{_STRING}|\x9f{_STRING}"
)
_UNSEEN = (
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u0300-\u036f\u061c\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\ufffd\U000e0000-\U000e007f]"
)
"""Controls, marks and what stands for them in a text that was made harmless."""
_ODD = lazy(rf"{ESCAPES.pattern}|{_UNSEEN}|[\uff01-\uff5e]|%5[fF]|%2[dD]")
_WRITTEN = {"%5f": "_", "%2d": "-"}
_WIDE = 0xFF01 - ord("!")


def bare(line: str) -> tuple[str, list[int]] | None:
    """The line as it is read, and where each of its characters, and then its end, stands in the
    line itself; None if that is the line itself."""
    if line.isascii() and line.isprintable() and "%5" not in line and "%2" not in line:
        return None
    out, places, at = list[str](), list[int](), 0
    for odd in _ODD.finditer(line):
        out.append(line[at : odd.start()])
        places += range(at, odd.start())
        at = odd.end()
        letter = _WRITTEN.get(odd[0].lower(), "")
        if "\uff01" <= odd[0] <= "\uff5e":
            letter = chr(ord(odd[0]) - _WIDE)
        out.append(letter)
        places += [odd.start()] * len(letter)
    if not at:
        return None
    return "".join((*out, line[at:])), [*places, *range(at, len(line) + 1)]
