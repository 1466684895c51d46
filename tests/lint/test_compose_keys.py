"""What compose refuses of a file for its form, held against compose itself where it can be had."""

import time
from pathlib import Path

import pytest

from console.checks.lint.run import REFUSED
from tests.lint.faults import NOTHING, found
from tests.testbed import compose
from tests.testbed.engine import _clients
from tests.testbed.plugin import need

A = "services:\n  a:\n    image: x\n"
REFUSES = {
    "no provider": A + "    provider: null\n",
    "an empty provider": "services:\n  a:\n    provider: {}\n",
    "a provider in words": "services:\n  a:\n    provider: model\n",
    "a provider without a type": "services:\n  a:\n    provider: {type: null}\n",
    "a service twice": A + "  a:\n    image: y\n",
    "a key twice": A + "    image: y\n",
    "a variable twice": A + "    environment:\n      V: 1\n      V: 2\n",
    "two merges": "x-a: &a {tty: true}\nservices:\n  a:\n    <<: *a\n    <<: *a\n    image: x\n",
    "an unknown key": A + "    comand: [x]\n",
    "an unknown key of a build": A + "    build: {contxt: .}\n",
    "an unknown limit": A + "    deploy: {resources: {limits: {gpus: 1}}}\n",
    "an unknown key of a health check": A + "    healthcheck: {test: [CMD, x], intervall: 5s}\n",
    "an unknown key of a port": A + "    ports: [{target: 80, host: 80}]\n",
    "an unknown key of a volume": A + "    volumes: [{type: bind, source: /a, dest: /b}]\n",
    "an unknown key of logging": A + "    logging: {drivr: x}\n",
    "an unknown key of a network": A + "networks: {n: {drivr: x}}\n",
    "an unknown key of the file": A + "volums: {n: {}}\n",
    "text as ports": A + '    ports: "8000"\n',
    "text as volumes": A + "    volumes: ./a:/b\n",
    "text as a deploy": A + "    deploy: x\n",
    "a mapping as a command": A + "    command: {a: b}\n",
    "a list as an image": "services:\n  a:\n    image: [x]\n    tty: true\n",
    "a size": A + "    mem_limit: lots\n",
    "a limit": A + "    deploy: {resources: {limits: {memory: 1 gig}}}\n",
    "shared memory": A + "    shm_size: 16 gigabytes\n",
    "a duration": A + "    healthcheck: {interval: soon}\n",
    "a period": A + "    stop_grace_period: 1 minute\n",
    "a name": A + "  a b:\n    image: x\n",
    "a key too far left": "services:\n  a:\n    image: x\n  image: y\n",
}
TAKES = {
    "long": A + """\
    build: {context: ., args: [A=b], secrets: [s], ssh: [default], ulimits: {nofile: 5}}
    command: llama-server -m x
    entrypoint: [a]
    environment: {A: , B: 1, C: true}
    env_file: [{path: a.env, required: false}, {path: b.env, required: false}]
    ports: [8000, "80:80", {target: 1, published: "1-2", host_ip: 127.0.0.1, mode: host}]
    volumes: [a:/a, {type: bind, source: /a, target: /b, bind: {create_host_path: true}},
      {type: tmpfs, target: /c, tmpfs: {size: 1g, mode: 1777}}]
    gpus: all
    devices: ["/dev/nvidia0:/dev/nvidia0", nvidia.com/gpu=all]
    deploy: {mode: replicated, replicas: 1, resources: {limits: {cpus: "2", memory: 1g, pids: 5},
      reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}},
      restart_policy: {condition: on-failure, delay: 5s}, update_config: {order: start-first}}
    healthcheck: {test: curl -f x, interval: 1m30s, timeout: 5s, retries: 3, start_period: 10m}
    depends_on: {b: {condition: service_healthy, restart: true, required: false}}
    networks: {n: {aliases: [x], ipv4_address: 10.0.0.2}}
    logging: {driver: json-file, options: {max-size: 5m}}
    ulimits: {memlock: -1, stack: {soft: 1, hard: 2}}
    shm_size: 16gb
    mem_limit: 1g
    memswap_limit: -1
    ipc: host
    x-mine: {any: thing}
    extra_hosts: ["h:host-gateway"]
    stop_grace_period: 90s
    sysctls: {net.core.somaxconn: 5}
    tmpfs: /run
    develop: {watch: [{action: sync, path: a, target: b}]}
    secrets: [s]
    configs: [{source: c, target: /c, mode: 0440}]
  b: {image: y, network_mode: host, profiles: [p], pull_policy: never, runtime: nvidia, scale: 1}
volumes: {a: , v: {driver: local, driver_opts: {type: nfs}, external: false}}
networks: {n: {driver: bridge, internal: true, ipam: {config: [{subnet: 10.0.0.0/24}]}}}
secrets: {s: {file: ./s}}
configs: {c: {content: x}}
x-top: [1]
version: "3.8"
""",
    "empty": A + "    command:\n    entrypoint:\n",
    "variables": A + "    mem_limit: ${M:-1g}\n    healthcheck: {interval: '${I:-5s}'}\n",
    "merges": "x-a: &a {tty: true, environment: &e {A: b}}\nservices:\n  a:\n    <<: [*a]\n"
    "    image: x\n    environment: {<<: *e, B: c}\n",
    "resets": A + "    ports: !reset []\n    command: !reset null\n    volumes: !override [a:/a]\n"
    "volumes: {a: {}}\n",
    "sizes": A + "    mem_limit: 1073741824\n    shm_size: 64MB\n    memswap_limit: 1.5g\n",
}  # fmt: skip


def faults(text: str, name: str = "compose.yaml") -> list[str]:
    errors = (one for one in found(name, text, NOTHING) if str(one.severity) == "error")
    return [one.what for one in errors if one.rule == REFUSED]


@pytest.mark.parametrize("name", [*REFUSES, *TAKES])
def test_it_is_what_compose_says(name: str, tmp_path: Path) -> None:
    text = {**REFUSES, **TAKES}[name]
    assert bool(faults(text)) is (name in REFUSES)
    file = tmp_path / "compose.yaml"
    file.write_text(text)
    words = need(lambda: compose.refusal(file, _clients()))
    assert bool(words) is (name in REFUSES), words


def test_place_and_hint() -> None:
    (one,) = [one for one in found("c.yaml", REFUSES["a service twice"], NOTHING) if one.fix]
    assert (one.line, one.column, str(one.severity)) == (4, 3, "error")
    assert one.what == "`a` is there twice: it stands in line 2 already"
    (one,) = found("c.yaml", REFUSES["an unknown key"], NOTHING)
    assert (one.line, one.column, one.fix) == (4, 5, "`command`")
    (one,) = found("c.yaml", REFUSES["text as ports"], NOTHING)
    assert (one.line, one.what, one.fix) == (4, "services.a.ports is `8000`", "a list")


def test_a_file_of_another_tool_is_none_of_compose() -> None:
    ci = "steps: [{name: test, image: go}]\nservices:\n  db: {image: pg, pull: 1}\n"
    assert faults(ci, "ci.yml") == []
    assert faults(A + "gadgets: {}\n", "x.yaml") == []
    assert faults(A + "gadgets: {}\n", "my-stack.yaml") == [
        "compose knows no key `gadgets` at its first level"
    ]


def test_values_that_aliases_multiply_are_judged_once() -> None:
    ports = ", ".join(["*p"] * 2000)
    names = "".join(f"  s{n}: *s\n" for n in range(2000))
    text = f"x-p: &p {{target: 1}}\nx-s: &s {{image: x, ports: [{ports}]}}\nservices:\n{names}"
    begin = time.process_time()
    assert faults(text) == []
    assert time.process_time() - begin < 5
