"""Secrets whose name stands on one line of a text and whose value on the next."""

import json
import time
from pathlib import Path

import pytest

from console.common import redact
from console.common.crash import words_of
from console.common.logs.line import Splitter
from console.common.logs.tail import read_last
from console.common.secrets import lines
from console.common.text import clean_lines

V = "s3cretCan4ry"

SPLIT = [
    "api_key:\n{}", "API key:\n  {}", "Authorization:\nBearer {}", "Authorization: Bearer\n{}",
    '  "api_key":\n    "{}"', "{{'api_key':\n     '{}',", "--api-key\n{}", '"--api-key",\n"{}",',
    '      "--api-key",\n      "{}",\n      "{}",\n      "--port",', "- --api-key\n- {}",
    "command:\n  - --hf-token\n  - {}", "-H\nX-Api-Key: {}", "-H\nAuthorization: Bearer {}",
    "- name: API_KEY\n  value: {}", '{{\n"name": "HF_TOKEN",\n"value": "{}"\n}}',
    '"api_key": {{\n "type": "str",\n "value": "{}"\n}}', "password: |\n  {}\n  {}\nnext: 1",
    "api_keys:\n  - {}\n  - {}\nport: 3", '"api_keys": [\n "{}",\n "{}"\n]',
    "export HF_TOKEN=\\\n{}", "server --api-key \\\n  {} \\\n  --port 1",
    "2026-11-28T20:40:48.123456Z api_key:\n2026-11-28T20:40:48.123457Z {}",
    "vllm-1  | --api-key\nvllm-1  | {}", "(APIServer pid=12) api_key:\n(APIServer pid=12) {}",
    "Nov 28 20:40:48 h vllm[12]: password:\nNov 28 20:40:48 h vllm[12]: {}",
    '"x-api-key",\n"{}"', "api_key = (\n    '{}'\n)", "password:\n\n{}", "HF_TOKEN=\n{}",
    "Your API key is:\n\n    {}\n\nkeep it", "Namespace(api_key=\n  '{}',", "Cookie:\nsession={}",
    "Here is your access token:\n{}", '"Env": [\n"HF_TOKEN={}",\n]', "X-Api-Key:\n{}",
    "Enter API key: \n{}", "bearer_token: >-\n    {}", "-u\nadmin:{}", '"-u",\n"admin:{}",',
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\nafter",
    "--api-key\x1b[0m\n{}", "\x1b[1mapi_key:\x1b[0m\n\x1b[2m{}\x1b[0m",
]  # fmt: skip
LOGGERS = [
    "2026-11-28 21:00:0{},124 - server - INFO - ", "INFO 11-28 21:00:0{} [api_server.py:124] ",
    "(APIServer pid=7) INFO 11-28 21:00:0{} [api_server.py:124] ", "2026-11-28 21:00:0{} | INFO | ",
    "0.04.866.57{} I srv  init: ", "INFO: ", "INFO:     ", "INFO:root:", "root - INFO - ",
    "[2026-11-28 21:00:0{}] ", "[2026-11-28 21:00:0{} +0000] [7] [INFO] ", "[12:00:0{}] INFO     ",
    "I1128 21:00:00.00000{}       1 server.go:12] ", "2026/11/28 21:00:0{} ", "21:00:0{} INFO ",
    "2026-11-28T21:00:00.00000000{}Z stdout F ", "11/28/2026 09:00:0{} PM INFO ",
    "(RayWorkerWrapper pid=12, ip=10.0.0.1) INFO 11-28 21:00:0{} [worker.py:34{}] ",
    "2026-11-28 21:00:03.12{} | INFO     | __main__:main:1{} - ", "21:00:0{} [main] INFO c.App - ",
    "[INFO|server.py:1{}] 2026-11-28 21:00:00,124 >> ", "vllm-1  | INFO:     ", "[server] ",
    "2026-11-28T21:00:0{}.123Z  INFO tgi::server: ", "<14>1 2026-11-28T21:00:0{}Z host app 12 - - ",
    "| 2026-11-28 21:00:0{} INFO ", "Nov 28 20:40:4{} h vllm[12]: INFO: ",
]  # fmt: skip
LOGGED = [
    "{0}API key:\n{1}{2}", "{0}API key:\n\n{1}{2}", "{0}admin password:\n{1}=====\n{1}{2}",
    "{0}--api-key\n{1}{2}",
    "{0}Generated admin password for you (save it, it is shown once)\n{1}{2}",
]  # fmt: skip
FRAMED = [
    '{{"msg":"API key:"}}\n{{"msg":"{}"}}', "║ API key: ║\n╠══╣\n║ {} ║",
    '{{"ts": 1.2, "level": "info", "message": "Your API key is:"}}\n{{"ts": 2, "level": "info", '
    '"message": "{}"}}',
    '{{"log":"API key:\\n","stream":"stdout"}}\n{{"log":"{}\\n","stream":"stdout"}}',
    '{{"log":"2026-11-28 21:00:01 INFO API key:\\n"}}\n{{"log":"2026-11-28 21:00:01 INFO {}\\n"}}',
    '{{"log":"{{\\"msg\\":\\"API key:\\"}}\\n"}}\n{{"log":"{{\\"msg\\":\\"{}\\"}}\\n"}}',
    "+----+\n| Your API key |\n|-----|\n| {} |\n+---+", "│ Your API key │\n├────┤\n│ {} │",
    "| │ Your API key │\n| ├────┤\n| │ {} │", "| password: |\n| {} |", "| password: |\n|   {}",
    "╭─ Server ─╮\n│ Your admin password │\n│            │\n│ {}    │\n╰────╯", "# API key:\n# {}",
    "***********\n* API key:     *\n* {} *\n***********", "API key: (generated)\n====\n{}",
    "Your password (shown only once):\n\n  {}", "New API key created (store it safely)\n----\n{}",
    "curl -H 'Authorization: Bearer \\\n{}'", "INFO: api_keys:\nINFO:   - {}", "admin token =>\n{}",
    "WARNING 11-28 21:00:00 [x.py:1] API key:\nINFO 11-28 21:00:00 [x.py:2] {}",
    "2026-11-28 21:00:01,1 - api - WARNING - password:\n2026-11-28 21:00:01,1 - api - INFO - {}",
]  # fmt: skip
FRAMED_HEALTHY = [
    "INFO: API key:\nINFO: Started server process [1]", "INFO: API key:\nINFO: ready",
    "1 - server - INFO - API key:\n1 - server - INFO - loading model", "srv: password:\nsrv: done",
    '{"msg":"API key:"}\n{"msg":"server started"}', "│ API key │\n├──┤\n│ not set │",
    "| Tokens |\n|---|\n| 128 |", "srv  init: max_tokens:\nsrv  init: 512", "Token ->\nhello",
    "│ Key │ Value │\n├──┼──┤\n│ port │ 8000 │", "| Secrets |\n|---|\n| llama-3 |",
    "INFO: API key (not set)\nINFO: qwen", '{"msg":"API key:"}\nqwen loaded',
    "INFO: using API key (from a file)\nINFO: qwen", "API key: (optional)\nqwen",
    "password:\n2026-11-28 21:00:01,1 - server - INFO - qwen", "api_key:\n| INFO | qwen",
    "INFO: loaded the tokenizer (32000 tokens)\nINFO: qwen", '{"key": {"a": 1}}\n{"msg":"qwen"}',
    '{"prompt_tokens": 12}\n{"msg": "qwen"}', "* key points *\n* speed *", "the key is attention",
    "the key is model.layers.0", "| cache key |\n| a |", "(EngineCore pid=1) token:\nINFO: a",
]  # fmt: skip
HEALTHY = [
    "api_key:\n2026-11-28 12:00:00 INFO loaded the model", "api_key:\nINFO 11-28 ready",
    "api key:\nnot set", "--api-key\n--port\n8000", '"--api-key",\n"--port",\n"8000",',
    "password:\n[2026-11-28 10:00:00] done", "Authorization:\nmissing header", "kv_key:\n128",
    "keys:\n  layers.0.weight", "token:\nhello", "max_tokens:\n512", "eos_token:\n</s>",
    "stop_token_ids: [\n 1,\n2\n]", "tokens: [\n'hello',\n'world']", "primary key:\nid",
    "api_key: [\n]\nnext", '"api_key": null,\n"model": "qwen"', "api_key:\nport: 8000",
    "password:\nINFO: Started", "--api-key\n\nmodel loaded now", "unexpected key:\n  lm_head",
    "missing keys:\n  model.layers.0.q_proj", "Using API key:\nllama_model_loader: loaded meta",
    "secret:\n=====", "Authorization:\n- Accept: */*", "- name: PORT\n  value: 8000",
    "name: API_KEY\nvalueFrom:\n  secretKeyRef:\n    name: x\n    key: y", "key:\nvalue",
    "- name: API_KEY\n- name: PORT\n  value: 8000", "session:\nllama-3", "password: |\nnext: 5",
    "print_info: EOS token = 2 '\nllama", "api_key:\n/run/secrets/key", "-u\n1000:1000",
    "api_key:\nsrv  log_server_r: done request: GET /health 127.0.0.1 200",
]  # fmt: skip


@pytest.mark.parametrize("form", SPLIT)
@pytest.mark.parametrize("value", [V, "swordfish", "9f86d081884c7d65"])
def test_a_value_on_the_next_line_is_hidden_by_every_reader(
    form: str, value: str, tmp_path: Path
) -> None:
    text = form.format(value, value)
    log = tmp_path / "log"
    log.write_text(text + "\n")
    splitter = Splitter()
    by_byte = [line.text for one in log.read_bytes() for line in splitter.feed(bytes([one]), 0.0)]
    whole = Splitter().feed(log.read_bytes(), 0.0)
    for shown in (
        clean_lines(text), read_last(log, 100), by_byte, [line.text for line in whole],
        words_of(RuntimeError(f"\n{text}")).split("\n"),
    ):  # fmt: skip
        assert value not in "\n".join(shown), shown
        assert redact.HIDDEN in "\n".join(shown)
    assert "\x1b" in text or value not in redact.text(text)
    assert value not in "".join(read_last(log, text.count("\n")))


@pytest.mark.parametrize("logger", LOGGERS)
@pytest.mark.parametrize("form", LOGGED)
def test_a_value_is_hidden_behind_the_prefix_of_its_logger(logger: str, form: str) -> None:
    first, second = (logger.replace("{}", figure) for figure in "12")
    for value in (V, "swordfish", "9f86d081884c7d65"):
        _is_hidden(form.format(first, second, value), value)
        _is_hidden(form.format(first, "", value), value)


@pytest.mark.parametrize("form", FRAMED)
@pytest.mark.parametrize("value", [V, "swordfish", "9f86d081884c7d65"])
def test_a_value_is_hidden_in_records_and_boxes(form: str, value: str) -> None:
    _is_hidden(form.format(value), value)


@pytest.mark.parametrize("text", [f"Token ->\n{V}", f"the key is {V}", f"the key was: '{V}'"])
def test_a_value_that_looks_made_is_hidden(text: str) -> None:
    _is_hidden(text, V)


def _is_hidden(text: str, value: str) -> None:
    by_line = [line.text for line in Splitter().feed(f"{text}\n".encode(), 0.0)]
    for shown in (redact.text(text), "\n".join(clean_lines(text)), "\n".join(by_line)):
        assert value not in shown
        assert redact.HIDDEN in shown


@pytest.mark.parametrize("text", FRAMED_HEALTHY)
def test_a_line_in_a_frame_that_is_no_value_stays(text: str) -> None:
    assert clean_lines(text) == text.split("\n")


def test_the_lines_of_logs_stay_one_after_the_other() -> None:
    for file in sorted((Path(__file__).parents[1] / "logs/data").glob("*.jsonl")):
        records = [json.loads(row) for row in file.read_text().splitlines()]
        texts = [text for record in records for value in record.values() for text in _texts(value)]
        rows = [row for text in texts for row in text.split("\n")]
        assert len(rows) >= 100
        cleaned = [redact.text(row) for row in rows]
        assert [*lines.shown(cleaned)] == cleaned


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("text", HEALTHY)
def test_a_line_that_is_no_value_stays(text: str) -> None:
    rows = text.split("\n")
    assert clean_lines(text) == rows
    assert [line.text for line in Splitter().feed(f"{text}\n".encode(), 0.0)] == [
        row.replace("2026-11-28T20:40:48Z ", "") for row in rows
    ]


def test_a_value_without_its_newline_is_hidden_too() -> None:
    splitter = Splitter()
    splitter.feed(f"api_key:\n{V}".encode(), 0.0)
    assert [line.text for line in splitter.overdue(9.0)] == [redact.HIDDEN]
    assert [line.text for line in splitter.cut()] == [redact.HIDDEN]
    assert [line.text for line in splitter.feed(b"ready\n", 9.0)] == ["ready"]


def test_what_is_waited_for_is_given_up() -> None:
    text = "-----BEGIN RSA PRIVATE KEY-----\n" + "line of a log\n" * 600
    assert clean_lines(text, most=700)[-2] == "line of a log"


def test_a_hostile_line_takes_no_more_than_its_length() -> None:
    for piece in ("api_key: ", "- ", '"', "name: ", "(", "a=", "\\", "--api-key,", "| ",
                  '{"msg":"', '{\\"log\\":\\"', "INFO: ", "* ", "(save it", "│ key │"):  # fmt: skip
        started = time.process_time()
        clean_lines("\n".join(["api_key:", piece * 4000, piece * 4000 + ":"] * 5))
        assert time.process_time() - started < 1.5
