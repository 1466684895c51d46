"""Secrets below what announces them: plurals, remarks, sentences, rules, fences, tables, records,
elements; beside lines of the same shape that tell no secret."""

import pytest

from console.common import redact
from console.common.secrets import lines
from console.common.text import clean_lines

MADE, SHORT = "Zq7canaryXw9k2LmPvB4nT6y", "swordfish78!Q"

SKIPPED = [
    "┏━━━━┓\n┃ API key ┃\n┡━━━━┩\n│ @ │\n└────┘", "API key:\n```\n@\n```", "API key:\n~~~\n@\n~~~",
    "API key:\n---\n@\n---", "API key:\n+-------+\n| @ |\n+-------+", "password:\n```text\n@",
    "API key:\n====\n\n@", "password:\n▀▀▀▀▀▀\n@\n▄▄▄▄", "HF_TOKEN:\n|-----|\n| @ |",
    "INFO admin password:\nINFO ┄┄┄┄┄\nINFO @", "API key:\n\n```sh\n\n@\n```",
    "password\r\n\r\n@\r", "RuntimeError: invalid API key:\n```\n@\n```",
    "╒════╕\n│ Your password │\n╞════╡\n│ @ │\n╘════╛", "api_key\n=\n@",
]  # fmt: skip
LABELS = [
    "API key (save it):\n@", "API keys:\n@", "INFO API keys:\nINFO @", "Loaded 2 API keys:\n@",
    "Token (will not be shown again):\n@", "Use this API key to connect:\n@", "Access tokens:\n@",
    "The admin password has been generated:\n@", "invalid API key:\n@", "Admin passwords:\n@",
    "Your new API key is shown below:\n@", "Paste your token here:\n@", "client secrets:\n  - @",
    "Please copy the following token:\n@", "copy this token and store it safely:\n@",
    "API keys (comma separated):\n@", "API keys:\n  alice: @\n  bob: @", "API keys:\n  alice @",
    "Your password (change it after the first login):\n@", "WARN huggingface token not valid:\n@",
    "Password for 'https://git.example': \n@", "The root password was set to:\n@",
    "[init] The gateway token is now:\n[init] @", "Save this key now:\n         @",
    "API key — save it now:\n@", "Log in with this password:\n@", "**API key:**\n@",
    "Copy your bearer token below:\n@", "Here is the master key you need:\n@",
    "New service account created. API key:\n@", "bootstrap token generated:\n@",
    "This is your recovery key:\n@", "Credentials:\n  user: admin\n  pass: @",
    "Loaded API keys from /etc/keys:\n@\n@", "2026-11-28 21:00:00 INFO API tokens:\n@",
]  # fmt: skip
DECORATED = [
    "API key:\n-> @", "API key:\n=> @", "API key:\n1. @", "API keys:\n1) @\n2) @", "API key:\n- @",
    "API key:\n<@>", "API key:\n'@'", "API key:\n* @", "API key:\n• @", "API key:\n→ @",
    "API key:\n➜ @", "+ echo 'API key:'\nAPI key:\n+ echo @\n@", "<api_key>\n@\n</api_key>",
    "password:\n`@`", "<key>api_key</key>\n<string>@</string>",
    '<entry key="password">\n  @\n</entry>', "<password>\n  <value>@</value>\n</password>",
    "- name: HF_TOKEN\n  # of the hub\n  value: @", "client-key-data:\n  @", "client-key-data: @",
    "export HF_TOKEN=$(cat <<EOF\n@\nEOF\n)", "🔑 API key:\n🔑 @",
]  # fmt: skip
RECORDS = [
    '{"ts":1,"M":"password:"}\n{"ts":2,"M":"@"}',
    '{"short_message":"API key:"}\n{"short_message":"@"}',
    '{"severity":"INFO","textPayload":"password:"}\n{"severity":"INFO","textPayload":"@"}',
    '{"MESSAGE":"API keys:"}\n{"MESSAGE":"@"}',
    'level=info ts=1 caller=main.go:1 msg="admin password:"\n'
    "level=info ts=2 caller=main.go:2 msg=@",
    'ts=1 level=warn msg="API key:" pid=1\nts=2 level=warn msg="@" pid=1',
    'app=x lvl=info message="Use this API key to connect:"\napp=x lvl=info message=@',
]  # fmt: skip
TABLES = [
    "┏━━━━┳━━━━━━┓\n┃ User ┃ API key ┃\n┡━━━━╇━━━━━━┩\n│ bob │ @ │\n└────┴──────┘",
    "NAME API_KEY\nbob @", "name,api_key\nbob,@\nme,@",
    "| Name | API key |\n|:--|--:|\n| bob | @ |",
    "+------+-------+\n| user | password |\n+======+=======+\n"
    "| me | @ |\n+------+-------+\n| you | @ |",
    "NAME      API_KEY     AGE\nbob       @    3d\nme        @    4d",
]  # fmt: skip
UNSIGNED = [
    "Please use the following password to proceed to installation:\n \n"
    "@\n \nThis may also be found",
    "Save this client secret now. It will not be shown again.\n@", "Bootstrap Password:\n@",
    "API token created. Copy it now; it will not be shown again!\n@",
    "WARNING  No API keys found. Created          boot.py:48\n         bootstrap key for first\n"
    "         run. Save this key now:\n"
    "         gw-0cfzM-l0TufXyaDVCVE8J-P4\n         dIgCle_@\n         @lq8O",
    "Here is your API key\n\n    @\n", "ValueError: unexpected api key\n'@'", "🔑 Admin key\n   @",
    "401 Unauthorized: invalid token\n@", "Your new API key is shown below.\n@",
    "export API_KEY\n@", 'level=info msg="admin password"\nlevel=info msg=@',
    "  - value: @\n    name: HF_TOKEN", '{"value": "@",\n "name": "HF_TOKEN"}',
]  # fmt: skip
WORDS = [
    "API key (save it):\n@", "Use this API key to connect:\n@", "API key:\n```\n@\n```",
    "The admin password has been generated:\n@", "┃ API key ┃\n┡━━━┩\n│ @ │", "password:\n-> @",
    "<password>\n@\n</password>", '{"M":"password:"}\n{"M":"@"}', "name,password\nbob,@",
]  # fmt: skip
HEALTHY = [
    "Live session requires the following API keys:\n  OPENAI_API_KEY\n  XAI_API_KEY",
    "API Keys:\n\n  ID",
    "Required API keys:\n"
    "• OPENAI_API_KEY for OpenAI models\n• GOOGLE_API_KEY for Google Gemini models",
    "Set at least one key via /admin → API Keys:\n  • OpenAI API key\n  • Google API key",
    "Missing required API keys:\nDROYD_API_KEY",
    "API key: x in use:\n          qwen2.5-7b\n          q4",
    "The hint will not be shown again.\nQwen3-30B-A3B-Instruct-2507", "prompt tokens:\n128",
    "EOS token:\n</s>", "EOS token:\n'<|im_end|>'", "max tokens:\n4096",
    "special tokens:\n<|endoftext|>\n<|im_start|>", "Special tokens:\n  bos: <s>\n  eos: </s>",
    "tokens:\nhello\nworld", "Tokens:\n  prompt: 128\n  completion: 64", "Keys:\nlayers.0.weight",
    "attention keys:\ntorch.Size([1, 32, 128])",
    "missing keys:\nmodel.layers.0.mlp.experts.w13_weight",
    'Unexpected key(s) in state_dict:\n"model.layers.0.q_proj.weight"', "Keys:\n  Qwen3-30B-A3B",
    "The following keys are missing:\nmodel.layers.0.self_attn.q_proj.weight_scale_inv",
    "The following API keys are missing:\nOPENAI_API_KEY", "API keys:\nopenai\nanthropic",
    "Checking API key for provider:\nopenai", "Set the API key with:\nvllm serve",
    "API key required for model:\nQwen2.5-7B",
    "Your huggingface token has no access to:\nmeta-llama/Llama-3.1-8B",
    "Loading API key from:\n/run/secrets/key", "API key (not set):\nqwen",
    "API keys:\n\nINFO ready now", "password:\n```\nnot set\n```",
    "API key:\n----\nINFO: Started server process [1]",
    "| tokens | Tokens/s |\n|---|---|\n| 128 | 42.1 |",
    "model,tokens,tokens/s\nqwen2.5-7b,128,42.1", "NAME TOKENS\nqwen2 128", "KEY VALUE\nport 8000",
    "ERROR INVALID API_KEY\nclient 10.0.0.1 gone", "{'key': 'abc'}\n{'key': 'qwen2.5-7b'}",
    "Next token:\nĠworld1", "generated tokens:\nHello World", "Generated token:\nFloat32Array",
    "New token:\n<0x0A>", "<token>\nhello\n</token>", "<key>\nlayers\n</key>",
    'msg="prompt tokens:"\nmsg=128', 'msg="loaded the key"\nmsg=ready',
    '{"M":"tokens:"}\n{"M":"128"}', '{"M":"API key:"}\n{"M":"server started"}',
    "- value: Qwen3-30B-A3B", "- value: 8000\n  name: PORT",
    "  - value: meta-llama/Llama-3.1-8B-Instruct\n    name: MODEL",
    "cat > run.sh <<EOF\nvllm serve qwen\nEOF", "PROMPT=$(cat <<EOF\nhello\nEOF\n)", "1 << 3\n8",
    "API key:\n1. Open the page\n2. Copy it", "Using API key\nqwen2.5-7b",
    "The API key is in the file below.\n/etc/vllm/key.txt", "invalid token\nretrying",
    '401 Unauthorized: invalid token\nINFO: 127.0.0.1:5000 - "GET /health HTTP/1.1" 200 OK',
    "The server needs no API key.\nQwen3-30B-A3B", "Received token\n<|reserved_special_token_12|>",
    "decoding the next token\nmodel.layers.0.self_attn.q_proj", "user tokens:\nhello",
    "API key:\n<none>", "API key:\n<h1>\nnot set", "password:\n<string>\nnot set",
    "Keys:\n  a: 1\n  b: 2", "API keys:\nmodel: qwen2.5-7b", "api_key:\nmodel: qwen2.5-7b",
    "tokens per second:\n42.5", "Use the following tokens:\n<think>\n</think>",
    "top tokens:\n1. the\n2. a\n3. world2", "stop token:\n```\n<|eot_id|>\n```",
    "load: printing all EOG tokens:\nload:   - 0 ('<|endoftext|>')",
    "Password changed.\nrestarting", "API key ok:\nsha256:9f86d0", "session tokens:\n1024",
    "key cache:\nfp8_e5m2", "| Key | Type |\n|---|---|\n| Qwen3-30B-A3B | str |",
    "Token counts:\nQwen3-30B-A3B 128", "Use this model to connect:\nQwen3-30B-A3B",
]  # fmt: skip


@pytest.mark.parametrize(
    "text", [*SKIPPED, *LABELS, *DECORATED, *RECORDS, *TABLES, *UNSIGNED]
)  # fmt: skip
def test_a_value_below_its_label_is_hidden(text: str) -> None:
    _is_hidden(text, MADE)


@pytest.mark.parametrize("text", [*SKIPPED[:-1], *DECORATED, *RECORDS])
def test_a_short_one_is_hidden_too(text: str) -> None:
    _is_hidden(text, SHORT)


@pytest.mark.parametrize("text", WORDS)
def test_a_word_is_hidden_where_nothing_else_may_follow(text: str) -> None:
    _is_hidden(text, "swordfish")


def _is_hidden(text: str, value: str) -> None:
    text = text.replace("@", value)
    rows = [redact.text(row) for row in text.split("\n")]
    for shown in (redact.text(text), "\n".join(lines.shown(rows))):
        assert value not in shown, shown
        assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize("text", HEALTHY)
def test_what_tells_no_secret_stays(text: str) -> None:
    assert redact.text(text) == text
    assert clean_lines(text, most=100) == text.split("\n")
