"""Secrets that stand side by side with their name, in sentences, and behind odd signs."""

import pytest

from console.common import redact


@pytest.mark.parametrize(
    "line",
    [
        "('authorization', 'Basic {}')", "[(b'x-api-key', b'{}')]",
        '("Authorization", "Bearer {}")',
        "Headers([('host', 'x'), ('x-auth-token', '{}')])", "(b'cookie', b'session={}; a=b')",
        '{{"name": "API_KEY", "value": "{}"}}', '{{"key":"api_key","value":"{}"}}',
        '"password": {{"value": "{}"}}', 'headers=[["X-Api-Key", "{}"]]',
    ],
)  # fmt: skip
def test_a_value_side_by_side_with_its_name_is_hidden(line: str) -> None:
    assert "k8sJ7dh2Ks9dkL" not in redact.text(line.format("k8sJ7dh2Ks9dkL"))


@pytest.mark.parametrize(
    "line",
    [
        '["token", "count"]', "('content-type', 'application/json')", '("auth", "none")',
        '{"name": "tokens", "value": "4096"}', "('host', '127.0.0.1:8000')",
        '"api_key", "not given"', '["key", "value"]',
    ],
)  # fmt: skip
def test_words_side_by_side_stay(line: str) -> None:
    assert redact.text(line) == line


def test_data_hides_values_side_by_side_with_their_names() -> None:
    secret = "k8sJ7dh2Ks9dkL"
    told = {"headers": [["x-api-key", secret], ("Authorization", f"Basic {secret}")],
            "env": [{"name": "HF_TOKEN", "value": secret}]}  # fmt: skip
    assert secret not in str(redact.data(told))
    plain = {"rows": [["token", "count"], ["key", "value"]], "env": [{"name": "A", "value": "b"}]}
    assert redact.data(plain) == plain


def test_the_token_in_a_bots_address_is_hidden() -> None:
    token = "123456789:AAEabcdefghijklmnopqrstuvwxyz123456"
    assert token not in redact.text(f"POST https://api.telegram.org/bot{token}/sendMessage 401")


@pytest.mark.parametrize(
    "line",
    [
        "Incorrect API key provided: {}. You can find", "the token is {}", "api_key was: '{}'",
        "GET /v1?api_key%3D{}&x=1", "pw={}", "ADMIN_PW={}", "ipmitool -U u -P {} chassis",
        "setx OPENAI_API_KEY {}", "nmcli dev wifi connect X password {}", "setenv HF_TOKEN {}",
    ],
)  # fmt: skip
def test_a_secret_in_a_sentence_or_behind_an_odd_sign_is_hidden(line: str) -> None:
    assert "hunter22kJ8" not in redact.text(line.format("hunter22kJ8"))


@pytest.mark.parametrize(
    "line",
    [
        "the password is required", "API key: required", "number of tokens: 4096", "a key is lost",
        "token: 151645 '<|im_end|>'", "EOS token = 151645 '<|im_end|>'", "the token is 0x7f3c21",
        "token is invalid", "secret is kept", "key is layer0.weight", "set token abc",
    ],
)  # fmt: skip
def test_sentences_that_tell_no_secret_stay(line: str) -> None:
    assert redact.text(line) == line


@pytest.mark.parametrize(
    "start", ["dckr_pat_", "glrt-", "xai-", "sk_live_", "rk_live_", "whsec_", "pplx-", "tvly-"]
)
def test_tokens_of_more_services_are_known_by_their_form(start: str) -> None:
    assert redact.text(f"got {start}aB3dE5fG7hI9jK1lM3 back") == "got ***** back"


@pytest.mark.parametrize(
    "line",
    [
        "status 500, denied for Basic aHVudGVyMjI6aHVudGVyMjI=", "basic aHVudGVyMjI6aHVudGVyMjI=",
        "POST https://outlook.office.com/webhook/aHVudGVyMjI6aHVudGVyMjI@x/IncomingWebhook/y",
        "access_token%22%3A%22aHVudGVyMjI6aHVudGVyMjI", "a=$apr1$salt$aHVudGVyMjI6aHVudGVyMjI",
        "--header=Authorization:\\ Bearer\\ aHVudGVyMjI6aHVudGVyMjI",
        'Authorization: Digest username="u", nonce="n", response="aHVudGVyMjI6aHVudGVyMjI"',
    ],
)  # fmt: skip
def test_a_secret_known_by_its_form_is_hidden(line: str) -> None:
    assert "aHVudGVyMjI6aHVudGVyMjI" not in redact.text(line)


@pytest.mark.parametrize(
    "line",
    [
        "basic authentication failed", "Basic realm=models", "see /webhook/status",
        "basic Zm9vYmFy",
        "it costs $2.50 and $1.00", "a prompt of 12 tokens%3 of all",
    ],
)  # fmt: skip
def test_what_only_looks_like_such_a_form_stays(line: str) -> None:
    assert redact.text(line) == line
