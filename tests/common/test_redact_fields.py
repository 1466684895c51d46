"""Secrets in fields as programs lay them out, and lines of servers that hold none.

Each form is filled with values of several kinds, so that no form passes by the look of one value.
"""

from collections.abc import Callable

import pytest

from console.common import redact
from console.common.secrets.lines import Stream
from console.common.text import clean, clean_lines, cleaned, one_line

MADE, HEX = "Zx7Qv9Lm2Kp4Wt", "9f86d081884c7d659a2feaa0c55ad015"
SHORT, DASHED, LITELLM, WORD = "llama3serve", "my-secret-key-2024", "sk-1234", "mysecretpass"

LAID_OUT = """\
{"detail": [{"type": "extra_forbidden", "loc": ["body", "api_key"], "msg": "Extra", "input": "@"}]}
{"detail":[{"loc":["header","Authorization"],"msg":"Input should be [a]","input":["@"]}]}
[{'type': 'string_type', 'loc': ('body', 'api_key', 0), 'msg': 'no string', 'input': '@'}]
"body: {\\"loc\\": [\\"body\\", \\"api_key\\"], \\"msg\\": \\"Extra\\", \\"input\\": \\"@\\"}"
| api key | @ |
| API key | `@` |
| API Key      | @     | admin |
│ api_key │ @ │
|api_key|@|
api_key    @
API_KEY    @    set
API Key            @
HF_TOKEN           @
password   @
API key [@]
API key (@)
api_key[@]
(api key: @)
[api_key: @]
API key(s): @
Api-Key(s) = @
api_keys: @, @
API keys: ['@', "@"]
api_key={'@'}
api_key (default: @)
password [default: @]:
--api-key API_KEY (default: @)
api_key: >- @
api_key: !!str @
api_key|string|@
api_key;@
"api_key","@","x"
api_key\t@
API_KEY?=@
API_KEY += @
api_key (str): @
api_key: str = '@'
api_key: Optional[str] = '@'
api_key = '''@'''
**API key**: @
**API key:** `@`
`api_key`: `@`
os.environ['API_KEY'] = '@'
config["api_key"]: "@"
getenv("API_KEY") = "@"
ApiKey("@")
Set API key to @
api_key was set to '@'
Expected API key @ got another
Invalid API key @
the api key "@" is not valid
password for admin is @
Paste an API key from your profile: @
密码: @
API 密钥：@
パスワード: @
Passwort: @
Ocp-Apim-Subscription-Key: @
X-Vault-Token: @
x-functions-key: @
pw: @""".splitlines()

PAIRS = """\
"token": {"value": "@"}
{"api_key": {"type": "string", "value": "@"}}
{"name":"API_KEY","value":"@"}
{"Name":"API_KEY","Value":"@"}
{"value":"@","name":"API_KEY"}
- name: API_KEY value: @
EnvVar(name='API_KEY', value='@')
<add key="api_key" value="@"/>
<entry key="password">@</entry>
<api_key>@</api_key>
auth=('admin','@')
auth=("admin", "@")
auth=[('admin', '@')]
HTTPBasicAuth('admin', '@')
BasicAuth(login='admin', password='@')
auth: admin:@
basic_auth: admin:@
curl -H X-Api-Key:@ http://h
curl -H 'X-Api-Key: @' http://h
curl --header=X-Api-Key:@ http://h
curl --header='X-Api-Key: @' http://h
curl -u admin:@ http://h
["curl", "-H", "X-Api-Key:@"]
acl ok hdr(X-Api-Key) @
http-request deny unless { req.hdr(x-api-key) -m str @ }
if ($http_x_api_key != "@") { return 401; }
map $http_x_api_key $ok { "@" 1; }
identified by '@'
os.environ['API_KEY'] = '@'
api_key: Optional[str] = '@'
> X-Api-Key: @
API_KEY: @
  api_key: @
# password: @
master_key: @
Environment=A=b "API_KEY=@" B=c
"Env":["API_KEY=@","A=b"]
Config { api_key: Some("@"), port: 1 }
General settings: {'master_key': '@'}
non-default args: {'model': 'x', 'api_key': ['@', '@']}
ServerArgs(model_path='x', api_key='@', admin_api_key='@')
execve("/bin/x", ["x", "--api-key", "@"], 0x7ff)""".splitlines()
"""Forms in which a word of letters is a secret, too."""

BY_LOOK = """\
(key: @)
keys: @, @
key(s): @, @
TOKEN_HUGGINGFACE=@
API_KEY_OPENAI: @""".splitlines()
"""Names that other things have, too: only a value that looks made by a machine is a secret."""

HEALTHY = """\
| api keys | 12 |
| API key | required |
| HF token | not set |
| tokens | 4096 | 51.84 tok/s |
| prompt tokens | 512 | 1234.5 |
api_keys: 3
API keys: 12 loaded
API key [optional]
API key (none)
API key (default: none)
HF token (read-only)
access token (expires 2026-11-28T12:00:00Z)
access token [2026-11-28T12:00:00Z]
access tokens   1200/s
session token   1024MiB
n_tokens = 512, n_past = 512
tokens per second: 51.84
eval time = 1234.56 ms / 64 tokens (19.29 ms per token, 51.84 tokens per second)
token usage: 0.01, gen throughput (token/s): 51.2
key/value heads: 8, head dim: 128
n_head_kv = 8, n_embd_k_gqa = 1024, key_length = 128
--cache-type-k q8_0 --cache-type-v q4_0
type_k = 'q8_0', type_v = 'f16'
tokenizer: Qwen2TokenizerFast, vocab 151936
tokenizer.ggml.pre str = qwen2
general.name: DeepSeek-R1-Q4_K_M
image sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
git commit 8e5d43b8a9c0de12f34567890abcdef123456789
build: 4567 (9f86d081) with gcc-13.2
bos_token: {"content": "<s>", "lstrip": false}
"eos_token": {"id": 151645, "value": 151645}
{"name": "temperature", "value": "0.7"}
{"name":"CUDA_VISIBLE_DEVICES","value":"0,1"}
{"value":"Qwen2.5-7B","name":"MODEL"}
EnvVar(name='NCCL_DEBUG', value='INFO')
<model>Qwen2.5-7B</model>
<add key="model" value="Qwen2.5-7B"/>
auth: none
auth: server.py:45: started
authentication: disabled
http-request deny unless { req.hdr(host) -m str h100.example }
if ($http_host != "h100.example") { return 444; }
map $http_upgrade $connection_upgrade { default upgrade; }
api_key: required
api_key: str
api_key: missing
password: required
HF_TOKEN: unset
X-API-Key: invalid
secret: none
(key: blk.12.attn_k.weight)
keys: a, b, c
keys: layers.0.weight, layers.1.weight
KV cache key  blk.0
missing key(s) in state_dict: "lm_head.weight"
Unexpected key(s): model.layers.0.mlp.gate.weight
TOKEN_BUDGET=8192
KEY_ROTATION_DAYS=30
sk-learn 1.5, task-1234 is processed, disk-2024
prefix cache hit rate: 12.5%, prompt tokens: 1,234
max_num_batched_tokens=8192 max_tokens: 2048
--max-num-batched-tokens 8192 --tokenizer-mode auto
POST /v1/chat/completions HTTP/1.1 200 OK
CUDA_VISIBLE_DEVICES=0,1,2,3 NCCL_P2P_DISABLE=1
H100-SXM5-80GB driver 550.54.15
password for root
secret 'db-creds-v2' not found
def token(self, secret) -> bytes:
struct->api_key->len""".splitlines()


def kept(form: str, value: str) -> bool:
    shown = redact.text(form.replace("@", value))
    assert redact.text(shown) == shown
    return value in shown


@pytest.mark.parametrize("form", [*LAID_OUT, *PAIRS])
def test_a_field_beside_the_label_of_a_secret_is_hidden(form: str) -> None:
    assert [value for value in (MADE, HEX, SHORT, DASHED, LITELLM) if kept(form, value)] == []


@pytest.mark.parametrize("form", PAIRS)
def test_a_word_that_a_pair_gives_is_hidden(form: str) -> None:
    assert not kept(form, WORD)


@pytest.mark.parametrize("form", BY_LOOK)
def test_a_made_value_behind_a_doubtful_label_is_hidden(form: str) -> None:
    assert [value for value in (MADE, HEX) if kept(form, value)] == []


@pytest.mark.parametrize("line", HEALTHY)
def test_what_an_operator_needs_stays(line: str) -> None:
    assert redact.text(line) == line


@pytest.mark.parametrize("read", [redact.data, cleaned])
def test_the_pairs_of_data_are_hidden(read: Callable[[object], object]) -> None:
    env = [{"name": "API_KEY", "value": WORD}, {"Name": "HF_TOKEN", "Value": WORD},
           {"key": "PASSWORD", "value": WORD}]  # fmt: skip
    shown = read({"env": env, "token": {"value": WORD}, "api_key": {"type": "x", "value": WORD}})
    assert WORD not in str(shown)
    plain = {"env": [{"name": "PORT", "value": "8000"}], "eos_token": {"value": "end"}}
    assert read(plain) == plain


@pytest.mark.parametrize("value", [MADE, HEX, SHORT, DASHED, LITELLM, WORD])
@pytest.mark.parametrize(
    "form",
    ["+ export OPENAI_API_KEYS='@;@'", "API_KEYS=[@,@]", "LLAMA_API_KEYS=@,@ next", "KEYS=@",
     "Environment=AUTH_TOKENS=@:@", 'PASSWORDS="@ @"', "GEMINI_KEYS=@;@", "SECRETS=@|@"],
)  # fmt: skip
def test_a_variable_with_a_list_of_secrets_is_hidden_whole(form: str, value: str) -> None:
    assert value not in redact.text(form.replace("@", value))


@pytest.mark.parametrize("line", ["MAX_TOKENS=4096", "NUM_KEYS=128", "TOKENS=512 ok", "KEYS=12"])
def test_a_variable_that_counts_stays(line: str) -> None:
    assert redact.text(line) == line


@pytest.mark.parametrize("value", [MADE, HEX, "hunter22x"])
@pytest.mark.parametrize(
    "form",
    ["API KEY ......... @", "API key (save it, it is shown once): @", "JWT secret @",
     "Admin user: admin / @", "basic auth admin:@", "login admin:@ refused",
     "user/password: root / @", "credentials admin:@", "session secret @ was rotated"],
)  # fmt: skip
def test_what_a_program_says_of_its_logins_is_hidden(form: str, value: str) -> None:
    assert value not in redact.text(form.replace("@", value))


@pytest.mark.parametrize("form", ["Using key @ for auth", "rate limit for key @ reached"])
def test_a_key_without_its_kind_is_hidden_if_it_looks_made(form: str) -> None:
    assert MADE not in redact.text(form.replace("@", MADE))


@pytest.mark.parametrize(
    "line",
    ["user: alice / 12 requests", "login node01:22 refused", "user alice:1000 has 2 sessions",
     "basic auth is on", "sorted by key general.architecture", "JWT secret is missing",
     "hashing with key blk.0.attn_q.weight", "user agent: curl / 8.1", "API keys ... none"],
)  # fmt: skip
def test_a_login_without_its_password_stays(line: str) -> None:
    assert redact.text(line) == line


def test_what_a_server_repeats_of_a_request_that_it_refuses_is_hidden() -> None:
    """FastAPI answers 422 with the place and the value of each field."""
    refused = {"loc": ["body", "api_key"], "msg": "Extra", "input": SHORT, "api_key": LITELLM}
    listed = {"loc": ("body", "api_key"), "input": [SHORT]}
    shown = redact.dumped({"detail": [refused, listed]})
    assert SHORT not in shown
    assert LITELLM not in shown
    harmless = {"loc": ["body", "max_tokens"], "msg": "too many", "input": "9000"}
    assert redact.data(harmless) == harmless
    text = '{"loc": ["body", "max_tokens"], "msg": "a string", "input": "9000"}'
    assert redact.text(text) == text


REFUSED = "Input should be a valid integer [type=int_parsing, input_value='@', input_type=str]"


@pytest.mark.parametrize(
    "place", ["api_key", "headers.authorization", "api_keys.0", "a.0.password"]
)
@pytest.mark.parametrize("secret", [DASHED, LITELLM, WORD])
def test_what_pydantic_repeats_is_hidden_by_the_name_of_its_field(place: str, secret: str) -> None:
    """The name stands on the line above, or before the words where lines were joined."""
    rows = ["1 validation error for Settings", place, "  " + REFUSED.replace("@", secret)]
    stream = Stream()
    for shown in (
        redact.text("\n".join(rows)), one_line("\n".join(rows)), clean(r"\n".join(rows)),
        "\n".join(clean_lines("\n".join(rows))), "\n".join(map(stream.shown, rows)),
        clean(" ".join(rows)),
    ):  # fmt: skip
        assert secret not in shown
        assert place in shown
        assert "valid integer [type=int_parsing, input_value='*****'" in shown


def test_what_pydantic_repeats_of_another_field_stays() -> None:
    rows = [f"{name}\n  {REFUSED.replace('@', value)}" for name, value in
            (("max_tokens", "nine"), ("api_key", DASHED), ("port", "eighty"))]  # fmt: skip
    shown = redact.text("\n".join(rows))
    assert ("nine" in shown, DASHED in shown, "eighty" in shown) == (True, False, True)
    assert shown == "\n".join(rows).replace(DASHED, redact.HIDDEN)
    joined = one_line("\n".join(rows), 600)
    assert ("nine" in joined, DASHED in joined, "eighty" in joined) == (True, False, True)
