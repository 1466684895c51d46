"""Secrets in the sentences and settings that servers and tools print, and words that are none."""

import pytest

from console.common import redact

V = "Zx7Qv9Lm2Kp4Wt"

SAID = [
    "INFO:     Your API key is: {}", "INFO:     Your admin key is: {}", "your admin key is {}",
    "The master key was: {}", "Generated signing key: {}", "generated API key {}",
    "Using API key {}", "new session token = {}", "Admin password is: `{}`",
    "LiteLLM: Proxy initialized with master key {}", "Your access token has been set to {}",
    "Root Token: {}", "Initial Root Token: {}", "Unseal Key 1: {}", "Unseal Key: {}=",
    "Encryption key: {}", "Your encryption key is {}", "service key is {}", "Bearer token: {}",
    "RootUser: minioadmin RootPass: {}", "root password: {}", "Your key is: {}",
    "Password for user 'admin': {}", "Generated admin password for user root: {}",
    "A temporary password is provided for this session: {}", "Your passphrase is {}",
    "default password {}", "the shared secret was {}", "authtoken saved, token is {}",
    "Auto-generated encryption key: {}", "admin credential: {}", "Your license key = {}",
    "http://127.0.0.1:8888/lab?token={}", "wandb: using API key {} from the environment",
    "JWT secret generated: {}", "Your API Key → {}", "API key -> {}", "api key {}", "hf token {}",
    "Use token {}", "secret key {}", "the admin key {} was refused", "the API key ({}) is wrong",
    "API key '{}' is invalid", "with token {}",
    "Your private key is: {}", "Your Admin Key is :{}",
]  # fmt: skip
SET = [
    "api_key {}", "use api_key {} here", "X-API-Key {}", "proxy_set_header X-API-Key {};",
    'proxy_set_header Authorization "Bearer {}";', "http-request set-header X-Api-Key {}",
    "header_up X-Api-Key {}", 'RequestHeader set X-Auth-Token "{}"', "stats auth admin:{}",
    "user admin insecure-password {}", "ENV HF_TOKEN {}", "access_token {}", "auth-token '{}'",
]  # fmt: skip
COMMANDS = [
    "ttyd -c u:{} bash", "gotty -c u:{} top", "server --pw {}", "server --pw={}",
    "server --basicauth u:{}", "consul agent -encrypt {}", "consul agent -encrypt={}",
    "vault server -dev -dev-root-token-id={}", "vault server -dev -dev-root-token-id {}",
]  # fmt: skip

STAYS = [
    "the api key is wrong", "token is missing", "key is: not set", "password for root",
    "admin key is required", "Your admin key is: not set", "your API key is invalid",
    "the master key was changed", "using token authentication", "generated API key is kept",
    "new session token = none", "No encryption key found - Auto-generated and saving to: /x/config",
    "Your new public key is: ", "Your public key is: ssh-ed25519", "Root Token: unset",
    "Loading WEBUI_SECRET_KEY from file, not provided as an environment variable.",
    "Using password from ~/.config/code-server/config2.yaml", "Admin password changed",
    "using API key from /etc/llama2/key", "key is layer0.weight", "sort key is ab12cd34",
    "password is missing for user: root2x", "the token is 0x7f3c21", "using tokenizer qwen2vl",
    "Using key layer0.weight1", "new token: Float32Array", "using 2 tokens", "session key rotated",
    "api_key not set", "api_key missing in request", "X-API-Key header is required",
    "proxy_set_header X-API-Key $http_x_api_key;", "proxy_set_header Host backend1;",
    "http-request set-header X-Api-Key %[var(txn.key1)]", "stats auth is off", "ENV PORT 8080",
    "user root password required", "the password is required", "your token is valid",
    "Get your API key at https://h/keys2", "eos_token id2abc3", "cache_key ab12cd34",
    "ttyd -p 7681 bash", "curl -c jar.txt", "server --pw", "tool --encrypt true",
    "tool --encrypt aes256", "server --basicauth true", "--bos-token-id 2", "ENV KEY_FILE /k2",
    "the env HF_TOKEN is missing", "ENV HF_TOKEN is not set", "set the env HF_TOKEN first",
    "token 'Float32Array'", "token getElementById", "secret rotation-of-2026-11-28T14",
    "token counts/per-request", "token Washington7", "API key: required",
    "kv cache key = 12", "with token 12 of 500", "the secret is kept",
    "with primary key user_id7", "access key rotation every 30d", "service token is <redacted7>",
]  # fmt: skip
SENTENCES = [
    "another value of --api-key than the site file has", "--api-key which is given",
    "write --api-key, which it wants", "--hf-token must be given", "--token that was given",
    "--api-key in the site file", "--api-key of the server", "--password can be left out",
    "another value of --psk than the site file has", "--pw is missing", "--otp must be given",
    "another value of --api-key, --hf-token than the site file has", "--token, but not here",
    "--api-key differs from the site file", "--api-key does not fit", "pass --api-key.",
]  # fmt: skip


@pytest.mark.parametrize("line", [*SAID, *SET, *COMMANDS])
@pytest.mark.parametrize("value", [V, "9f86d081884c7d659a2feaa0c55ad015"])
def test_a_value_that_a_sentence_or_a_setting_tells_is_hidden(line: str, value: str) -> None:
    shown = redact.text(line.format(value))
    assert value not in shown
    assert redact.HIDDEN in shown
    assert redact.text(shown) == shown


@pytest.mark.parametrize("line", COMMANDS)
def test_it_is_hidden_in_a_command_too(line: str) -> None:
    assert V not in " ".join(redact.argv(line.format(V).split()))


@pytest.mark.parametrize("line", [*STAYS, *SENTENCES])
def test_ordinary_words_stay(line: str) -> None:
    assert redact.text(line) == line
