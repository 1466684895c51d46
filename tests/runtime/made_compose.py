"""Compose without its command, for the engine in this process: what `config` and `up` come to."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ruamel.yaml import YAML

from tests.runtime.made_engine import MadeEngine

PROJECT = "com.docker.compose.project"


class MadeCompose:
    """In the place of the one function that starts the command; `calls`: words and environment."""

    def __init__(self, engine: MadeEngine) -> None:
        self.engine = engine
        self.calls: list[tuple[list[str], dict[str, str]]] = []

    def __call__(
        self, argv: Sequence[str], env: Mapping[str, str], what: str, seconds: float
    ) -> tuple[int, bytes, bytes]:
        self.calls.append((list(argv), dict(env)))
        after: dict[str, list[str]] = {"-f": [], "--profile": [], "-p": []}
        for word, value in pairwise(argv):
            after.get(word, []).append(value)
        try:
            config, unset = read(after["-f"][0], after["--profile"], env)
        except ValueError as error:
            return 1, b"", str(error).encode()
        if "up" in argv:
            self._up(config, after, str(argv[-1]), start="-d" in argv)
        return 0, json.dumps(config).encode(), unset

    def _up(
        self, config: dict[str, Any], after: dict[str, list[str]], name: str, start: bool
    ) -> None:
        with open(after["-f"][-1], encoding="utf-8") as file:
            over = json.load(file)["services"][name]
        service, project = config["services"][name], after["-p"][0]
        container = service.get("container_name") or f"{project}-{name}-1"
        if not any(one.name == container for one in self.engine.containers.values()):
            environment = {**(service.get("environment") or {}), **over["environment"]}
            marks = {PROJECT: project, "com.docker.compose.service": name}
            self.engine.make(
                container, over.get("command", service["command"]), {**over["labels"], **marks},
                Env=[f"{key}={value}" for key, value in environment.items()],
                HostConfig={
                    "Memory": over.get("mem_limit"), "MemorySwap": over.get("memswap_limit"),
                    "RestartPolicy": {"Name": over["restart"]}, "PidsLimit": over["pids_limit"],
                    "OomScoreAdj": over["oom_score_adj"],
                    "LogConfig": {"Config": over["logging"]["options"]},
                },
            )  # fmt: skip
        if start:
            self.engine.route("POST", f"/containers/{container}/start", {}, None)


def read(
    file: str, profiles: Sequence[str], env: Mapping[str, str]
) -> tuple[dict[str, Any], bytes]:
    """A compose file as `docker compose config` has it, and what is said of its variables."""
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    unset = [name for name in re.findall(r"\$\{(\w+)\}", text) if name not in env]
    text = re.sub(r"\$\{(\w+)\}", lambda found: env.get(found[1], ""), text).replace("$$", "$")
    try:
        config = YAML(typ="safe").load(text)
    except Exception as error:
        raise ValueError("yaml: " + str(error)) from error
    services = {
        name: one for name, one in config["services"].items()
        if not one.get("profiles") or set(one["profiles"]) & set(profiles)
    }  # fmt: skip
    for one in services.values():
        one["volumes"] = [_mount(words) for words in one.get("volumes") or []]
    project = config["name"]
    config["volumes"] = {key: {"name": f"{project}_{key}"} for key in config.get("volumes") or {}}
    config["networks"] = {"default": {"name": f"{project}_default"}}
    said = [f'The "{name}" variable is not set. Defaulting to a blank string.' for name in unset]
    return {**config, "services": services}, "\n".join(said).encode()


def _mount(words: str) -> dict[str, str]:
    source, _, target = words.partition(":")
    return {"type": "volume", "source": source, "target": target}
