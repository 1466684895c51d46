"""Secrets that look like words and are told by their place in what servers write."""

import pytest

from console.common import redact

CANARIES = ("HALFMOONbay-3", "Teal-otter-7x", "quietRIVER_9", "mill-Pond-44-Geese")
PLACES = [
    # what engines, LiteLLM, gateways and proxies answer a wrong key with
    '{"status":"ok","token":"@"}', "{'status': 'ok', 'token': '@'}",
    '{"error":{"message":"not allowed","token":"@"}}', '{"detail": "no", "password": "@"}',
    '{"data":{"apiKey":"@"},"secret":"@"}', r'"body": "{\"token\":\"@\"}"',
    "Authentication Error, Invalid proxy server token passed. Received API Key = sk-...m31Q, "
    "Key Hash (Token) =@. Unable to find token in cache or `LiteLLM_VerificationTokenTable`",
    "Authentication Error, Invalid proxy server token passed. key=@ not found in db. Create key "
    "via `/key/generate` call.",
    "Invalid token @", "Invalid token: @", 'invalid token "@"',
    "401 Unauthorized: invalid api key @",
    "api key @ is invalid", "The API key @ is not valid", "secret @", "the secret @ was refused",
    "The token provided (@) is not valid", "token @ has expired", "token supplied: @",
    "incorrect passphrase '@'", 'passphrase "@"', "cookie session=@",
    # what they write into their logs
    "INFO 11-29 18:02:11 [api_server.py:1880] Using token: @", "Using token @", "rejected token @",
    "[warn] 7#7: *1 refused secret @ from 10.0.0.2",
]  # fmt: skip
STAY = [
    # llama.cpp, vLLM and SGLang about the tokens of a text
    '{"id":12366,"token":" Paris","bytes":[32,80],"logprob":-0.1}', '"token": "hello",',
    '{"token": 123, "prob": 0.5}', '{"tokens":["a","b"],"token_ids":[1,2]}',
    '{"eos_token": "</s>"}',
    '{"bos_token":"<|begin_of_text|>","content":"the token is here"}', '{"token":"<|im_end|>"}',
    '{"token":"internationalization","logprob":-2.1}', '{"tok_str":"x","token":"particularly"}',
    "Invalid token count: 17 of 4096", "invalid token id 151936", "token limit reached",
    "Using token streaming for slot 2", "Invalid token <|reserved_7|>",
    "prompt is 12 tokens, token budget 8192 is used", "bad token 'Float32Array'",
    # about keys, secrets and cookies in general
    "key value cache of 2048 MiB", "secret santa", "the secret hf-token-2 was created",
    "api key is invalid", "API key authentication is disabled", "api key read-only is set",
    "The token provided is not valid", "The token provided (see docs) is wrong",
    "password 'required' is missing", "key=blk.0.attn_k.weight", "key=general.architecture",
    "key=model-00001-of-00004", "key=value", "cookie path=/", "cookie samesite=strict",
    "cookies are disabled", "Authentication Error, No api key passed in.", "Invalid API Key",
    '{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}',
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "Key Hash (Token) = none", "token: invalid", "Incorrect API key provided", "secret is required",
    "The API key header-name is X-API-Key", "credential helper 'docker-credential-pass' is used",
]  # fmt: skip


@pytest.mark.parametrize("line", PLACES)
@pytest.mark.parametrize("value", CANARIES)
def test_a_value_that_looks_like_a_word_is_hidden_by_its_place(line: str, value: str) -> None:
    shown = redact.text(line.replace("@", value))
    assert value not in shown
    assert redact.text(shown) == shown
    assert len(shown) > len(line) - 4, "the words around it stay"


@pytest.mark.parametrize("word", ["swordfish", "CanaryToken"])
def test_a_member_of_an_answer_is_hidden_even_if_it_is_a_word(word: str) -> None:
    for name in ("token", "password", "secret", "api_key", "apiKey", "access_token"):
        assert word not in redact.text(f'{{"status":"ok","{name}":"{word}"}}')


@pytest.mark.parametrize("line", STAY)
def test_tokens_of_a_text_and_plain_words_stay(line: str) -> None:
    assert redact.text(line) == line
