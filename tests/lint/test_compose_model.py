"""What compose refuses because parts of a file do not fit, held against compose itself."""

from pathlib import Path

import pytest

from console.checks.lint.rule import Facts
from console.checks.lint.run import REFUSED, lint
from console.checks.lint.unit import Finding
from tests.lint.faults import NOTHING
from tests.testbed import compose
from tests.testbed.engine import _clients
from tests.testbed.plugin import need

A = "services:\n  a:\n    image: x\n"
B = "  b: {image: y}\n"
GPU = "    deploy: {resources: {reservations: {devices: [%s]}}}\n"
REFUSES = {
    "a service that is not there": A + "    depends_on: [b]\n",
    "and with a condition": A + "    depends_on: {b: {condition: service_started}}\n",
    "and where it is not required": A
    + "    depends_on: {b: {condition: service_started, required: false}}\n",
    "no condition": A + "    depends_on: {b: {restart: true}}\n" + B,
    "another condition": A + "    depends_on: {b: {condition: healthy}}\n" + B,
    "a service twice": A + "    depends_on: [b, b]\n" + B,
    "a circle": A + "    depends_on: [b]\n  b: {image: y, links: [c]}\n"
    "  c: {image: z, depends_on: [a]}\n",
    "itself": A + "    depends_on: [a]\n",
    "another's network": A + "    network_mode: service:b\n",
    "another's processes": A + "    pid: service:b\n",
    "another's volumes": A + "    volumes_from: ['b:ro']\n",
    "a volume": A + "    volumes: [models:/models]\n",
    "a volume in the long form": A + "    volumes: [{type: volume, source: vv, target: /a}]\n",
    "a network": A + "    networks: {n: {aliases: [x]}}\n",
    "a secret": A + "    secrets: [s]\n",
    "a config": A + "    configs: [{source: s, target: /x}]\n",
    "a secret of a build": "services:\n  a:\n    build: {context: ., secrets: [s]}\n",
    "an empty secret": A + "secrets: {s: {}}\n",
    "two contents": A + "configs: {s: {file: ./x, content: y}}\n",
    "an external volume with a driver": A + "volumes: {v: {external: true, driver: x}}\n",
    "no image": "services:\n  a:\n    command: [x]\n",
    "nothing at all": "services:\n  a: {}\n",
    "two networks": A + "    network_mode: host\n    networks: [default]\n",
    "a port above all": A + "    ports: ['70000:80']\n",
    "a port of a container above all": A + "    ports: [70000]\n",
    "a port in words": A + "    ports: ['http:80']\n",
    "a protocol": A + "    ports: ['80:80/tpc']\n",
    "ranges": A + "    ports: ['80-82:80-81']\n",
    "a range backwards": A + "    ports: ['82-80:82-80']\n",
    "an address": A + "    ports: ['127.0.0.300:80:80']\n",
    "a name as an address": A + "    ports: ['localhost:80:80']\n",
    "no target": A + "    ports: [{published: '80'}]\n",
    "a truth as a port": A + "    ports: [true]\n",
    "a service to extend": A + "    extends: {service: b}\n",
    "a file to extend": A + "    extends: {file: none.yaml, service: b}\n",
    "two that extend each other": A + "    extends: b\n  b: {image: y, extends: a}\n",
    "a file of variables": A + "    env_file: none.env\n",
    "a required one": A + "    env_file: [{path: none.env, required: true}]\n",
    "a file of labels": A + "    label_file: none.labels\n",
    "a file to include": A + "include: [none.yaml]\n",
    "cards without a capability": A + GPU % "{driver: nvidia, count: 1}",
    "cards by number and name": A
    + GPU % "{count: 1, device_ids: ['0'], capabilities: [gpu]}",
    "cards in words": A + GPU % "{count: two, capabilities: [gpu]}",
    "numbers of cards": A + GPU % "{device_ids: [0], capabilities: [gpu]}",
    "capabilities in a list": A + GPU % "{capabilities: [[gpu]]}",
    "a number of cards": A + "    gpus: 1\n",
    "cards of gpus twice": A + "    gpus: [{count: 1, device_ids: ['0']}]\n",
    "processors": A + "    cpus: two\n",
    "replicas": A + "    deploy: {replicas: two}\n",
    "two limits": A + "    mem_limit: 2g\n    deploy: {resources: {limits: {memory: 1g}}}\n",
    "two numbers of processors": A
    + "    cpus: 2\n    deploy: {resources: {limits: {cpus: '1'}}}\n",
    "a name for several": A + "    scale: 2\n    container_name: cc\n",
    "a name of one letter": A + "    container_name: c\n",
    "a truth in words": A + "    privileged: maybe\n",
    "a number as a truth": A + "    tty: 1\n",
    "a number as a word": A + "    command: [--port, 8000]\n",
    "nothing as a word": A + "    command: [null]\n",
    "a number as a user": A + "    user: 1000\n",
    "a version without quotes": A + "version: 3.8\n",
    "a pull policy": A + "    pull_policy: sometimes\n",
    "half a limit": A + "    ulimits: {nofile: {soft: 1}}\n",
    "a list as a variable": A + "    environment: {A: [1]}\n",
    "a mapping as a variable": A + "    environment: [{A: 1}]\n",
    "a number as a duration": A + "    healthcheck: {test: x, interval: 5}\n",
    "a size in Gi": A + "    mem_limit: 5Gi\n",
    "a check without its kind": A + "    healthcheck: {test: [curl, x]}\n",
    "a kind of volume": A + "    volumes: [{type: bnd, source: /x, target: /y}]\n",
    "a volume without its place": A + "    volumes: [{type: bind, source: /x}]\n",
    "four parts": A + "    volumes: ['/a:/b:ro:z']\n",
    "a quote that stays open": A + "    command: --system it's\n",
    "a quote of an entrypoint": A + "    entrypoint: sh -c \"x\n",
    "a backslash at the end": A + "    command: 'a \\'\n",
    "a bracket": A + "    command: echo (x)\n",
    "a bracket that closes": A + "    command: a)\n",
    "a backtick": A + "    command: echo `date\n",
    "one name for two": A + "    container_name: cc\n  b: {image: y, container_name: cc}\n",
    "half a volume": A + "    volumes: ['/models:']\n",
    "a volume of nothing": A + "    volumes: [':/models']\n",
    "a bare address with colons": A + "    ports: ['::1:80:80']\n",
    "a host without address": A + "    extra_hosts: [host.docker.internal]\n",
    "a host of a build": A + "    build: {context: ., extra_hosts: [h]}\n",
    "a directory of variables": A + "    env_file: .\n",
    "an empty image": A.replace("x", "''"),
    "no image at all": A.replace("x", ""),
    "a build of nothing": A + "    build:\n",
    "a network twice": A + "    networks: [default, default]\n",
    "a group twice": A + "    group_add: [video, video]\n",
    "a card twice": A + GPU % "{device_ids: ['0', '0'], capabilities: [gpu]}",
    "a limit in bytes": A + "    deploy: {resources: {limits: {memory: 1073741824}}}\n",
    "processor time": A + "    cpu_quota: 50ms\n",
    "processors in words": A + "    cpu_count: two\n",
    "a truth in quotes": A + "    tty: '1'\n",
    "a group of controls": A + "    cgroup: hosts\n",
    "a secret without source": A + "    secrets: [{target: s}]\nsecrets: {s: {file: x}}\n",
    "a hook without command": A + "    post_start: [{user: root}]\n",
    "keys of a build": A + "    build: {context: ., target: 5, ssh: default}\n",
    "weights": A + "    blkio_config: {weights: 10}\n",
    "options of a volume": A + "volumes: {v: {driver_opts: {size: [5]}}}\n",
    "external in words": A + "volumes: {v: {external: maybe}}\n",
    "a driver": A + "networks: {n: {driver: 5}}\n",
    "content": A + "configs: {c: {content: 5}}\n",
    "a variable": A + "    command: ${X\n",
    "a variable without a name": A + "    command: echo ${}\n",
}  # fmt: skip
TAKES = {
    "declared": A
    + "    depends_on: {b: {condition: service_healthy}}\n    networks: [n, default]\n"
    "    volumes: [vv:/a, ./x:/b, /c, ~/d:/e, ../f:/g, v:/h]\n    secrets: [s]\n    configs: [c]\n"
    "  b: {image: y, healthcheck: {test: x}, links: [c], volumes_from: [c]}\n"
    "  c: {image: z, volumes_from: ['container:other:ro']}\nnetworks: {n: }\nvolumes: {vv: }\n"
    "secrets: {s: {environment: S}}\nconfigs: {c: {content: x}}\n",
    "ports": A + "    ports: ['80', 81, '127.0.0.1:82:82', '[::1]:83:83', '127.0.0.1::84',\n"
    "      '85-86:85-86', '90-99:87', '0:88', '89:89/udp', {target: 91, published: 91},\n"
    "      '${P}:80', {target: 92, published: '93-94'}]\n",
    "cards": A + GPU % "{driver: nvidia, count: all, capabilities: [gpu]}, "
    "{device_ids: ['0', GPU-1], capabilities: [gpu]}, {count: -1, capabilities: [gpu]}",
    "cards of gpus": A + "    gpus: [{count: 1, driver: nvidia}]\n",
    "the same twice": A + "    mem_limit: 1024m\n    cpus: 2\n    scale: 1\n"
    "    deploy: {replicas: 1, resources: {limits: {memory: 1g, cpus: '2.0'}}}\n",
    "truths": A + "    tty: 'true'\n    init: yes\n    privileged: no\n    stdin_open: false\n",
    "words": A + "    user: '1000'\n    restart: no\n    hostname: a1\n    command: ['1', a=2]\n"
    "    environment: {A: 1, B: true, C: , D: x}\n    labels: [a=b]\n    shm_size: 16 gb\n",
    "extended": A + "    extends: b\n  b: {build: ., extends: {service: c}}\n  c: {image: z}\n",
    "optional": A + "    env_file: [{path: none.env, required: false}]\n",
    "a backwards circle": A + "    depends_on: [b, c]\n  b: {image: y, depends_on: [c]}\n"
    "  c: {image: z}\n",
    "a dollar": A + "    command: echo $$X $${Y ${Z:-a} ${Q:+b} $\n",
    "quotes": A + "    command: sh -c \"a (b) 'c' `d`\" x 'y (z'\n",
    "the end of a command": A + "    command: \"a > b 'x (\"\n    entrypoint: echo $$(date)\n",
    "variables with quotes": A + "    command: --system ${X:-'it is'}\n",
    "names apart": A + "    container_name: cc\n"
    "  b: {image: y, container_name: cc, profiles: [p]}\n",
    "hosts": A + "    extra_hosts: ['a:host-gateway', 'b=1.2.3.4', '${H:-c:1.2.3.4}']\n",
    "sizes": A + "    mem_limit: 1073741824\n    shm_size: .5g\n    memswap_limit: 0x80000000\n"
    "    deploy: {resources: {reservations: {memory: '1073741824'}}}\n",
    "odd names": A + "    environment: {A b: 1}\n    labels: {c d: 1}\n",
    "processor shares": A + "    cpu_shares: '512'\n    cpu_quota: 50000\n    cpu_count: 2\n",
    "cards of any case": A + GPU % "{count: ALL, capabilities: [gpu]}",
    "disks": A + "    blkio_config: {weight: 10, device_read_bps: [{path: /dev/x, rate: 1mb}]}\n",
    "external": A + "volumes: {v: {external: true, name: w}}\n"
    "secrets: {s: {external: true}, t: {file: ./x, external: true}}\n",
    "an external network": A + "networks: {n: {external: true, driver: x}}\n",
}  # fmt: skip


def findings(path: Path, text: str, facts: Facts = NOTHING) -> list[Finding]:
    path.write_text(text)
    return [one for one in lint([path], facts).findings if one.rule == REFUSED]


@pytest.mark.parametrize("name", [*REFUSES, *TAKES])
def test_it_is_what_compose_says(name: str, tmp_path: Path) -> None:
    text, file = {**REFUSES, **TAKES}[name], tmp_path / "compose.yaml"
    found = findings(file, text)
    assert bool(found) is (name in REFUSES), found
    assert all(one.fix and one.line for one in found)
    words = need(lambda: compose.refusal(file, _clients()))
    assert bool(words) is (name in REFUSES), words


def said(path: Path, text: str) -> list[tuple[int, str, str]]:
    return [(one.line, one.what, str(one.severity)) for one in findings(path, text)]


def test_what_a_profile_starts(tmp_path: Path) -> None:
    file, more = tmp_path / "compose.yaml", "  b: {image: y, profiles: [p]}\n"
    words = "services.a needs `b`, which only a profile starts"
    assert said(file, A + "    depends_on: [b]\n" + more) == [(4, words, "warning")]
    assert said(file, A + "    network_mode: service:b\n" + more) == [(4, words, "warning")]
    assert not said(file, A + "    profiles: [p]\n    depends_on: [b]\n" + more)
    loose = "    depends_on: {b: {condition: service_started, required: false}}\n"
    assert not said(file, A + loose + more)


def test_what_only_the_start_would_tell(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    ports = A + "    ports: ['80:80', '80:81']\n"
    assert said(file, ports) == [(4, "services.a publishes port 80, twice in line 4", "error")]
    two = A + "    ports: ['80:80']\n  b: {image: y, ports: ['127.0.0.1:80:1']}\n"
    assert said(file, two) == [
        (5, "services.b publishes port 80, and so does a in line 4", "warning")
    ]
    assert said(file, two.replace("image: y", "image: y, profiles: [p]")) == []
    assert said(file, A + "    ports: ['80:80', '80:80']\n") == []
    assert said(file, A + "    ports: ['127.0.0.1:80:80', '127.0.0.2:80:80']\n") == []
    waits = A + "    depends_on: {b: {condition: service_healthy}}\n" + B
    assert said(file, waits) == [
        (4, "services.a waits until `b` is healthy, which has no `healthcheck`", "warning")
    ]
    (never,) = said(file, waits.replace("image: y", "image: y, healthcheck: {disable: true}"))
    assert never[2] == "error"


def test_a_layer_may_name_what_another_file_declares(tmp_path: Path) -> None:
    layer = "services:\n  a:\n    depends_on: [b]\n    volumes: [vv:/v]\n"
    assert len(findings(tmp_path / "stack.yaml", layer)) == 3
    assert findings(tmp_path / "compose.override.yaml", layer) == []
    (tmp_path / "docker-compose.yml").write_text(A)
    assert findings(tmp_path / "stack.yaml", layer) == []
    assert findings(tmp_path / "docker-compose.yml", layer) == []
    (tmp_path / "compose.override.yaml").unlink()
    assert len(findings(tmp_path / "docker-compose.yml", layer)) == 3
    assert findings(tmp_path / "docker-compose.yml", layer + "include: [stack.yaml]\n") == []


def test_place_and_next_step(tmp_path: Path) -> None:
    (one,) = findings(tmp_path / "compose.yaml", A + "    volumes:\n      - models:/m\n")
    assert (one.line, one.column) == (5, 9)
    assert one.what == "services.a uses the volume `models`, which the file does not declare"
    assert one.fix == (
        "`models:` under `volumes:` at the first level; a directory begins with `./`, as `./models`"
    )
    (one,) = findings(tmp_path / "compose.yaml", A + "    depends_on: [a]\n")
    assert one.what == "services need each other: a → a"
