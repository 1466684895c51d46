"""Secrets in every foreign text of a place: each is another one, and marked another way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.ports import free_port
from tests.runner.e2e.sites import book
from tests.runner.e2e.world import COMMAND
from tests.testbed.nvml import Nvml
from tests.ui.hostile import SERVER, Standing, Words, hostile_place
from tests.ui.place import Place
from tests.waiting import until

LIVE = "20261120-140000-live-1a2b"
TWIN = "20261118-140000-twin-2b3c"
"""The run by hand, and an older one."""
PARTS = ("state", "host", "config", "cache")
"""Where the console keeps what it knows."""
SEALED = ("playbook.yaml", "site.yaml", "inputs.json", "plan.json", "rollback.sh", "watch.plan")
"""Files of a run, of mode 0600, that are executed or loaded again."""
SECRET = re.compile(r"C4nary\d+z")
FORMS = (
    "--api-key {}", "HF_TOKEN={}", "Authorization: Bearer {}", '"password": "{}"', "hf_{}aB3dE5gH7",
    "--token={}", "x-api-key: {}", "api_key='{}'", "at h?key={}", "sk-{}aB3dE5gH7jK9",
)  # fmt: skip
"""How a text marks its secret; none with a slash, as some of the texts are names of files."""
TYPED = ("pasted", "pattern after", "confirm", "home")
"""What the person at the terminal types, or has to, and their own directory: they are shown as they
are."""


class Canaries(Words):
    """Words of which each holds a secret, known by its number."""

    def __init__(self) -> None:
        super().__init__(hostile=False)

    def __call__(self, place: str, most: int = 0) -> str:
        tag = super().__call__(place)
        if any(word in place for word in TYPED):
            return tag
        number = int(tag[2:-1])
        return f"{tag} {FORMS[number % len(FORMS)].format(f'C4nary{number}z')}"

    def secret(self, place: str) -> str:
        """A bare secret: what stands around it is all that marks it."""
        return f"C4nary{int(super().__call__(place)[2:-1])}z"

    def place_of(self, secret: str) -> str:
        """Where a secret that got out was planted."""
        tag = f"Zq{int(secret.removeprefix('C4nary').rstrip('z')):02d}x"
        return next((place for place, own in self.tags.items() if own == tag), secret)


def in_the_site(place: Place, words: Canaries) -> None:
    """Secrets in the site file, as an operator may have written them: in commands, variables,
    addresses and headers."""
    site = json.loads(place.site.read_text())
    for name in ("side", "crash"):
        runs = site["services"][name]["process"]
        secret = words.secret(f"flag of {name} in the site")
        runs["argv"] = [*runs["argv"], "--api-key", secret, f"--hf-token={secret}"]
        runs["env"] = {"LLAMA_API_KEY": words.secret(f"variable of {name} in the site")}
    hook = f"http://127.0.0.1:{place.cand_port}/services/{words.secret('address of a channel')}"
    site["notify"] = [
        {"webhook": hook, "headers": {"Authorization": f"Bearer {words.secret('header')}"}},
        {"command": [COMMAND, "--token", words.secret("flag of a channel")], "on": ["run-end"]},
    ]
    place.site.write_text(json.dumps(site, indent=1))
    steps = ("id: up, service: {start: side}", "id: crash, service: {start: crash}")
    place.write("g-kept.yaml", book(*steps, name="g-kept"))


def in_the_files(place: Place, words: Canaries) -> None:
    """Secrets in what an operator has beside the site: compose file, Dockerfile, script; and in
    what programs of others say."""
    service = {
        "image": f"registry.example/{words('image of a compose file')}",
        "command": ["vllm", "serve", "m", "--api-key", words.secret("command of a compose file")],
        "environment": {"HF_TOKEN": words.secret("variable of a compose file")},
        "labels": {"traefik.auth": words("label of a compose file")},
        "build": {"context": ".", "args": {"PIP_TOKEN": words.secret("argument of a build")}},
        words("key of a compose file"): 1,
    }
    place.write("compose.yaml", json.dumps({"services": {"engine": service}}))
    place.write(
        "Dockerfile",
        f"FROM scratch\nARG TOKEN={words.secret('Dockerfile')}\n"
        f"RUN curl -H 'Authorization: Bearer {words.secret('header in a Dockerfile')}' http://h/x\n",
    )
    place.write(
        "a.sh", f"#!/bin/sh\nexport API_KEY={words.secret('script')}\ncd /nowhere\nrm -rf $x/*\n"
    )
    tools = place.root / "tools"
    tools.mkdir()
    for tool in ("systemctl", "ssh", "loginctl"):
        (tools / tool).write_text(f"#!/bin/sh\necho '{told(words, tool)}' >&2\nexit 1\n")
        (tools / tool).chmod(0o755)
    place.env["PATH"] = f"{tools}:{place.env['PATH']}"


def told(words: Canaries, tool: str) -> str:
    return words(f"what {tool} says").replace("'", '"')


def leaks(words: Canaries, text: str) -> set[str]:
    """The places whose secrets are in a text; a line that was wrapped is joined first."""
    joined = re.sub(r"[\s│▁▂▃▄▅▆▇█]", "", text)
    return {words.place_of(found) for found in SECRET.findall(joined)}


def leaks_in_files(words: Canaries, root: Path, but: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """The same for all bytes of all files below a directory, but those named."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name not in but:
            text = path.read_bytes().decode("utf-8", "replace")
            if here := {words.place_of(one) for one in SECRET.findall(text)}:
                found[str(path.relative_to(root))] = here
    return found


def sealed(path: Path) -> bool:
    """Whether a file of a run has to hold what was given, as it is executed or loaded again: then
    nobody else reads it."""
    known = path.name in SEALED or path.parent.name == "queue"  # of messages, with their channels
    known = known or ("attempts" in path.parts and path.suffix == ".sh")
    return known and path.stat().st_mode & 0o077 == 0


SPEAKS = """
import http.server, json, sys
word = json.loads(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = "application/json"
        model = {"id": word, "object": "model", "owned_by": word, "root": word, "max_model_len": 99}
        answers = {
            "/health": {"status": "ok"}, "/v1/models": {"object": "list", "data": [model]},
            "/props": {"model_path": word, "build_info": word, "total_slots": 1,
                       "default_generation_settings": {"n_ctx": 512}},
            "/slots": [{"id": 0, "is_processing": False, "prompt": word}],
            "/get_model_info": {"model_path": word}, "/version": {"version": word},
        }
        said = {"role": "assistant", "content": "The answer is " + word + ", and more of it."}
        usage = {"prompt_tokens": 8, "completion_tokens": 16, "total_tokens": 24}
        text = {"id": word, "model": word, "object": "text_completion", "usage": usage,
                "choices": [{"index": 0, "text": said["content"], "message": said,
                             "finish_reason": "stop"}], "content": said["content"]}
        body = json.dumps(answers.get(self.path, text)).encode()
        if b'"stream": true' in asked or b'"stream":true' in asked:
            kind = "text/event-stream"
            parts = [{"content": one + " "} for one in said["content"].split()]
            rows = [{"model": word, "choices": [{"index": 0, "delta": one}]} for one in parts * 4]
            rows += [{"model": word, "choices": [], "usage": usage}]
            body = b"".join(b"data: " + json.dumps(one).encode() + b"\\n\\n" for one in rows)
            body += b"data: [DONE]\\n\\n"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("X-Model", word)
        self.send_header("Set-Cookie", "session=" + word)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A server of somebody else that answers everything well, and a secret in every word of it."""


def speaker(place: Place, words: Canaries) -> str:
    """Start that server; its address."""
    port = free_port()
    argv = [sys.executable, "-S", "-c", SPEAKS, str(port), json.dumps(words("name of a model"))]
    place.children.append(subprocess.Popen(argv, env=place.env, cwd=place.root, text=True))
    url = f"http://127.0.0.1:{port}"
    until(lambda: place.listens(url), "the server speaks")
    return url


def stranger(place: Place, words: Canaries, port: int, name: str = "llama-server") -> int:
    """Start a server of somebody else: secrets in its command line and environment; its pid."""
    home = place.root / f"stranger-{port}"
    home.mkdir()
    (home / "w").write_bytes(words.data(f"answer on {port}"))
    (home / "s.py").write_text(SERVER.read_text())  # short: what is told of a process is cut
    number = len(words.tags)
    words("argv of a stranger")
    words("variable of a stranger")
    argv = [
        name, "-S", "s.py", str(port), "w", "--port", str(port),
        "--requirepass", f"C4nary{number}z", f"-pC4nary{number}z",  # flags that no list names
        "--api-key", f"C4nary{number}z and more", f"--hf-token=C4nary{number}z", "-hft",
        f"C4nary{number}z", f"http://me:C4nary{number}z@host/",
    ]  # fmt: skip
    env = {**place.env, "LLAMA_API_KEY": f"C4nary{number + 1}z", "HF_TOKEN": f"C4nary{number + 1}z"}
    child = subprocess.Popen(argv, executable=sys.executable, env=env, cwd=home, text=True)
    place.children.append(child)
    until(lambda: place.listens(f"http://127.0.0.1:{port}"), "the stranger listens")
    return child.pid


@contextlib.contextmanager
def planted(root: Path, nvml: Nvml) -> Iterator[tuple[Place, Standing, Canaries]]:
    """A place whose files, servers, cards and runs, and a server of somebody else, hold secrets."""
    words = Canaries()
    with hostile_place(root, words, nvml) as (place, standing):
        for name in [one for one in os.environ if one.startswith("OMNI_") and one in place.env]:
            place.env.setdefault(name, os.environ[name])
        in_the_site(place, words)
        in_the_files(place, words)
        yield place, standing, words
