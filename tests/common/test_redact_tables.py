"""Secrets in letters alone that a sentence tells, in tables below a header, below a comment, in the
files of passwords; beside what engines say of the tokens of a text and the keys of a file."""

import pytest

from console.common import redact
from console.common.secrets import lines

WORD, MADE, HEX = "swordfish", "Zq7canaryXw9k2LmP", "0123456789abcdef0123456789abcdef01234567"


def hidden(text: str, *values: str) -> None:
    """In a whole text, and in its lines one by one."""
    rows = [redact.text(row) for row in text.split("\n")]
    for shown in (redact.text(text), "\n".join(lines.shown(rows))):
        for value in values or (WORD, MADE, HEX):
            assert value not in shown, shown


@pytest.mark.parametrize(
    "line",
    ["Token -> @", "# Token => @", "API key -> @", "access token -> @", "the key is @",
     "The key is: @", "Your key is '@'", "the API key is @", "the password is @", "Password is @",
     "The admin password was @", "the secret is @", "Auth token is @", "your token is: @",
     "passphrase is @", "my password is @.", "password for admin is @",
     "the root password is @, change it"],
)  # fmt: skip
def test_a_word_that_a_sentence_tells_is_hidden(line: str) -> None:
    hidden(line.replace("@", WORD))


@pytest.mark.parametrize(
    "text",
    ["# API key\n@", "# token\n@", "// API key\n@", "## Your API key\n@", "API key\n@",
     "# API key for the gateway\n@", "# Wandb API key:\n@", "app-1  | # API key\napp-1  | @"],
)  # fmt: skip
@pytest.mark.parametrize("value", [MADE, HEX])
def test_a_value_below_its_title_is_hidden(text: str, value: str) -> None:
    hidden(text.replace("@", value))


@pytest.mark.parametrize("text", ["# The admin password\n@", "; password\n@"])
def test_a_word_below_a_comment_that_names_a_password_is_hidden(text: str) -> None:
    hidden(text.replace("@", WORD))


@pytest.mark.parametrize(
    "text",
    ["user    token\nalice   @\nbob     @", "name    password\nadmin   swordfish",
     "| user | token |\n|------|-------|\n| alice | @ |\n| bob | @ |",
     "+------+----------+\n| user | password |\n+------+----------+\n| me   | swordfish |",
     "user,password\nadmin,swordfish\nme,swordfish", "USER\tTOKEN\nalice\t@",
     "ID  NAME  API KEY  CREATED\n1   main  @  2026-01-01",
     "app-1  | NAME    API KEY\napp-1  | main    @", '"user","token"\n"a","@"',
     "│ name │ secret    │\n├──────┼───────────┤\n│ a    │ swordfish │"],
)  # fmt: skip
def test_the_cells_below_a_secret_s_name_are_hidden(text: str) -> None:
    hidden(text.replace("@", MADE))
    assert len(redact.text(text).split("\n")) == len(text.split("\n"))


@pytest.mark.parametrize(
    "text",
    ["db.example.com:5432:prod:app:@", "localhost:5432:*:postgres:@", "*:*:*:app:@",
     "app-1  | 10.0.0.5:5432:metrics:grafana:@", "machine github.com\n  login me\n  password @",
     "machine github.com login me\npassword @", "machine h.example login me password @",
     "default login anonymous password @", "machine h login admin account x password @"],
)  # fmt: skip
def test_files_of_passwords_are_hidden(text: str) -> None:
    for value in (WORD, MADE, "S3cr3tPw"):
        hidden(text.replace("@", value), value)


@pytest.mark.parametrize(
    "text",
    [f"wandb login {HEX}", f"wandb login --relogin {HEX}", f"WANDB_API_KEY={HEX}",
     f"wandb: Paste an API key from your profile and hit enter: {HEX}",
     f'wandb.login(key="{HEX}")', f"machine api.wandb.ai\n  login user\n  password {HEX}"],
)  # fmt: skip
def test_a_key_of_wandb_is_hidden(text: str) -> None:
    hidden(text)


@pytest.mark.parametrize(
    "text",
    ["eos token -> 2", "BOS token = 1 '<s>'", "Token -> id", "Token -> embedding",
     "print_info: EOS token        = 2 '</s>'", "tokens      predicted   cached\n12  3  4",
     "| token | id |\n| hello | 123 |\n| Float32Array | 5 |", "rank  token  p\n1  hello  -0.5",
     "key  type  value\ngeneral.architecture  str  llama", "name,token,id\nhello,world,3",
     "model,params,token/s\nllama-7b-q4,6.74,123.4", "PASS  FAIL  KEY\n12    0     Abc1Def2Gh3",
     "num tokens  max tokens\n12          4096", "the token is whitespace", "the token is ignored",
     "The token is valid until tomorrow", "the password is correct", "the api key is optional",
     "the secret is mounted from the file", "Auth token: disabled", "access token: required",
     "the first key is evicted", "the password is stored, hashed", "TOKEN\nhello",
     "server.py:42:main:INFO:loaded", "engine.py:120:run_engine:worker:ready",
     "app:42:main:INFO:loaded", "10.0.0.1:8080:80:90:100", "# Token\nbasics", "# token\nhello",
     "machine learning\npassword required by policy", "enter the password\nagain", "# Secret\n---"],
)  # fmt: skip
def test_what_engines_say_of_tokens_and_keys_stays(text: str) -> None:
    assert redact.text(text) == text
