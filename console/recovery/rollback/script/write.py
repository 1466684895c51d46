"""Writes rollback.sh: the sealed plan as a POSIX script, for a machine whose Python is broken.

This module also makes the commands that a person can paste into a shell if a rollback fails.

The script needs sh, coreutils and sed, docker for containers, and curl (or else python3 or wget)
for the proof. Values are sealed as single-quoted words; the rest is the fixed `template.BODY`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
from pathlib import Path

from console.common import paths, redact
from console.common.argv import names_of, words_behind
from console.common.files import MAX_END
from console.common.logs.output import of_process
from console.common.options.engines import LLAMA, OLLAMA, SGLANG, VLLM, engine_of
from console.common.text import one_line
from console.host import process, units
from console.host.ports import is_local, listener, ways
from console.host.process import BASELINE_COOKIE, COOKIE
from console.recovery.rollback import evidence, records
from console.recovery.rollback.context import ENGINE_WAIT_S, log_path
from console.recovery.rollback.live import LIVE
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.script.template import BODY
from console.recovery.rollback.sealed_plan import SCRIPT, SITE, Baseline, SealedPlan, site_script
from console.recovery.rollback.stages import left, start, stop, verify, whose
from console.recovery.rollback.trigger import FIFO, INBOX
from console.runtime import probe, reach
from console.runtime import proxy as relay
from console.runtime.engine_address import DEFAULT_SOCKET
from console.runtime.root_helper import HELPER
from console.runtime.spec import OWNER_LABEL, RUN_LABEL, owner_on, role_label

_CURL, _CURL_REFUSED = "curl -q --noproxy '*' -sS", 7
"""A question that no user's settings and no proxy change; its exit code where nothing listens."""
WAIT = "# the baseline runs, and may still load: wait, or see in its log why it does not answer"
LOOPS = "# something starts the baseline again and again, and it ends: its log may say why"
ANSWERED = "# the baseline runs and answers garbage: its log, or its engine's settings, may say why"
ITS_ENGINE_IS_DEAD = "# the baseline runs, and its engine is dead: its log may say why; do not wait"
MORE_TOKENS = 128
"""Tokens that a second question gets: a model that reasons needs more than the first one gives."""
_PORTABLE = re.compile(r"(?:[A-Za-z0-9 _,:;!%&=<>@#~/'-]|\.[*+]?|\\[.()|]|[()|^$](?![?*+]))+")
"""Patterns that mean the same to `grep -E` and in JSON, where a quote is written otherwise."""
_PROGRAMS = {LLAMA: "llama-server", VLLM: "vllm", SGLANG: "sglang", OLLAMA: "ollama"}
_USUAL = {engine.port: program for engine, program in _PROGRAMS.items()}
"""Which program listens at a port without being told one."""
_PROGRAM = re.compile(r"[\w./+@:-]+", re.ASCII)
SHELLS_OWN = frozenset((
    "BASHOPTS", "BASH_VERSINFO", "EUID", "IFS", "LINENO", "OPTIND", "PPID", "SHELLOPTS", "UID",
))  # fmt: skip
"""Variables that some shell lets nobody set: it would end, and start no baseline."""
_NAME = re.compile("[A-Za-z_][A-Za-z_0-9]*")
_EXPORTED = (
    r"env | sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p' | grep -vxE '"
    f"{'|'.join(sorted(SHELLS_OWN))}'"
)
"""Prints the names of the exported variables that can be unset."""
_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")


def render(plan: SealedPlan) -> str:
    """The whole script. Bytes of a path that are not UTF-8 are escaped with `surrogateescape`."""
    lines = [
        "#!/bin/sh",
        "# Sealed rollback. Stops candidates, starts the baseline, proves it. Removes nothing.",
        "# Exit: 0 the baseline serves, 7 it does not.",
        "set -u",
        *(f"{name}={shlex.quote(value)}" for name, value in _values(plan).items()),
        *_exports(plan),
        "",
        "start_fallback() {",
        f"  {_compose(plan)}",
        "}",
        "spawn_baseline() {",
        *(f"  {line}" for line in _spawn(plan)),
        "}",
    ]
    return "\n".join(lines) + "\n" + BODY


def write(plan: SealedPlan, directory: Path) -> Path:
    """Write rollback.sh to the plan's directory; return its path. Only its owner reads it, as it
    may hold secrets. Raises OSError."""
    if plan.site_name:
        with contextlib.suppress(OSError):  # the script then keeps no evidence
            paths.make(evidence.directory(plan.site_name, plan.baseline.url))
    path = directory / SCRIPT
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
    with open(descriptor, "wb") as file:
        file.write(render(plan).encode("utf-8", "surrogateescape"))
        file.flush()
        os.fchmod(descriptor, 0o700)
        os.fsync(descriptor)
    return path


def _values(plan: SealedPlan) -> dict[str, str]:
    base = plan.baseline
    url = base.url.rstrip("/").removesuffix("/v1")
    expect, flags = _grep_pattern(base.completion.expect)
    kept = (base.container_name, base.container_id, *plan.protected)
    return {
        "RUN": plan.run_id,
        "COOKIE": plan.run_id.replace(".", "[.]") if _PLAIN.fullmatch(plan.run_id) else "",
        **_site_files(plan),
        "LIVE": str(plan.rollback_dir / LIVE),
        "MAX_END": str(MAX_END),
        "LOCK": str(plan.rollback_dir / "lock"),
        "LADDER": str(plan.rollback_dir / FIFO),
        "SEEN": str(evidence.directory(plan.site_name, base.url)) if plan.site_name else "",
        "SPARE": str(evidence.spare(plan.site_name, base.url)) if plan.site_name else "",
        "TARGET": json.dumps(evidence.target_of(plan)),
        "PROGRESS": str(plan.rollback_dir / PROGRESS_FILE),
        "SENTINEL": str(Path(plan.run_dir, *INBOX)) if plan.run_dir else "",
        "KIND": base.kind,
        "NAME": base.name,
        **_container_values(base),
        "KEPT": "".join(f"|{name}|" for name in kept if name),
        "PORT": str(relay.port_of(base.url)),
        "AT": _addresses(plan),
        "ADDRESSES": "\n".join(_candidates(plan)),
        "HELPER": HELPER,
        "HOSTS": "".join(f"|{host}|" for host in relay.hosts(base.url)),
        "HEALTH": f"{url}/{base.ready_path.lstrip('/')}",
        "ASK": f"{url}/v1/chat/completions",
        **dict(zip(("BODY_HEAD", "BODY_MIDDLE", "BODY_TAIL"), _body(plan), strict=True)),
        "TOKENS": str(base.completion.max_tokens),
        "MORE_TOKENS": str(max(MORE_TOKENS, base.completion.max_tokens)),
        "EXPECT": expect,
        "EXPECT_CASE": flags,
        "EXPECT_LEFT_OUT": "yes" if base.completion.expect and not expect else "",
        "READY_S": f"{base.ready_timeout_s:.0f}",
        **{name: f"{seconds:.0f}" for name, seconds in _limits().items()},
        "ASK_S": f"{max(1.0, base.completion.timeout_s):.0f}",
        "GRACE_S": f"{plan.grace_s:.0f}",
        "RECORD": str(process.record_path(plan.records_dir, base.name)) if base.process else "",
        "SERVICES": str(plan.records_dir.parent),
        **_known_by(base),
        **_process(base),
        "MARK": "=".join(_mark(plan)),
        **_unit(base),
        "CALL_S": f"{units.CALL_S:.0f}",
        "LOG": str(log_path(plan)) if base.process else "",
        **_by_hand(plan),
        **_words(base),
        "ROLE_LABEL": role_label(),
        "OWNER_LABEL": OWNER_LABEL,
        "RUN_LABEL": RUN_LABEL,
        "OWNER": owner_on(plan.site_name),
        "EXCLUSIVE": "yes" if plan.exclusive else "",
        "BOXES": "yes" if stop.has_containers(plan) else "",
        "ENGINE": "yes" if base.kind == "container" or _exports(plan) else "",
    }


def _words(base: Baseline) -> dict[str, str]:
    """What is said of a baseline that is left as it is, and what tells whether it lives."""
    return {
        "ALL_THE_SAME": probe.wrong_path(base.ready_path),
        **{name: getattr(verify, name) for name in ("SENDS", "LOADS")},
        "IS_LEFT": whose.LEFT,
        "UNREACHED": f"{reach.NOTHING_CAME}: {reach.HINT}",
        **{name: getattr(probe, name) for name in ("ENGINE_DEAD", "ENGINE_LIVES", "TLS")},
    }


def _limits() -> dict[str, float]:
    """Seconds that are the same for every baseline, by their names in the script."""
    return {
        "HUNG_S": verify.HUNG_S, "HEALTH_S": probe.HEALTH_S, "QUICK_S": verify.QUICK_S,
        "REFUSING_S": verify.REFUSING_S, "ADDRESS_S": start.ADDRESS_S,
        "MAX_STARTS": verify.MAX_STARTS,
        "AGAIN_S": start.RESTART_GRACE_S, "ENGINE_S": ENGINE_WAIT_S,
    }  # fmt: skip


def _unit(base: Baseline) -> dict[str, str]:
    user = base.unit is not None and base.unit.user
    return {
        "UNIT": base.unit.name if base.unit else "",
        "UNIT_FLAG": "--user" if user else "--system",
    }


def _by_hand(plan: SealedPlan) -> dict[str, str]:
    """The commands to type where the rollback fails, by what is known of the baseline then."""
    lists = {
        "BY_HAND": commands(plan, later=True),
        "BY_HAND_ALIVE": commands(plan, lives=True, later=True),
        "BY_HAND_RUNS": commands(plan, runs=True, later=True),
        "BY_HAND_GARBLED": commands(plan, runs=True, why=ANSWERED, later=True),
        "BY_HAND_DEAD": commands(plan, runs=True, why=ITS_ENGINE_IS_DEAD, later=True),
    }
    return {name: "\n".join(f"  {line}" for line in lines) for name, lines in lists.items()}


def _addresses(plan: SealedPlan) -> str:
    """The addresses at which a socket answers for the baseline, as sed patterns in hexadecimal.

    A pattern has no character that a shell expands. There are no patterns if the baseline may be on
    another machine.
    """
    base = plan.baseline
    here = base.kind != "container" or is_local(base.url)
    return _patterns(base.url) if here else ""


def _patterns(url: str) -> str:
    rows = ways(url, here=True) or [(r".\{8,32\}",)]
    return " - ".join(" ".join(row) for row in rows)


def _candidates(plan: SealedPlan) -> list[str]:
    """The name, port and addresses of each candidate that answers on this machine and not where the
    baseline does."""
    return [
        f"{candidate.service} {relay.port_of(candidate.url)} {_patterns(candidate.url)}"
        for candidate in plan.candidates
        if candidate.url
        and is_local(candidate.url)
        and not left.is_at(candidate.url, plan.baseline.url)
    ]


def _mark(plan: SealedPlan) -> tuple[str, ...]:
    """The variable and value by which the script finds a baseline process without its record."""
    base = plan.baseline
    return process.mark(plan.records_dir, base.name, base.process) if base.process else ()


def _process(base: Baseline) -> dict[str, str]:
    """What tells a process baseline: its program as a pattern of sed, and its words, one a line,
    both empty where a word would not be the same there; and how long another may keep its place."""
    words = base.process.argv if base.process else ()
    plain = bool(words) and _PROGRAM.fullmatch(words[0]) and not any("\n" in w for w in words)
    pattern = re.sub(r"[.+]", r"[\g<0>]", words[0]).replace("/", r"\/") if plain else ""
    return {
        "PROGRAM": pattern,
        "ARGV": "\n".join(words) if plain else "",
        "SAME": _PROGRAMS.get(engine, "") if (engine := engine_of(words)) is not None else "",
        "USUALS": "\n".join(f"{port} {program}" for port, program in _USUAL.items()),
        "USUAL": _USUAL.get(relay.port_of(base.url), ""),
        "LEAVES_S": f"{start.LEAVES_S:.0f}",
        "SHA": process.spec_sha(base.process) if base.process else "",
    }


def _site_files(plan: SealedPlan) -> dict[str, str]:
    """The site file, and the run's copy of it: whether it is the same that was sealed. As JSON has
    it, with the places of this user's pointer: whether another run has begun on it."""
    copy = str(Path(plan.run_dir, SITE)) if plan.run_dir else ""
    return {
        "SITE_FILE": plan.site_path, "SITE_COPY": copy,
        "SITE_JSON": json.dumps(plan.site_path)[1:-1],
        "POINTERS": "\n".join(map(str, records.pointer_paths(os.getuid()))),
        "USER_ID": str(os.getuid()),
    }  # fmt: skip


def _known_by(base: Baseline) -> dict[str, str]:
    """The names by which the script knows the program of a process baseline again, and the words
    that the site file tells to it, one a line."""
    argv = base.process.argv if base.process else ()
    words = [word.replace("\n", " ") for word in words_behind(argv)]
    return {"NAMES": "\n".join(sorted(names_of(argv))), "WANTED": "\n".join(words)}


def _exports(plan: SealedPlan) -> list[str]:
    address = plan.engine
    host = address.docker_host or (f"unix://{address.socket}" if address.socket else "")
    pairs = (("DOCKER_HOST", host), ("DOCKER_CONFIG", address.docker_config))
    return [f"export {key}={shlex.quote(value)}" for key, value in pairs if value]


def _body(plan: SealedPlan) -> tuple[str, str, str]:
    """The completion's JSON before the nonce, between it and the number of tokens, and after it."""
    head, _, rest = completion_body(plan, "[@NONCE@] ").partition("@NONCE@")
    key = '"max_tokens": '
    middle, _, tail = rest.rpartition(f"{key}{plan.baseline.completion.max_tokens}")
    return head, middle + key, tail


def _grep_pattern(expect: str) -> tuple[str, str]:
    """A pattern for `grep -E`, and its flags; two empty texts for one that means something else
    there than here."""
    flags, plain = ("-i", expect[4:]) if expect.startswith("(?i)") else ("", expect)
    return (plain, flags) if _PORTABLE.fullmatch(plain) else ("", "")


def _compose(plan: SealedPlan) -> str:
    base = plan.baseline
    if not base.compose_argv:
        return "return 1"
    env = [f"{key}={value}" for key, value in base.compose_env]
    return shlex.join(["timeout", "120", "env", *env, *base.compose_argv])


def _spawn(plan: SealedPlan) -> list[str]:
    """The lines of the subshell that becomes the baseline's process by `exec`. No value of its
    environment is in an argv, which everybody can read and auditd keeps."""
    spec = plan.baseline.process
    if spec is None:
        return ["return 1"]
    base = plan.baseline
    pairs = (*base.environment, *spec.env, (COOKIE, BASELINE_COOKIE), _mark(plan))
    plain = [pair for pair in pairs if _NAME.fullmatch(pair[0]) and pair[0] not in SHELLS_OWN]
    odd = [f"{name}={value}" for name, value in pairs if (name, value) not in plain]
    argv = " ".join(['"$program"', *map(shlex.quote, spec.argv[1:])])
    return [
        *([f"cd {shlex.quote(spec.cwd)} || exit 7"] if spec.cwd else []),
        f"program={shlex.quote(base.program)}",
        f'if ! [ -x "$program" ]; then program={shlex.quote(spec.argv[0])}; fi',
        f"set -- {argv}",
        *([f'set -- "$(command -v env)" {shlex.join(odd)} "$@"'] if odd else []),
        'if command -v nohup >/dev/null 2>&1; then set -- "$(command -v nohup)" "$@"; fi',
        'if command -v setsid >/dev/null 2>&1; then set -- "$(command -v setsid)" "$@"; fi',
        *([f'for name in $({_EXPORTED}); do unset "$name"; done'] if base.environment else []),
        *(f"export {name}={shlex.quote(value)}" for name, value in plain),
        'exec "$@"',
    ]


def docker_words(plan: SealedPlan) -> str:
    """`docker`, preceded by the variables for the sealed address if that is not the default one."""
    address = plan.engine
    host = address.docker_host or (f"unix://{address.socket}" if address.socket else "")
    words = []
    if host and host != f"unix://{DEFAULT_SOCKET}":
        words.append(f"DOCKER_HOST={shlex.quote(host)}")
    if address.docker_config:
        words.append(f"DOCKER_CONFIG={shlex.quote(address.docker_config)}")
    return " ".join([*words, "docker"])


def commands(
    plan: SealedPlan, *, lives: bool = False, runs: bool = False, why: str = WAIT,
    container: str = "", later: bool = False,
) -> tuple[str, ...]:  # fmt: skip
    """Commands that stop candidates, start the baseline where nothing listens at its address, show
    its log and query it. Nothing that takes a connection or may still load is ended, and nothing is
    started beside it. `lives`: it is known to live and refuses, or is busy, so only its log and its
    answer help. `runs`: it is up, and may still load, so that candidates beside it end at most;
    `why`: what is known of one that runs and does not serve, as a comment.
    `container`: the one that it has become, where that is known. `later`: they are kept for a time
    when the baseline may have been started anew, and then it writes to the file of its start.
    """
    base = plan.baseline
    out: list[str] = [] if lives else [*_stops(plan), *([why] if runs else _starts(plan))]
    if base.kind == "container":
        name = container or _container(plan)
        out += [f"{docker_words(plan)} logs --tail 50 {shlex.quote(name)}"] if name else []
    elif base.process is not None:
        pid = None if later and not lives else _recorded(plan, anybody=not later and lives)
        out.append(_shows_log(plan, pid, later=later))
    elif base.unit is not None:
        out.append(shlex.join(base.unit.journal(50)))
    health = base.url.rstrip("/") + "/" + base.ready_path.lstrip("/")
    return (*out, f"{_CURL} -m 5 {shlex.quote(health)}", _ask(plan))


def _recorded(plan: SealedPlan, *, anybody: bool) -> int | None:
    """The pid of the baseline's process that runs; without a record None, or with `anybody` that of
    what listens at its address."""
    base = plan.baseline
    known = process.read_record(plan.records_dir, base.name, base.process)
    if known is not None and process.alive(*known):
        return known[0]
    server = listener(base.url) if anybody else None
    return server.pid if server is not None else None


def _shows_log(plan: SealedPlan, pid: int | None, *, later: bool) -> str:
    """What shows the log of a baseline that is a host process. One that was adopted writes to where
    its own starter sent it, and may have no file; while none runs, it is the file of its start,
    which may not be there yet."""
    output = of_process(pid) if pid is not None else None
    path = log_path(plan) if output is None else output.path
    if output is not None and path is None:
        return f"# its log: {one_line(output.words, 200)}"
    assert path is not None
    if not (later or os.path.exists(path)):
        where = one_line(str(path), 200)
        return f"# its log: none yet; where the console starts it, it writes to {where}"
    return f"tail -n 50 {shlex.quote(str(path))}"


def _container_values(base: Baseline) -> dict[str, str]:
    """How the script finds the container. NAMED: the name that it should have; what compose makes
    may have another one. SERVICE, PROJECT: of which compose makes it."""
    argv = base.compose_argv
    named = "" if argv else base.container_name
    project = next((word for flag, word in itertools.pairwise(argv) if flag == "-p"), "")
    return {
        "BASE_ID": base.container_id, "BASE_NAME": base.container_name, "NAMED": named,
        "SERVICE": argv[-1] if argv else "", "PROJECT": project,
    }  # fmt: skip


def _container(plan: SealedPlan) -> str:
    """What a person calls the baseline's container: one that compose makes anew keeps its name and
    not its id."""
    base = plan.baseline
    named = base.container_name if base.compose_argv else ""
    return named or next(iter(base.ways), "")


def _ask(plan: SealedPlan) -> str:
    base = plan.baseline
    url = base.url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
    return (
        f"{_CURL} -m {max(1.0, base.completion.timeout_s):.0f} "
        "-H 'Content-Type: application/json' "
        f"-d {shlex.quote(completion_body(plan))} {shlex.quote(url)}"
    )


def _if_refused(plan: SealedPlan, line: str) -> str:
    """The line, done only where curl's exit code says that the connection is refused: a server that
    is slow, or that curl cannot ask, is neither ended nor doubled."""
    return f"{_ask(plan)}; [ $? -ne {_CURL_REFUSED} ] || {line}"


def _stops(plan: SealedPlan) -> list[str]:
    """What stops fewer containers than a rollback does: one without an owner's label may be
    anybody's, and a person who pastes this does not inspect each container first."""
    if not (plan.engine.socket or plan.engine.docker_host or plan.baseline.kind == "container"):
        return []
    docker, owner = docker_words(plan), shlex.quote(f"{OWNER_LABEL}={owner_on(plan.site_name)}")
    return [
        f"{docker} ps -q --filter label={role_label()}={role} --filter label={owner} | "
        f"xargs -r {docker if docker == 'docker' else 'env ' + docker} stop"
        for role in stop.ROLES
    ]


def _starts(plan: SealedPlan) -> list[str]:
    base, docker = plan.baseline, docker_words(plan)
    if base.unit is not None:
        return [_if_refused(plan, shlex.join(base.unit.command("start")))]
    if base.kind == "container":
        name = _container(plan)
        # `start` changes nothing of one that runs, and compose might make that one anew.
        start = f"{docker} start {shlex.quote(name)}" if name else ""
        if not base.compose_argv:
            return [_if_refused(plan, start)] if start else []
        if _hides((), base.compose_env) or redact.argv(base.compose_argv) != [*base.compose_argv]:
            return [*([_if_refused(plan, start)] if start else []), _by_script(plan)]
        extra = "".join(f"{key}={shlex.quote(value)} " for key, value in base.compose_env)
        prefix = docker.removesuffix("docker") if base.compose_argv[0] == "docker" else ""
        compose = f"{prefix}{extra}{shlex.join(base.compose_argv)}"
        return [_if_refused(plan, f"{start} || {compose}" if start else compose)]
    if base.process is None:
        return []
    pairs = (*base.environment, *base.process.env)
    argv = (base.program or base.process.argv[0], *base.process.argv[1:])
    if _hides(argv, pairs):
        return [_by_script(plan)]
    marked = "=".join(process.mark(plan.records_dir, base.name, base.process))
    left = f"sed -s -z -n '/^{marked}$/F' /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3"
    # What the record names may load, with or without a mark: then nothing ends and nothing starts.
    # Without a record nobody knows whether what has the mark is what a dead one has left behind.
    record = shlex.quote(str(process.record_path(plan.records_dir, base.name)))
    lives = f'kill -0 "$(sed -n \'s/.*"pid": *\\([0-9]*\\).*/\\1/p\' {record})" 2>/dev/null'
    end = f"{lives} || ! [ -s {record} ] || {{ {left} | xargs -r kill -9; sleep 5; }}"
    go = f"cd {shlex.quote(base.process.cwd)} && " if base.process.cwd else ""
    env = "".join(f"{key}={shlex.quote(value)} " for key, value in pairs)
    env = f"env {'-i ' if base.environment else ''}{env}" if env else ""
    start = f"{{ {go}{env}setsid nohup {shlex.join(argv)} </dev/null & }}"
    free = f'{lives} || [ -n "$({left})" ] || {start}'
    return [_if_refused(plan, end), _if_refused(plan, free)]


def _hides(argv: tuple[str, ...], pairs: tuple[tuple[str, str], ...]) -> bool:
    """Whether a command with these words and variables has a value that is never shown."""
    return redact.argv(argv) != [*argv] or any(redact.is_secret(*pair) for pair in pairs)


def _by_script(plan: SealedPlan) -> str:
    """What starts the baseline where its command may not be shown: the script has all values."""
    path = plan.rollback_dir / SCRIPT if plan.run_dir else site_script(plan.site_name)
    if plan.run_dir or path.exists():
        return f"sh {shlex.quote(str(path))}"
    return "# its command has secret values, which are not shown: omni-console rollback starts it"


def completion_body(plan: SealedPlan, before: str = "") -> str:
    """The JSON body, in ASCII, of the completion that proves the baseline; `before` precedes the
    prompt."""
    proof = plan.baseline.completion
    body: dict[str, object] = {"model": proof.model} if proof.model else {}
    body["messages"] = [{"role": "user", "content": before + proof.prompt}]
    body |= {"max_tokens": proof.max_tokens, "temperature": 0, "stream": False}
    return json.dumps(body)
