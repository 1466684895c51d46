"""What a broken engine makes of an answer, as people report it, and odd answers that are sane."""

from __future__ import annotations

import pytest

from console.runtime.answers.sanity import Kind, judge, parted

GARBAGE = {
    "newlines": ("\n" * 16, Kind.BLANK),
    "blanks": (" " * 16, Kind.BLANK),
    "characters that show nothing": ("\u200b\u2800" * 8, Kind.BLANK),
    "nothing": ("", Kind.EMPTY),
    "replacement characters": ("\ufffd" * 8, Kind.REPLACEMENT),
    "bytes that are no text": ("\x00\x01" * 8, Kind.REPLACEMENT),
    "half of it replacement characters": ("a\ufffd\ufffdb\ufffd é\ufffd", Kind.REPLACEMENT),
    "G, as of llama.cpp with -sm row": ("GGGGGGGG", Kind.CHARACTER),
    "!, as of a GPTQ model under vLLM": ("!!!!!!!!", Kind.CHARACTER),
    "@": ("@@@@@@@@", Kind.CHARACTER),
    "?": ("????????", Kind.CHARACTER),
    "zeroes": ("00000000", Kind.CHARACTER),
    "parted by blanks": (". . . . . . . .", Kind.CHARACTER),
    "the end of a turn": ("assistant\n" * 8, Kind.WORD),
    "the end of a turn, glued": ("assistantassistantassistantassistant", Kind.WORD),
    "one word": ("the the the the the the the", Kind.WORD),
    "symbols": ("*&^%$#@!*&^%", Kind.SYMBOLS),
    "unknown tokens": ("<unk><unk><unk><unk>", Kind.SPECIAL),
    "padding": ("[PAD][PAD][PAD][PAD]", Kind.SPECIAL),
    "padding with its number": ("[PAD151645][PAD151646]", Kind.SPECIAL),
    "ends of a text": ("<|endoftext|><|im_end|>\n<|im_start|>", Kind.SPECIAL),
    "tokens of bytes": ("<0x0A><0x0A><0x0A>", Kind.SPECIAL),
    "ends of reasoning": ("</think></think></think>", Kind.SPECIAL),
    "beginnings of reasoning": ("<think><think><think><think>", Kind.SPECIAL),
    "unused tokens": ("<unused49><unused7>", Kind.SPECIAL),
    "two words": ("nothing here " * 16, Kind.LOOP),
    "marks after a sane beginning": ("You should search" + ".,..,.,,,,. .,.,,.," * 3, Kind.TAIL),
    "one mark after a sane beginning": ("I am ready" + "!" * 50, Kind.TAIL),
    "one letter after a sane beginning": ("I am ready. " + "G" * 50, Kind.TAIL),
    "one word by sampling": ("the " * 30 + "of " + "the " * 20 + "cat the", Kind.WORD),
    "one word by sampling, in lines": ("says says says\n" * 20 + "so says says", Kind.WORD),
    "one mark by sampling": ("!" * 30 + " a" + "!" * 30 + "?!", Kind.CHARACTER),
    "one letter by sampling": ("G" * 30 + "H" + "G" * 40, Kind.CHARACTER),
    "a mark and the end": ("@@@@@@@ " * 6 + "x@@@@", Kind.CHARACTER),
    "blanks that it thought": ("<think>\n\n\n\n\n\n\n\n", Kind.BLANK),
}  # fmt: skip

SANE = [
    "Ja.", "42", "OK", "👍", "👍👍👍", "🎉🎊✨🥳", "🇩🇪", "1️⃣", "👩‍👩‍👧‍👦", "¯\\_(ツ)_/¯", "→ ready",
    '{"ready": true}', "[]", "{}", "[[], {}, (), [[]]]", '```python\nprint("ready")\n```',
    "**Yes**", "---\n# Ready", "| a | b |\n|---|---|\n| 1 | 2 |", "$$E=mc^2$$", "https://example.com",
    "我准备好了。", "はい、準備ができています。", "أنا جاهز", "मैं तैयार हूँ", "ฉันพร้อมแล้ว", "אני מוכן",
    "준비되었습니다.", "Я готов.", "Είμαι έτοιμος", "Tôi đã sẵn sàng", "哈哈哈哈哈",
    "I'm sorry, but I can't help with that.", "3.14159265358979323846", "1000000000", "0xFFFFFFFF",
    "11.11.11.11", "1 2 3 4 5 6 7 8", "Hmmm", "Yes!!!", "?", "...", "…", "hahaha", "blah blah blah",
    "ACGTACGTACGTTAGC", "01001000 01101001", ".-. . .- -.. -.-- / .. / .- --", "&&", "}", "λ",
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo", "<p>Ready</p>",
    "<think>\nOkay, the user", "<think>\n\n</think>\n\nYes.", "$?", "^\\s*$", "no", "C++", "e",
    "# Title\n" + "=" * 60, "Contents " + "." * 60 + " 7", "1" + "0" * 40, "Tyger Tyger, burning",
    "++++++++[>++++[>++>+++>+++>+<<<<-]]", "<|channel|>analysis<|message|>The user wants",
]  # fmt: skip


OF_THE_CUT = {Kind.CHARACTER, Kind.WORD, Kind.SYMBOLS, Kind.LOOP, Kind.TAIL}
"""What may be an answer where it is short and ended by itself, as many a row of one thing does."""

ENDED = [
    "5555555555", "0000000000000000", "0 0 0 0\n" * 4, "1 1 1 1 1 1 1 1", "01" * 25, "0" * 64,
    "AT" * 26, "A" * 60, "ㅋㅋㅋㅋㅋㅋㅋㅋㅋ", "哈哈哈哈哈哈哈哈", "ha ha ha ha ha ha ha ha",
    "wwwwwwwwwwww",
    "yes yes yes yes yes yes", "____", "####", "€€€€", "-> => <- ", "∀∃∈∉⊂⊃∪∩", "+++\n---\n@@",
    "😂" * 16, "🎉🎊" * 30, "<br><br><br><br>", "\uf8e4\uf8d7\uf8dc", "-" * 80, "* * * * * * * *",
    "." * 100, "1" + "0" * 100, "No! " * 12, "→→→→→→→→", "& && || ! ^ ~ << >> != == <= >=",
    "I am a dog. " * 30, "Wait" + "!" * 40, "}\n" * 12, "tick tock " * 20,
]  # fmt: skip


@pytest.mark.parametrize("text", ENDED)
def test_what_ended_by_itself_may_repeat_itself(text: str) -> None:
    for tokens in (0, 1, 8, len(text)):
        assert judge(text, tokens=tokens, finish="stop") is None


ENDLESS = {
    "!": ("!" * 300, Kind.CHARACTER), "G": ("G" * 300, Kind.CHARACTER),
    "zeroes": ("0" * 300, Kind.CHARACTER), "words": ("the " * 80, Kind.WORD),
    "glued": ("assistant" * 80, Kind.WORD), "pairs": ("er" * 80, Kind.LOOP),
    "phrase": ("I am a dog. " * 80, Kind.LOOP), "emoji": ("🎉" * 80, Kind.CHARACTER),
    "tail": ("I am ready" + "!" * 70, Kind.TAIL), "symbols": ("*&^%$@" * 60, Kind.SYMBOLS),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_what_repeats_itself_often_enough_is_garbled_however_it_ended(name: str) -> None:
    text, kind = ENDLESS[name]
    for finish in ("stop", "length", ""):
        garbled = judge(text, tokens=80, finish=finish)
        assert garbled is not None
        assert (garbled.kind, garbled.weak) == (kind, False)


CUT = {
    "er": ("er" * 8, 8, Kind.LOOP), "ab": ("ab" * 8, 8, Kind.LOOP),
    "two letters of mojibake": ("ÃÂ" * 8, 8, Kind.LOOP), "()": ("()" * 6, 8, Kind.LOOP),
    "[]": ("[]" * 20, 20, Kind.LOOP), "©": ("©" * 10, 8, Kind.CHARACTER),
    "a mark and a digit": ("A" + ":1" * 15, 32, Kind.LOOP),
    "two words": ("so it " * 7, 12, Kind.LOOP), "emoji": ("🎉" * 15, 15, Kind.CHARACTER),
    "words, then line ends": ("Here is what I have to say. " + "\n" * 216, 256, Kind.BLANK_TAIL),
    "words, then blanks": ("I am ready. " + " " * 80, 64, Kind.BLANK_TAIL),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_one_thing_up_to_the_limit_is_garbled_although_it_is_short(name: str) -> None:
    text, tokens, kind = CUT[name]
    garbled = judge(text, tokens=tokens, finish="length")
    assert garbled is not None
    assert garbled.kind is kind
    assert judge(text, tokens=tokens, finish="stop") is None
    assert judge(text, tokens=tokens) is None, "as long as nobody knows how it ended"


BEGINNINGS = [
    "0.142857142857142857142857142857142857", "1/11 = 0.0909090909", "10000000000",
    "ACACACACACACAC",
    "0101010101010101", "def f():\n    return [\n" + " " * 40, "Yes.\n\n\n", "x = [[], [], [], []",
    "I am ready. I am ready.", "<p></p>\n<p></p>\n<p>",
]  # fmt: skip


@pytest.mark.parametrize("text", BEGINNINGS)
def test_what_was_cut_off_may_have_gone_on(text: str) -> None:
    assert judge(text, tokens=16, finish="length") is None


def test_few_symbols_and_one_token_without_a_text_are_weak_signs() -> None:
    for text, tokens in (("| | |\n|---|---|", 16), ("", 1), ("+++\n---\n@@", 8)):
        garbled = judge(text, tokens=tokens, finish="length")
        assert garbled is not None
        assert garbled.weak
    for text, tokens in (("*&^%$@" * 9, 64), ("", 16), ("!!!!!!!!", 8), ("\n" * 8, 8)):
        garbled = judge(text, tokens=tokens, finish="length")
        assert garbled is not None
        assert not garbled.weak


ROW = "0 " * 15
LONG_SANE = [
    "Here is the matrix:\n" + (ROW + "\n") * 8 + "1 " * 3, "0 " * 60 + "1", "7, " * 80 + "8",
    "id,ok,seen\n" + "".join(f"{n},no,no\n" for n in range(40)), "1" + "0" * 90 + "1",
    "O " * 45 + "B-PER I-PER O O", "true " * 50 + "false", "no no no " * 15 + "I said no, thanks",
    "positive\n" * 50 + "negative\npositive\npositive",
    "na " * 48 + "hey Jude",
    "ha " * 45 + "good",
    "}\n" * 40 + "else {\n" + "}\n" * 3, "[" * 40 + "0" + "]" * 40,
    "(" * 50 + "x" + ")" * 50,
    "# A " + "-" * 80 + " B " + "-" * 80,
    "Chapter 1 " + "." * 60 + " 7\nChapter 2 " + "." * 60 + " 9",
    "QUFB" + "A" * 80 + "gAAA" + "A" * 40 + "==",
    "AAAA" * 20 + "C" + "AAAA" * 9, "G" * 50 + "C" + "G" * 9,
    "0x" + "f" * 50 + "0" + "f" * 20, "G" + "o" * 80 + "l!",
    "MMMMMMMMMMMM\n" * 5 + "MMMNXXNMMMMM\nMM",
    "寻寻觅觅,冷冷清清,凄凄惨惨戚戚。乍暖还寒时候,最难将息。三杯两盏淡酒,怎敌他、晚来风急?",
    "大家好,哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈,今天天气真好,我们一起去公园玩吧。",
    "Over and over I say it, over and over; I say the same thing over, and over, and over. " * 3
    + "But now let me say moreover, because I grow older and bolder, and over it goes.",
    "Badger badger badger badger badger badger badger badger badger badger badger badger "
    "mushroom mushroom! " * 3 + "A snake, a snake, oh, it's a snake!",
]  # fmt: skip


@pytest.mark.parametrize("text", LONG_SANE)
def test_what_repeats_itself_with_a_meaning_is_sane(text: str) -> None:
    for finish in ("length", "stop", ""):
        assert judge(text, tokens=len(text) // 3, finish=finish) is None


HOSTILE = {
    "a letter": "a" * 400_000 + "b.", "dots": "." * 400_000 + "x", "pairs": "ab" * 200_000 + "c",
    "words": "a " * 200_000 + "bc d", "marks": "!" * 200_000 + "a" + "!" * 200_000,
    "openings": "<|" * 200_000, "lines": "\n" * 400_000 + "a",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_long_hostile_text_is_judged_in_as_many_steps_as_it_has_characters(name: str) -> None:
    """A search that begins anew at each character would not end while this suite runs."""
    text = HOSTILE[name]
    begins_alike = text[: len(text) // 4] + text[-2:]
    assert (judge(begins_alike, tokens=9) is None) == (judge(text, tokens=9) is None)


@pytest.mark.parametrize("name", GARBAGE)
def test_what_a_broken_engine_makes_of_an_answer(name: str) -> None:
    text, kind = GARBAGE[name]
    for finish in ("length", "") if kind in OF_THE_CUT else ("length", "stop", ""):
        garbled = judge(text, tokens=16, finish=finish)
        assert garbled is not None
        assert garbled.kind is kind
        assert garbled.words.isprintable()


@pytest.mark.parametrize("text", SANE)
def test_an_odd_answer_is_sane(text: str) -> None:
    for tokens in (0, 1, max(2, len(text) // 2)):
        assert judge(text, tokens=tokens, finish="length") is None
    assert judge(text, "The user wants an odd answer.", tokens=200, finish="length") is None


def test_reasoning_is_told_from_the_answer_behind_it() -> None:
    assert parted("<think>hm</think>Yes.") == ("Yes.", "hm")
    assert parted("\n<think>hm", "so ") == ("", "so hm")
    assert parted("I <think> so") == ("I <think> so", "")
    assert (
        judge("<think>The capital</think>Paris", tokens=8, finish="stop", expect="^Paris") is None
    )
    assert judge("<think>The capital", tokens=8, finish="length", expect="^Paris") is None


@pytest.mark.parametrize("text", ["GGGGGG", "!!!!!!!!", "the the the the the the", "????????"])
def test_where_a_sentence_was_asked_for_repetition_is_no_answer(text: str) -> None:
    assert judge(text, tokens=8, finish="stop") is None
    assert judge(text, tokens=8, finish="stop", sentence=True) is not None


@pytest.mark.parametrize("finish", ["length", "stop"])
@pytest.mark.parametrize(
    "text",
    [
        "ĠfooĠbarĠtheĠquxĠaĠzigĠblubĠfoo", "▁foo▁bar▁baz", "Hello</w>there</w>my</w>friend</w>",
        "TheĠcapitalĠofĠFranceĠisĠParis.", "Sure!ĊĊĠHereĠis", "ĠParisĠis", "HelloĠworldĊ",
        "æĪĳæĺ¯ä¸Ģä¸ª", "çļĦä¸Ģä¸ªäºº", "ÐŁÐ°ÑĢÐ¸Ð¶",
    ],
)  # fmt: skip
def test_the_marks_of_a_tokenizer_are_garbage_however_short(text: str, finish: str) -> None:
    garbled = judge(text, tokens=8, finish=finish)
    assert garbled is not None
    assert (garbled.kind, garbled.weak) == (Kind.RAW, False)


@pytest.mark.parametrize("finish", ["length", "stop"])
@pytest.mark.parametrize(
    "text",
    [
        "Il-belt ta' Malta hija l-Belt Valletta, Ġorġ u Ċensu.", "INĠENJERIJA FIĊ-ĊENTRU",
        "il-Ġimgħa u ż-Żejtun", "Ġgant", '["Hello", "Ġworld", "Ġhow", "Ġare"]', "▁▂▃▄▅▆▇",
        "as tokens: Hello Ġworld Ġhow", "<s><w>Paris</w><w>is</w></s>", "stół, półka i żółw",
        "Łódź, Kraków, Gdańsk", "Rīga ir Latvijas galvaspilsēta", "São João à ñandú, ¿qué?",
        "The mark Ġ stands for a blank, as in helloĠworld.", "Ñandú y ÑAÑA", "Žluťoučký kůň",
    ],
)  # fmt: skip
def test_letters_of_languages_and_talk_of_tokens_are_sane(text: str, finish: str) -> None:
    assert judge(text, tokens=8, finish=finish) is None
