"""A secret never survives in a text that marks it; words that are none stay as they are."""

from __future__ import annotations

import contextlib
import json
import shlex
import string
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.common import redact
from console.common.redact import Known
from console.common.secrets import lines
from console.common.text import (
    after_cut,
    clean,
    clean_lines,
    cleaned,
    command,
    ending,
    one_line,
)

S = "s3cret-Canary/9"
PLAIN = "s3cretCanary9"
HUB = "hf_aB3dE5gH7jK9mN1pQ3sT"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.s3cretCanary9"

MARKED = [
    f"llama-server --api-key {S} --port 8000",
    f"llama-server --api_key {S}",
    f"llama-server --api-key={S}",
    f"llama-server -api-key {S}",
    f"llama-server --api-key '{S} two words'",
    f'bash -c "llama-server --api-key {S} --port 1"',
    f"bash -c 'exec llama-server --api-key \"{S}\"'",
    f"vllm serve m --api-key a,{S}",
    f"argv: [vllm, serve, --api-key, {S}]",
    f"--api-key --api-key {S}",
    f"--sort-key --api-key {S}",
    f"python -m sglang --token={S}",
    f"llama-server -hft {S}",
    f"llama-server --hf-token {S}",
    f"server -k {S}",
    f"curl -u user:{S} http://host/",
    f"curl --user=user:{S} http://host/",
    f"curl -H 'X-Api-Key: {S}' http://host/",
    f"LLAMA_API_KEY={S} llama-server",
    f"export VLLM_API_KEY={S}; vllm",
    f"HF_TOKEN={S}",
    f"HUGGING_FACE_HUB_TOKEN: {S}",
    f"S3_KEY_2={S}",
    f"AWS_SECRET_ACCESS_KEY={S}",
    f"MYSQL_PWD={S}",
    f"POSTGRES_PASSWORD: {S}",
    f"docker run -e OPENAI_API_KEY={S} image",
    f"docker run --env=OPENAI_API_KEY={S} image",
    f"hf_token = {S}",
    f'"api_key": "{S}"',
    f'{{\\"api_key\\": \\"{S}\\"}}',
    f"{{'api_key': ['a', '{S}'], 'model': 'x'}}",
    f"['--api-key', '{S}', '--port', '1']",
    f"ServerArgs(model_path='x', api_key='{S}', port=1)",
    f"openaiApiKey: {S}",
    f"client_secret={S}",
    f'"auth": "{S}"',
    f'"identitytoken": "{S}"',
    f"AccountKey={S};EndpointSuffix=x",
    f"Authorization: Bearer {S}",
    f"authorization: Basic {S}=",
    f"Authorization: {S}",
    f"Proxy-Authorization: Basic {S}",
    f"Cookie: session={S}; other={S}",
    f"Set-Cookie: omni={S}; HttpOnly",
    f"got Bearer {S} of the client",
    "got bearer s3cret of the client",
    f"x-api-key: {S}",
    f"http://user:{PLAIN}@host/v1",
    f"http://user:{S}@host/v1",
    f"http://:{PLAIN}@host/v1",
    f"http://user:p@{PLAIN}@host/v1",
    f"git remote https://{PLAIN}@github.com/a/b",
    f"http://host/v1?key={PLAIN}&x=1",
    f"http://host/v1?x=1&api_key={PLAIN}",
    f"http://host/v1?x=1&token={PLAIN}#y",
    f"https://b.s3/x?X-Amz-Signature={PLAIN}&X-Amz-Credential={PLAIN}",
    f"https://hub/x?Signature={PLAIN}",
    f"https://hooks.slack.com/services/T0/B0/{PLAIN}",
    f"machine host login me password {S}",
    f"Looking in indexes: https://me:{PLAIN}@pypi.example/simple",
    f"the token is {HUB}",
    "the key is sk-proj-aB3dE5gH7jK9mN1pQ3sT",
    "ghp_aB3dE5gH7jK9mN1pQ3sTuV5wX7yZ9",
    "AKIAIOSFODNN7CANARY1",
    "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "glpat-aB3dE5gH7jK9mN1pQ3sT",
    f"cookie of it {JWT}",
    f"-----BEGIN PRIVATE KEY-----{PLAIN}-----END PRIVATE KEY-----",
    f"-----BEGIN RSA PRIVATE KEY-----\\n{PLAIN}",
    f'api_key="{S}',
    f"password: {S}",
    f"password: aa.000{PLAIN}",
    f"db.password={S}",
    f"--ssl-keyfile-password {S}",
    f"Environment=LLAMA_API_KEY={S}",
    f'Environment="LLAMA_API_KEY={S} and more"',
    f"ExecStart=/usr/bin/llama-server --api-key {S}",
    f"--label traefik.auth.password={S}",
]  # fmt: skip
SECRETS = (S, PLAIN, "two words", "and more", HUB, "aB3dE5gH7jK9", "CANARY1", "A1b2C3", "s3cret")

HARMLESS = [
    "--tokens 64 --ctx-size 8192 --n-gpu-layers 19",
    "max_tokens=64, n_tokens = 2048, progress = 0.5",
    '{"max_tokens": 64, "prompt_tokens": 12, "token": " Paris", "logprob": -0.1}',
    "tokenizer.ggml.tokens arr[str,128256]",
    "51.84 tokens per second, 12 token/s, 3 tok/s",
    "eval time = 1234.56 ms / 64 tokens ( 19.29 ms per token, 51.84 tokens per second)",
    "llm_load_print_meta: EOS token        = 1 '<|end|>'",
    "--bos-token <s> --eos-token </s> --max-token 5",
    "--api-key-file /etc/llama/keys --ssl-key-file /etc/ssl/k --ssl-keyfile /etc/ssl/x",
    "--ssl-key /etc/ssl/private/server.pem",
    "password-stdin of docker login --password-stdin",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "container 4f66ad9a0b2e is up, /models/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf",
    "http://127.0.0.1:8000/v1/chat/completions?stream=true",
    "http://host:8000/path@v2",
    "ssh://git@github.com/a/b.git",
    "docker run --user 1000:1000 -u 0:0 image",
    "sort -k 2,2n; curl -k https://host/; make -k",
    "api_key=None, hf_token=null, OMP_NUM_THREADS=8",
    "key: value of the table; a key and a token; press a key",
    "monkey=1 TURKEY=2 keyboard: x",
    "hf_transfer hf_hub_download hf_xet hf_convert",
    "task-abcdefghijklmnopqrstuvwxyz disk-0123456789abcdefghij",
    "authentication required; author: somebody; authorized_keys",
    "the API key is wrong; it wants an API key: pass --api-key",
    "The server wants a key (HTTP 401): Invalid API Key",
    "TOKENIZERS_PARALLELISM=false HF_HUB_DISABLE_IMPLICIT_TOKEN=1",
    "pass 3 of 5; passed: 12; bypass=1x; compass: north",
    "signal: 9 (SIGKILL), significant=3, --signature-algorithm x",
    "cuda::keys=[a] kv_cache_key: 12 cache_key=ab12 sort_key=x",
    "--override-kv tokenizer.ggml.add_bos_token=bool:false",
    "GET /tokenize 200, POST /detokenize 200, max_token_len=8",
    "secrets are hidden; the secret: none",
]  # fmt: skip

BY_PROGRAM = [
    f'sshpass -p {S} ssh host',
    f'sshpass -P prompt -p {S} ssh -p 2222 host',
    f'/usr/bin/sshpass -p{S} ssh -p 2222 host',
    f'mysql -p{S} db',
    f'mysqldump -ume -p{S} --all-databases',
    f'mariadb-dump -p{S} db',
    f'docker login -p {S} ghcr.io',
    f'docker --config /x login -u me -p {S}',
    f'podman login -u me -p={S}',
    f'sudo docker login -u me -p{S}',
    f'helm registry login -u me -p {S} host',
    f'skopeo copy --src-creds me:{S} a b',
    f'mongosh -u me -p {S}',
    f'openssl rsa -in k -passin pass:{S} -passout pass:{S}',
    f'openssl pkcs12 -passin=pass:{S}',
    f'openssl enc -pass pass:{S}',
    f'ngrok authtoken {S}',
    f'ngrok config add-authtoken {S}',
    f'wandb login {S}',
    f'wandb login --relogin {S}',
    f'vault login {S}',
    f'cloudflared service install {S}',
    f'huggingface-cli login --token {S}',
    f'hf auth login --token {S}',
    f'server --psk {S}',
    f'server --psk={S}',
    f'server --pin {S}',
    f'server --pin 123456{PLAIN}',
    f'server --otp {S}',
    f'server --passcode {S}',
    f'server --login me:{S}',
    f'server --login=me:{S}',
    f'server --bearer {S}',
    f'server --oauth2-bearer {S}',
    f'server --userpass me:{S}',
    f'server --creds {S}',
    f'server --access-code {S}',
    f'curl -u me:{S} http://host/',
    f'curl -ume:{S} http://host/',
    f'curl -su me:{S} http://host/',
    f'curl -x http://p:1 -U me:{S} http://host/',
    f'curl -b sid={S} http://host/',
    f"curl --cookie 'sid={S}; b=1' http://host/",
    f'curl -H "Authorization: {S}" http://host/',
    f'http -a me:{S} host',
    f'redis-cli -h host -a {S} ping',
    f'redis-server --requirepass {S}',
    f'redis-server --masterauth {S}',
    f'redis-cli CONFIG SET requirepass {S}',
    f'requirepass {S}',
    f'PGPASSWORD={S} psql',
    f'SSHPASS={S} sshpass -e ssh host',
    f'REDISCLI_AUTH={S}',
    f'OTP={S}',
    f'PIN={S}',
    f'psk={S}',
    f'keytool -storepass {S} -keypass {S}',
    f'ldapsearch -x -w {S} -D cn=x',
    f'sqlcmd -U sa -P {S}',
    f'zip -P {S} a b',
    f'7z x -p{S} a',
    f'smbclient -U me%{S} //host/share',
    f'snmpget -c {S} host',
    f'influx -t {S}',
    f'mc alias set x http://host user {S}',
    f'htpasswd -b file me {S}',
    f'aws configure set aws_secret_access_key {S}',
    f'npm config set //registry.npmjs.org/:_authToken {S}',
    f'vllm serve m --api-keys a1 {S}',
    f'vllm serve m --api-keys first {S} --port 1',
    f"sh -c 'vllm serve m --api-key A1b2c3 {S} --port 1'",
    f'server --admin-api-keys a1 {S}',
    f'GET /callback?code={PLAIN}&state=1 HTTP/1.1',
    f'http://host/cb?state=1&code={PLAIN}',
    f'http://host/cb#access_token={PLAIN}&x=1',
    f'http://host/cb?refresh_token={PLAIN}&id_token={PLAIN}',
    f'http://host/cb?code_verifier={PLAIN}',
    f'http://host/cb?session_id={PLAIN}',
    f'https://acc.blob.core.windows.net/m?sv=2024&se=1&sig={PLAIN}&sp=r',
    f'https://storage/m?X-Goog-Signature={PLAIN}&X-Goog-Credential={PLAIN}',
]  # fmt: skip
"""Secrets that the program marks, or a flag that other programs have for something else."""

HARMLESS_COMMANDS = [
    "exit code=404, status code=503 in the log",
    "GET /x?code=404 HTTP/1.1 200",
    "the process ended with code=1; status code=200",
    "docker run -p 8080:8080 image",
    "docker run -d --name mysql -p 3306:3306 mysql:8",
    "docker run --name mysql -p3306:3306 mysql:8",
    "docker run --name mongo -p 127.0.0.1:27017:27017/tcp mongo",
    "podman run -p 8000-8010:8000-8010 img",
    "docker login ghcr.io",
    "docker login -u me ghcr.io --password-stdin",
    "docker compose -p project up",
    "ps -p 123",
    "ssh -p 2222 host",
    "ssh -p 2222 -u host",
    "sshpass -e ssh -p 2222 host",
    "mkdir -p dir",
    "mysql -P 3306 -h host -u root db",
    "mysql -p db",
    "vllm serve m --pin-memory --port 8000",
    "pin_memory=True, pin: 12",
    "--max-tokens 500",
    "n_tokens = 12",
    "token 1234",
    "token 1234 of 5000; the token is 12",
    "x --login",
    "bash --login -c true",
    "bash -l --login /etc/profile",
    "--login me",
    "taskset --pin 0-3 x",
    "x --pin 1,2,3",
    "x --pin 64",
    "x --otp-release 26",
    "wandb login",
    "wandb: Currently logged in as: me",
    "huggingface-cli login",
    "hf auth login",
    "ngrok http 8000",
    "curl -b cookies.txt -c jar.txt http://h/",
    "curl -sS -u http://h/",
    "curl --cookie cookies.txt http://h",
    "curl -H \"Accept: application/json\" http://h",
    "redis-cli -p 6379 ping",
    "redis-server --port 6379 --appendonly yes",
    "openssl x509 -in cert.pem -noout",
    "openssl rsa -passin env:PW -passin file:/etc/pw",
    "zip -r a.zip dir; unzip a.zip -d dir; unzip -p a.zip b",
    "7z x a.7z -odir",
    "http -v :8000/health",
    "http://h/v1?stream=true&session=1&code=200",
    "spin=3 SPIN=abc PIN_MEMORY=1 pinned=5",
    "--api-key-file /etc/k --api-keys-file /etc/x",
    "llama-server answers (pid 4846), started with --model /m/x.gguf",
    "git config set user.name me",
    "aws configure set region eu-west-1",
    "config set max_tokens 500",
    "decode=12 encode=3 barcode=9 opcode=77 errcode=500",
    "kubectl logs -p pod",
    "rsync -p a b; tar -p x; cp -p a b",
    "gcc -pthread -pipe; nvidia-smi -pm 1 -pl 300",
    "systemctl restart mysql -q",
    "apt install -y mysql-server",
    "mysql: [Warning] Using a password on the command line interface can be insecure.",
    "sqlcmd -S host -p 5",
    "ldapsearch -x -W -D cn=x",
    "--tensor-parallel-size 8 --pipeline-parallel-size 2 -p 5",
    "llama-bench -p 512 -n 128",
    "llama-cli -p hello -n 5",
    "python -m pytest -p no:cacheprovider",
    "smbclient -U me //h/s",
    "doctl auth init",
    "mc alias list",
    "htpasswd -c file me",
    "user cookie: none; cookies=3",
    "numactl --physcpubind 0 --hmac-free x",
    "sid=4 psk unset",
]  # fmt: skip
SENTENCES = [
    "run wandb login to sign in",
    "wandb: (1) use wandb login --relogin to force",
    "vault login failed: permission denied",
    "ngrok config add-authtoken <token>",
    "requirepass is set; requirepass or masterauth",
    "the values of --api-key and --hf-token are missing",
    "--api-key is not given; --hf-token was left out",
    "the values of --api-key, -p, --hf-token and HF_TOKEN are missing",
    "write here: - --api-key, then - VALUE",
]  # fmt: skip
"""Of commands: as words of an argv they would be something else."""


@pytest.mark.parametrize("line", BY_PROGRAM)
def test_what_a_program_takes_as_a_secret_is_hidden(line: str) -> None:
    given = line.split()
    with contextlib.suppress(ValueError):
        given = shlex.split(line)
    words = redact.argv(given)
    for shown in (redact.text(line), " ".join(words), redact.text(str(given)), json.dumps(words)):
        assert not [one for one in SECRETS if one in shown], shown
        assert redact.HIDDEN in shown
    assert redact.argv(words) == words
    assert redact.text(redact.text(line)) == redact.text(line)


@pytest.mark.parametrize("line", [*HARMLESS_COMMANDS, *SENTENCES])
def test_the_same_flags_of_other_programs_stay(line: str) -> None:
    assert redact.text(line) == line
    if line not in SENTENCES:
        assert redact.argv(line.split()) == line.split()


@pytest.mark.parametrize("line", MARKED)
def test_what_a_text_marks_as_secret_is_hidden(line: str) -> None:
    shown = redact.text(line)
    assert not [one for one in SECRETS if one in shown], shown
    assert redact.HIDDEN in shown
    assert redact.text(shown) == shown
    assert clean(line) == shown


@pytest.mark.parametrize("line", HARMLESS)
def test_words_that_are_no_secret_stay(line: str) -> None:
    assert redact.text(line) == line
    assert redact.argv(line.split()) == line.split()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "two words"], ["--api-key", "*****"]),
        (["--api-key=two words"], ["--api-key=*****"]),
        (["--api_key", "a,b", "-m", "x"], ["--api_key", "*****", "-m", "x"]),
        (["--api-key", "a", "b", "--port", "1"], ["--api-key", "*****", "*****", "--port", "1"]),
        (["--token", "--api-key", "a"], ["--token", "--api-key", "*****"]),
        (["env", "HF_TOKEN=two words"], ["env", "HF_TOKEN=*****"]),
        (["-e", "X_PASSWORD=a b"], ["-e", "X_PASSWORD=*****"]),
        (["sh", "-c", "x --api-key s3cret y"], ["sh", "-c", "x --api-key ***** y"]),
        (["--bos-token", "<s>", "--tokens", "64"], ["--bos-token", "<s>", "--tokens", "64"]),
        (["--api-key-file", "/etc/k"], ["--api-key-file", "/etc/k"]),
        (["-k", "s3cret"], ["-k", "*****"]),
        (["-u", "me:s3cret"], ["-u", "me:*****"]),
    ],
)
def test_the_words_of_a_command_are_read_one_by_one(words: list[str], shown: list[str]) -> None:
    assert redact.argv(words) == shown
    assert redact.argv(shown) == shown
    assert command(words) == " ".join(shown)


def test_a_private_key_is_hidden_in_every_line_of_it() -> None:
    kind = "OPENSSH PRIVATE KEY-----"
    key = f"-----BEGIN {kind}\nb3BlbnNzaC1\nQyNTUxOQ==\n-----END {kind}"
    shown = clean_lines(f"before\n{key}\nafter")
    assert "b3BlbnNzaC1" not in "".join(shown)
    assert "QyNTUxOQ" not in "".join(shown)
    assert (shown[0], shown[-1]) == ("before", "after")
    alone = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
    assert redact.text(alone) == redact.HIDDEN


def test_a_secret_that_escape_sequences_cut_up_is_hidden() -> None:
    assert "s3cret" not in clean("llama-server --api-\x1b[0mkey s3cret")
    assert "s3cret" not in clean("HF_TO\x1b[31mKEN=s3cret")


def test_a_secret_whose_mark_lies_behind_the_limit_is_hidden() -> None:
    assert "s3cret" not in clean(f"http://user:s3cret{'x' * 200}@host", 40)
    assert "s3cret" not in clean(f"{'x' * 20} --api-key s3cret", 36)


def test_data_is_hidden_by_its_names_and_flags() -> None:
    data = {
        "Env": ["HF_TOKEN=s3cret value", "A=b"], "Cmd": ["--api-key", "s3cret value"],
        "Labels": {"x.api-key": "s3cret value", "a": "b"}, "headers": {"Authorization": "s3cret"},
        "deep": [{"password": "s3cret"}], "tokens": 12, "Args": ("--token=s3cret value",),
    }  # fmt: skip
    for shown in (cleaned(data), redact.data(data), redact.NONE.data(data)):
        assert "s3cret" not in str(shown)
        assert "value" not in str(shown)
        assert (shown["tokens"], shown["Labels"]["a"], shown["Env"][1]) == (12, "b", "A=b")


VALUES = st.text(string.ascii_letters + string.digits + "-_.+/", min_size=6, max_size=40).filter(
    lambda value: any(one.isdigit() for one in value[1:-1]) and value[0].isalpha()
)
AROUND = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)
FORMS = st.sampled_from([
    " --api-key {} ", " --token={} ", " HF_TOKEN={} ", ' "api_key": "{}" ', " Bearer {} ",
    " Authorization: Basic {} ", " http://u:{}@h/ ", " http://h/?key={} ", " X-Api-Key: {} ",
    " password={} ", " ['--api-key', '{}'] ", " api_key=['{}'] ",
])  # fmt: skip


@settings(deadline=None)
@given(VALUES, AROUND, AROUND, FORMS)
def test_no_surroundings_bring_a_secret_out(value: str, before: str, after: str, form: str) -> None:
    if ("/" in value and "://" in form) or redact.text(f"x {value} y") != f"x {value} y":
        return
    kept = f"{before}\n{form.format(value)}\n{after}"
    if value in before + after or value in form:
        return
    assert value not in redact.text(kept)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=300))
def test_hiding_twice_changes_nothing(line: str) -> None:
    once = redact.text(line)
    assert redact.text(once) == once


@settings(deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([
    "--api-key", "api_key", "=", ": ", "s3cret", " ", '"', "'", "[", "]", "token", "HF_TOKEN",
    "://", "@", ":", "?key=", "&", "Bearer ", "Authorization", "-k ", "-u ", "\\", "x", ",",
    "-----BEGIN PRIVATE KEY-----", "Cookie: a=b", "password",
]), max_size=14).map("".join))  # fmt: skip
def test_hiding_twice_changes_nothing_between_marks(line: str) -> None:
    once = redact.text(line)
    assert redact.text(once) == once


@pytest.mark.parametrize(
    "piece",
    ["a-", "--api-", "-key", "api_key", "://", "://a:", "http://a:b", "token:", "token ", "KEY=",
     "'", '"', "\\\"", "[", "Bearer ", "password: ", "-----BEGIN ", "x", "eyJ", "sk-", "login ",
     "-u a:", "-k ", "cookie:", "authorization: ", "&key=", "aB3/", "user:", "?", "A_KEY",
     "session=", '"tokens": [',
     "http://h?a=b&", "mysql -p", "sshpass ", "--psk '", "--login ", "-a-", "docker login ",
     "?code=", "PIN=",
     "set x ", "--api-keys a1 ", "config set a/", "your key is ", "using api key ", "api_key ",
     "password for x ", "set-header x-api-key ", "stats auth a", "api_", "root token 1", "--pw "],
)  # fmt: skip
def test_a_hostile_line_takes_no_more_than_its_length(piece: str) -> None:
    """Measured against itself, in CPU time of this process: four times the line takes about four
    times as long, and sixteen times where each part is read again from every other."""

    def cost(size: int) -> float:
        line = piece * (size // len(piece))
        begun = time.process_time()
        redact.text(line)
        return time.process_time() - begun

    small = max(min(cost(20_000) for _ in range(3)), 0.002)
    assert any(cost(80_000) < 11 * small for _ in range(3))


@pytest.mark.full
@pytest.mark.parametrize(
    "piece",
    ["://a:", "api_key", "'--token=x ", "Authorization: Bearer C4nary1z ", "aB3/", "-u a:b@", "[",
     "-----BEGIN PRIVATE KEY-----", '{"password": "x"}, ', "\u0130--key "],
)  # fmt: skip
@pytest.mark.parametrize(
    "read",
    [redact.text, clean, one_line, ending, after_cut, cleaned, redact.data, clean_lines,
     lambda line: redact.argv([line, line]), lambda line: list(lines.shown([line, line])),
     Known(("s3cret", "another")).text, redact.dumped],
)  # fmt: skip
def test_four_times_the_line_takes_four_times_as_long(
    piece: str, read: Callable[[str], object]
) -> None:
    """In CPU time of this process; each way in which a foreign line comes in or goes out. Of what
    takes a fiftieth of a second at 64 kB a megabyte would show no more."""

    def cost(size: int) -> float:
        line = piece * (size // len(piece))
        begun = time.process_time()
        read(line)
        return time.process_time() - begun

    size = 1 << 16
    if (small := cost(size)) < 0.02:
        size = 1 << 18
        small = max(cost(size), 0.02)
    assert any(cost(4 * size) < 11 * small for _ in range(3))


MADE = (
    "q8Zr4Tn1Vx7Lm2", "9f86d081884c7d659a2feaa0c55ad015", "550e8400-e29b-41d4-a716-446655440000",
    "dGhpcyBpcyBhIHNlY3JldA==", "QzKxWvTyPmLnBrDfGhJkCsXa",
)  # fmt: skip
KEYED = (
    '{"token":"%s"}', "{'token': '%s'}", '{"a": 1, "token" : "%s", "b": 2}', '\\"token\\":\\"%s\\"',
    '"refresh_token": "%s"', '"id_token":"%s"', '"accessToken": "%s"', '"session": "%s"',
    '"sessionid":"%s"', "session_id: %s", '"sid": "%s"', '"csrf": "%s"', '"jwt": "%s"',
    '"bearer": "%s"', '"private_key": "%s"', '"client_secret":"%s"', '"passwd":"%s"', '"pwd": "%s"',
    '"key": "%s"', "token: %s", 'token = "%s"', "token=%s", "  token: '%s'", "- token: %s",
    '"tokens": ["%s"]', '"credentials": {"token": "%s"}', "session = %s", "client_secret: %s",
)  # fmt: skip


@pytest.mark.parametrize("form", KEYED)
def test_a_made_value_behind_a_weak_name_is_hidden_in_data_and_settings(form: str) -> None:
    assert [value for value in MADE if value in redact.text(form % value)] == []


@pytest.mark.parametrize(
    "line",
    [
        '"token": 1234', '"token": " the"', '"tokens": 12', "token: 5", "bad token: <|im_end|>",
        "stop token: '</s>'", '{"id":9707,"token":"Hello","bytes":[72],"logprob":-0.2}',
        '"token": " internationalization"', '"token":"Antidisestablishmentarianism"',
        '"token":"getElementById"', '"token":"NotImplementedError"', '"token":"Float32Array"',
        '"token":"12345678"', '"token":"0x7f3a9c21"', '"token":"========"', '"token":"\\n\\n"',
        "EOS token = 151645 '<|im_end|>'", '"bos_token": "<|begin_of_text|>"', "token: invalid",
        '"tokens": ["Hello", " world"]', '"session": "default"', '"session": "chat-1"',
        "session: expired", "Sessions: 12345678", '"key": "llama.attention.layer_norm_rms_epsilon"',
        "key: blk.12.attn_k.weight", "--session mine", '"token":"sha256sum"',
        '"token": "\u0120Paris"', "token=1234567, id=3", "token=0x7f3a9c21", "token=1.25e-7",
        "token=internationalization", "token=<|im_end|>", "token=</tool_call>",
        "n_token=Washington7",
        "token=\u0120Washington", "token=Token(id=7)", "token=$REGISTRY1", "token=' Paris'",
        "tokens=12", "token: 'the'", "token=Hello, id=9707", "pass=2 of 3", "eos_token=Endings7",
    ],
)  # fmt: skip
def test_the_tokens_of_a_text_and_the_names_of_sessions_stay(line: str) -> None:
    assert redact.text(line) == line


@pytest.mark.parametrize("name", ["token", "pass", "jwt"])
@pytest.mark.parametrize(
    "line",
    ["%s=CANARY1x", "ssh: env %s=CANARYmix: not found", "(%s=CANARY1x)", "a %s=CANARY-x, b",
     "export %s=CANARY1x; go", 'say "%s=CANARY1x"'],
)  # fmt: skip
def test_a_value_directly_behind_its_name_is_hidden(line: str, name: str) -> None:
    shown = redact.text(line % name)
    assert "CANARY" not in shown
    assert f"{name}=*****" in shown


def test_data_hides_a_made_value_behind_a_weak_name() -> None:
    assert redact.data({"session": MADE[0], "key": MADE[0]}) == {"session": "*****", "key": "*****"}
    assert redact.data({"session": "chat-1", "key": "value"}) == {
        "session": "chat-1",
        "key": "value",
    }


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("http://u:CANARY@h:1/v1?k=CANARY", "http://u:*****@h:1/v1?k=*****"),
        ("see (http://h/?CANARY).", "see (http://h/?*****)."),
        ("https://h/a?x=1&go=CANARY;b=CANARY#top", "https://h/a?x=1&go=*****;b=*****#top"),
        (
            "'https://h/?q=CANARY' and ws://h/s?CANARY=1",
            "'https://h/?q=*****' and ws://h/s?CANARY=1",
        ),
        ("does http://h/ answer? yes", "does http://h/ answer? yes"),
        ("http://h/v1?stream=true&n=12", "http://h/v1?stream=true&n=12"),
    ],
)
def test_the_query_of_a_url_is_hidden(line: str, shown: str) -> None:
    assert redact.text(line) == shown
    assert redact.text(shown) == shown
