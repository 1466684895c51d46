"""Of a foreign command line, only what is known to be harmless is quoted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.argv import LEFT_OUT, has_other_flags, may_have_started, quoted, started
from console.host.ports import Listener

S = "s3cretCanary"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("redis-server --requirepass S --port 80", "redis-server … --port 80"),
        ("redis-cli -a S", "redis-cli …"),
        ("mysql -pS -u me", "mysql …"),
        ("sshpass -p S ssh host", "sshpass …"),
        ("x --bearer S --cookie sid=S --pin 1234 --host me:S", "x … --host …"),
        ("x --port S --model https://me:S@host/m?code=S", "x --port … --model …"),
        ("x --model=m?S --port=8000 --host=0.0.0.0", "x --model=… --port=8000 --host=0.0.0.0"),
        ("x --model hf_aB3dE5gH7jK9mN1pQ3sT", "x --model …"),
        ("/opt/llama-server -m /m/a.gguf -a chat -p S -ngl 9 --port 8000",
         "/opt/llama-server -m /m/a.gguf -a chat … --port 8000"),
        ("vllm serve org/name --api-key S --served-model-name chat", "vllm serve org/name … "
         "--served-model-name chat"),
        ("vllm serve --api-key S org/name", "vllm serve …"),
        ("python3 -u -m http.server 8000 --bind 127.0.0.1",
         "python3 -u -m http.server … --bind 127.0.0.1"),
        ("python -m vllm.entrypoints.openai.api_server --model a/b --token S",
         "python -m vllm.entrypoints.openai.api_server --model a/b …"),
        ("python3 /opt/venv/bin/vllm serve a/b", "python3 /opt/venv/bin/vllm serve a/b"),
        ("python3 -c S", "python3 …"),
        ("python3 -X S -m S", "python3 …"),
        ("bash -c S", "bash …"),
        ("sh -x S/b.sh", "sh …"),
        ("sh /opt/start.sh S", "sh /opt/start.sh …"),
        ("node --inspect S server.js", "node …"),
        ("git commit -m S", "git …"),
        ("/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 8000 -container-ip ::1",
         "/usr/bin/docker-proxy … -host-ip 0.0.0.0 -host-port 8000 -container-ip ::1"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_is_quoted_of_a_command_line(argv: str, words: str) -> None:
    assert quoted([word.replace("S", S) for word in argv.split(" ")]) == words


def test_a_title_is_cut_behind_its_first_word() -> None:
    assert quoted([f"nginx: master process --token {S}"]) == "nginx: …"
    assert started([f"nginx: master {S}"]) == ["nginx:", LEFT_OUT]
    assert quoted(["VLLM::EngineCore", "", ""]) == "VLLM::EngineCore"
    assert Listener(1, quoted(["/usr/bin/docker-proxy", "-x"])).is_engine_proxy


@given(st.lists(st.sampled_from(["-p", "--port", "-a", "=", "serve", "-m", "--", "-c", ""])))
def test_a_word_of_no_known_form_is_never_quoted(words: list[str]) -> None:
    for program in ("redis-server", "python3", "bash", "vllm"):
        argv = [program, *(part for word in words for part in (word, f"{S} & {S}", f"{word}={S}?"))]
        assert S not in quoted(argv)


@pytest.mark.parametrize(
    ("spec", "argv"),
    [
        ("/opt/llama.cpp/llama-server -m /m/a.gguf", "/home/me/bin/llama-server -m /m/b.gguf"),
        ("numactl --all llama-server -m /m/a.gguf", "llama-server -m /m/b.gguf"),
        ("vllm serve org/name", "/venv/bin/python /venv/bin/vllm serve org/other"),
        ("python -m vllm.entrypoints.openai.api_server --model a/b", "VLLM::APIServer"),
        ("python -m vllm.entrypoints.openai.api_server", "/v/bin/python3.12 /v/bin/vllm serve a/b"),
        ("python3 -m sglang.launch_server --model-path a/b", "sglang::http_server"),
        ("taskset -c 0-15 nice -n 5 /opt/llama-server -m a", "/opt/llama-server -m b"),
        ("sudo -u llm /opt/llama-server -m a", "/opt/llama-server -m b"),
        ("sudo -u llm python3 -m vllm.entrypoints.openai.api_server", "VLLM::APIServer"),
        ("numactl -i all llama-server -m a", "llama-server"),
        ("env CUDA_VISIBLE_DEVICES=0 vllm serve a/b", "/v/bin/python /v/bin/vllm serve a/b"),
        ("bash /opt/start.sh", "llama-server -m /m/b.gguf"),
        ("/opt/start.sh", "anything"),
    ],
)
def test_a_server_that_was_started_by_hand_may_be_the_same(spec: str, argv: str) -> None:
    assert may_have_started(spec.split(), argv.split())


@pytest.mark.parametrize(
    ("spec", "argv"),
    [
        ("/opt/llama-server -m /m/a.gguf --host 127.0.0.1 --port 8000",
         "python3 -m http.server --bind 127.0.0.1 8000"),
        ("/v/bin/python -m vllm.entrypoints.openai.api_server", "/v/bin/python -m http.server"),
        ("vllm serve org/name", "ollama serve"),
        ("/opt/llama-server -m /m/a.gguf -ngl 99", "/opt/ik/other-server -m /m/b.gguf -ngl 99"),
        ("/opt/llama-server", "bash"),
        ("llama-server -m /m/tiny.gguf --port 18032", "python3 other.py -m /m/tiny.gguf"),
        ("llama-server --chat-template chatml", "vllm serve x --chat-template chatml"),
        ("python3 stub.py --speed-file /tmp/speed", "nginx -c /tmp/speed"),
        ("python3 stub.py --port 1", "python3 y.py --log /var/log/stub.log"),
        ("python3 stub.py --port 1", "python3 -c exec('/opt/stub.py')"),
        ("python3 -m vllm.entrypoints.openai.api_server", "python3 -m x.api_server"),
        ("/opt/llama-server", ""),
    ],
)  # fmt: skip
def test_another_program_is_not(spec: str, argv: str) -> None:
    assert not may_have_started(spec.split(), argv.split())


FLAGS = [
    ("llama-server -m /a/m.gguf --port 80", "llama-server --port=80 -m /a/m.gguf", False),
    ("llama-server -m /a/m.gguf --port 80", "/b/llama-server -m m.gguf --port 80", False),
    ("llama-server -m ./m.gguf", "llama-server -m /a/m.gguf", False),
    ("llama-server -m /q4/m.gguf", "llama-server -m /q8/m.gguf", True),
    ("llama-server -m /a/m.gguf", "llama-server -m /a/m.gguf -c 512", True),
    ("llama-server -m /a/m.gguf -c 512", "llama-server -m /a/m.gguf", True),
    ("llama-server -m a -t 1", "llama-server -m a -t 2", True),
    ("numactl --cpunodebind=0 llama-server -m a", "llama-server -m a", False),
    ("numactl --cpunodebind=0 llama-server -m a", "llama-server -m b", True),
    ("vllm serve a/b", "python3 /opt/bin/vllm serve a/b", False),
    ("vllm serve a/b", "python3 /opt/bin/vllm serve a/c", True),
    ("python3 -m sglang.launch_server --model a", "/v/bin/python3.11 -m sglang.launch_server "
     "--model a", False),
    ("python3 -m sglang.launch_server --model a", "sglang::http_server", False),
    ("vllm serve a/b", "VLLM::APIServer", False),
    ("/opt/start.sh", "llama-server -m b", False),
    ("llama-server -m a", "nginx -c b", False),
]  # fmt: skip
"""A site file's command line, one of a process, and whether that tells other things."""


@pytest.mark.parametrize(("spec", "argv", "other"), FLAGS)
def test_other_flags_are_told_in_whatever_order_and_spelling(
    spec: str, argv: str, other: bool
) -> None:
    assert has_other_flags(spec.split(), argv.split()) is other
