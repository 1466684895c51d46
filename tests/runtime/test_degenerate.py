"""Weak signs that an answer falls apart: what a real model of a wrong setting said, and what else
looks a little like it."""

import pytest

from console.runtime.answers.degenerate import (
    MIN_SIGNS,
    Sign,
    broken,
    echoes,
    signs,
    telling,
    together,
)
from tests.runtime.test_sanity import BEGINNINGS, ENDED, LONG_SANE, SANE

S = Sign
NONSENSE = {
    "The 11111111111111111111111111111111111111111 1": {S.DIGIT},
    "[111111111111111111111 A\n\n\n\n\n\n\n\n\n": {S.DIGIT, S.LINE_ENDS},
    '"""  building \n\n\n The Youc Youc Youc Youc Youc Youc Youc': {S.WORD},
    "Youself_self_self_self_self_self_\n\n\n\n\n\n\nHH H H": {S.PIECE, S.LINE_ENDS},
    "You are. the wishek\n1111111111111111 A\n\n\n\n\n\n\n building\n A-----------------,,,---": {
        S.DIGIT, S.LINE_ENDS, S.RULE,
    },
    "in a list of the most common item " * 3 + "in a list": {S.PHRASE},
    "I_ A-The1___ wis_ A\n_-_-_-_-\n A--------------": {S.UNDERSCORES, S.RULE},
    "\n\n\n\n\n\n\n\n\n\n\n\n building and the": {S.LINE_ENDS},
    "The HHHHHHHHHHHHHHHHHH it": {S.CHARACTER},
}  # fmt: skip

PROGRAM = """class A:
    def __init__(self, _x, *, my_value_=0):
        self._x = _x
        for _ in range(3): _do(_x)
        # ---------------------------
"""
ODD_BUT_SANE = [
    "3.14159265358979323846264338327950288419716939937510582097494459", "1" + "0" * 30,
    "01000001 01000010 00000000 11111111", "ATGAAAAAAAAAAAAAAAACGTAGCGGGGGGGGGGGGGGTTT",
    "00000000  7f 45 4c 46 02 01 01 00  |.ELF....|\n00000010  03 00 3e 00 01 00 00 00", PROGRAM,
    "+--------+\n|  /\\_/\\ |\n| ( o.o )|\n|  > ^ < |\n+--------+", "  _____\n /     \\\n| () () |",
    "| Name | N |\n|:--------|--------:|\n| Mercury | 4879 |",
    " id | name\n----+----------\n 1 | Ann",
    "hahahahahahahahaha, ㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋ", "Nooooooooooooooo! Aaaaaaaaaaaaaargh!",
    "La la la la la la,\nLa la la, I love you more every day.", "Na na na na na na na, hey Jude",
    "Merrily, merrily, merrily, merrily,\nLife is but a dream.", "x += 1\n" * 6 + "print(x)\n",
    '{"a": null, "b_c": null, "users": [null, null, null, null, null, null]}',
    ", ".join(map(str, range(1, 61))), "😀" * 12, "Dear Sir,\n\n\n\nYours,\nAnn",
    "echo hello\n" * 10,
    "สวัสดีครับ กรุงเทพมหานครเป็นเมืองหลวง",
    "北京是中华人民共和国的首都,有着三千多年的历史。",
    "باريس هي عاصمة فرنسا",
    "Name: ____________\nSignature:______________", "# Part ---------\n\n==========\n\n(-_-)",
    "let _ = f(); match x { Some(_) => 1, _ => 0 }", "$a_1 + a_{n} = \\sum_{i=1} x_i$, _i_",
    "model.layers.0.self_attn.q_proj.weight model.layers.0.self_attn.k_proj.weight",
]  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE)
def test_each_way_in_which_an_answer_falls_apart_is_a_sign(text: str) -> None:
    assert signs(text) == NONSENSE[text]


@pytest.mark.parametrize("text", [*ODD_BUT_SANE, *SANE, *ENDED, *BEGINNINGS, *LONG_SANE])
def test_an_odd_answer_has_no_sign_that_tells(text: str) -> None:
    found = signs(text)
    assert not telling(found)
    assert not broken(found)


def test_many_signs_break_an_answer_by_themselves() -> None:
    several = frozenset({S.DIGIT, S.LINE_ENDS, S.RULE})
    assert len(several) == MIN_SIGNS
    assert broken(several)
    assert not broken(several - {S.DIGIT})
    assert not broken(frozenset({S.WORD, S.PIECE, S.PHRASE})), "a song"


def test_a_question_is_no_answer_to_itself() -> None:
    prompt = "[36caed3dfdc0b44e] What is the capital of France?"
    assert echoes(prompt, prompt)
    assert echoes("The capital of France?", prompt)
    for answer in ("Paris", "The capital of France is Paris.", "France?", "Of what country?"):
        assert not echoes(answer, prompt)
    assert not echoes("Are you ready now?", "Say: are you ready now?!"), "asked to be said"


@pytest.mark.parametrize("text", ["a" * 400_000, "ab" * 200_000, "_" * 400_000, "a_ " * 99_999])
def test_a_long_hostile_text_takes_no_time(text: str) -> None:
    assert not broken(signs(text + "x"))


def test_answers_are_garbled_together_by_two_kinds_of_signs_that_no_prompt_asks_for() -> None:
    ends, more = frozenset({S.LINE_ENDS}), frozenset({S.LINE_ENDS, S.WORD})
    assert together([ends, more])
    assert together([ends, frozenset({S.RULE})])
    assert not together([ends, ends])
    assert not together([more, frozenset(), frozenset({S.WORD, S.DIGIT})])
