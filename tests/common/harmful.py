"""What a terminal or a reader could be tricked with."""

import unicodedata

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
INVISIBLE = "\u200b\u2028\u2029\u2060\ufeff"


def harmful(text: str) -> list[str]:
    """The control, bidi, invisible and tag characters and half surrogate pairs in a text."""
    return [
        c
        for c in text
        if unicodedata.category(c) in ("Cc", "Cs")
        or c in BIDI + INVISIBLE
        or 0xE0000 <= ord(c) <= 0xE007F
    ]
