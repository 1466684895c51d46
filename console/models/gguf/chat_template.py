"""Whether a chat template can be read as Jinja at all: its tags end, its brackets and blocks pair.

llama.cpp's server parses the template of a file at its start and ends if it cannot. This looks at
the outer form only: what passes here may still be refused.
"""

from __future__ import annotations

import re

TEMPLATE = "tokenizer.chat_template"
BLOCKS = frozenset({"if", "for", "macro", "set", "call", "filter", "generation"})
ALONE = frozenset({"break", "continue"})
BRANCHES = {"elif": ("if",), "else": ("if", "for")}
NEEDS = frozenset({"if", "elif", "for", "macro", "set", "filter"})
"""Statements that say nothing by themselves."""
CLOSERS = {")": "(", "]": "[", "}": "{"}
SHOWN = 40
_BEGIN = re.compile(r"\{[%{#]")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_WORD = re.compile(r"\s*([A-Za-z_]*)\s*")


class _Fault(Exception):
    """Why it is no template."""


def fault(template: str) -> str:
    """Why a template cannot be read; empty if nothing speaks against it."""
    blocks: list[str] = []
    at = 0
    try:
        while (begin := _BEGIN.search(template, at)) is not None:
            if begin[0] == "{#":
                at = _comment_end(template, begin.end())
                continue
            code, at = _tag(template, begin.end(), "}}" if begin[0] == "{{" else "%}")
            if begin[0] == "{%":
                _statement(code, blocks)
            elif not code:
                raise _Fault("an expression is empty")
    except _Fault as error:
        return str(error)
    return f"the block {blocks[-1]} does not end" if blocks else ""


def _comment_end(template: str, at: int) -> int:
    end = template.find("#}", at)
    if end < 0:
        raise _Fault("a comment does not end")
    return end + 2


def _tag(template: str, at: int, closer: str) -> tuple[str, int]:
    """The code of a tag, its strings and what stands in brackets left out but for a mark, and where
    the tag ends."""
    start = at
    open_: list[str] = []
    code: list[str] = []
    while at < len(template):
        sign = template[at]
        if not open_ and template.startswith(closer, at):
            return "".join(code).strip("-+ \t\r\n"), at + 2
        if sign in "'\"":
            string = _STRING.match(template, at)
            if string is None:
                break
            at = string.end()
            sign = "_"
        else:
            at += 1
        if sign in "([{":
            open_.append(sign)
        elif sign in CLOSERS and (not open_ or open_.pop() != CLOSERS[sign]):
            raise _Fault(f"a {sign} closes nothing in {_shown(template, start)}")
        if not open_ or (len(open_) == 1 and sign == open_[-1]):
            code.append(sign)
    raise _Fault(f"a tag does not end: {_shown(template, start)}")


def _statement(code: str, blocks: list[str]) -> None:
    """Follow one statement; `blocks` are those that have not ended."""
    word = _WORD.match(code)
    name = word[1] if word else ""
    rest = code[word.end() :] if word else ""
    if name in NEEDS and not rest:
        raise _Fault(f"{name} says nothing")
    if name == "for" and not re.search(r"\sin\b\s*\S", f" {rest}"):
        raise _Fault("for names no list")
    if name in BLOCKS:
        if name != "set" or "=" not in rest:
            blocks.append(name)
    elif name.startswith("end") and name[3:] in BLOCKS:
        if not blocks or blocks.pop() != name[3:]:
            raise _Fault(f"{name} ends no block")
    elif name in BRANCHES:
        if not blocks or blocks[-1] not in BRANCHES[name]:
            raise _Fault(f"{name} is in no block")
    elif name not in ALONE:
        raise _Fault(f"unknown statement: {name or code[:SHOWN]}")


def _shown(template: str, start: int) -> str:
    return template[start : start + SHOWN]
