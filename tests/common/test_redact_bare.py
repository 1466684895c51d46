"""Secrets whose name a reader sees whole, though the text has more between its letters, and what
stands around a secret."""

import pytest

from console.common import redact
from console.common.text import clean

VALUE = "CaNaRy1x2y3z4"


@pytest.mark.parametrize(
    "line",
    [
        f"API_KEY\u200b={VALUE}",
        f"api_k\bey={VALUE}",
        f"api_k\b\bey={VALUE}",
        f"api_key\r={VALUE}",
        f"api_key\0={VALUE}",
        f"\x1b[32mapi_\x1b[0mkey\x1b[0m=\x1b[31m{VALUE}",
        f"a\x7fp\u2060i_k\u00ade\ufeffy={VALUE}",
        f"a\u0300pi_key={VALUE}",
        f"ａｐｉ_ｋｅｙ＝{VALUE}",
        f"api%5Fkey={VALUE}",
        f"Auth\u200borization: Bearer {VALUE}",
        f"sk-\x1b[0m{VALUE}",
    ],
)
def test_a_name_that_is_broken_by_what_nobody_sees_marks_its_value(line: str) -> None:
    for shown in (redact.text(line), clean(line), redact.text(clean(line)), clean(clean(line))):
        assert redact.HIDDEN in shown
        assert VALUE[2:] not in shown


@pytest.mark.parametrize(
    "line",
    ["100%25 done, 5%2D more", "no secret\u200b here", "café, naïve, ＡＰＩ", "a\rb\x1b[0mc"],
)
def test_a_line_without_secrets_keeps_what_is_not_seen_in_it(line: str) -> None:
    assert redact.text(line) == line


@pytest.mark.parametrize("quotes", ["“”", "‘’", "«»"])
def test_the_quotation_around_a_secret_is_closed(quotes: str) -> None:
    opening, closing = quotes
    line = f"its log says {opening}boom api_key={VALUE}{closing} and ends"
    assert clean(line) == f"its log says {opening}boom api_key=*****{closing} and ends"


def test_a_secret_that_ends_in_such_a_mark_is_hidden_whole() -> None:
    assert clean(f"api_key={VALUE}”") == "api_key=*****"


@pytest.mark.parametrize(
    "line",
    [
        f'{{"Authorization":["Bearer","{VALUE}"]}}',
        f"token pypi-{VALUE}",
        f"pplx-{VALUE}",
        f'<meta name="api-key" content="{VALUE}">',
        f"traefik.http.middlewares.a.basicauth.users=admin:$apr1${VALUE}$x",
        f"traefik.http.middlewares.a.basicauth.users=admin:$$apr1$${VALUE}$$x",
        f'Digest username="bob", nonce="x", response="{VALUE}"',
        f"secret_key_base {VALUE}",
        f"cookie_secret {VALUE}",
        f"expected key '{VALUE}'",
        f"Key {VALUE} is not authorized",
        f"No api key passed in. got {VALUE}",
    ],
)
def test_more_forms_of_secrets_are_known(line: str) -> None:
    assert VALUE not in redact.text(line)
    assert redact.HIDDEN in redact.text(line)


@pytest.mark.parametrize(
    "line",
    [
        "pplx-70b-online-chat is served",
        "pypi-attestations-0.0.1-py3-none-any.whl",
        "expected key 'tokenizer_class'",
        "KeyError: expected key 'model.layers.0.self_attn.q_proj.weight'",
        "wrong key blk.0.attn_q.weight: F16",
        "Key 'rope_scaling' is not valid",
        "key llama.block_count is not valid",
        '<meta name="viewport" content="width=device-width">',
        '["Bearer", "is a scheme"]',
    ],
)
def test_ordinary_text_of_the_same_form_stays(line: str) -> None:
    assert redact.text(line) == line
