"""Options of engines by their exact names: llama.cpp's `-ngl` is no `-n gl`, as argparse has it."""

from __future__ import annotations

from collections.abc import Sequence


def value(arguments: Sequence[str], *names: str, default: str = "") -> str:
    """The last value given under any of these names, as `-x V` or `--x=V`."""
    found = default
    for number, one in enumerate(arguments):
        name, sign, inline = one.partition("=")
        if name in names:
            found = inline if sign else "".join(arguments[number + 1 : number + 2])
    return found
