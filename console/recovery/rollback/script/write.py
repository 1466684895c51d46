"""Writes rollback.sh: the sealed plan as a POSIX script, for a machine whose Python is broken.

This module also makes the commands that a person can paste into a shell if a rollback fails.

The script needs sh, coreutils and sed, docker for containers, and curl (or else python3 or wget)
for the proof. Values are sealed as single-quoted words; the rest is the fixed `template.BODY`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

from console.common.files import MOST_END
from console.host import process, units
from console.host.ports import is_local, ways
from console.host.process import BASELINE_COOKIE, COOKIE
from console.recovery.rollback.context import log_path
from console.recovery.rollback.live import LIVE
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.script.template import BODY
from console.recovery.rollback.sealed_plan import SCRIPT, SealedPlan
from console.recovery.rollback.stages import start, verify
from console.recovery.rollback.stages.stop import ROLES
from console.recovery.rollback.trigger import FIFO, INBOX
from console.runtime import proxy as relay
from console.runtime.engine_api import DEFAULT_SOCKET
from console.runtime.spec import OWNER_LABEL, owner_on, role_label

ENGINE_S = 120
"""Seconds for which the script asks again if the engine does not answer at the baseline's start."""
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
    """Write rollback.sh (mode 0755) to the plan's directory; return its path. Raises OSError."""
    path = directory / SCRIPT
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o755)
    with open(descriptor, "wb") as file:
        file.write(render(plan).encode("utf-8", "surrogateescape"))
        file.flush()
        os.fchmod(descriptor, 0o755)
        os.fsync(descriptor)
    return path


def _values(plan: SealedPlan) -> dict[str, str]:
    base = plan.baseline
    url = base.url.rstrip("/").removesuffix("/v1")
    head, tail = _body(plan)
    cookie = plan.run_id if _PLAIN.fullmatch(plan.run_id) else ""
    kept = (base.container_name, base.container_id, *plan.protected)
    return {
        "RUN": plan.run_id,
        "COOKIE": cookie.replace(".", "[.]"),
        "LIVE": str(plan.rollback_dir / LIVE),
        "MOST_END": str(MOST_END),
        "LOCK": str(plan.rollback_dir / "lock"),
        "LADDER": str(plan.rollback_dir / FIFO),
        "PROGRESS": str(plan.rollback_dir / PROGRESS_FILE),
        "SENTINEL": str(Path(plan.run_dir, *INBOX)) if plan.run_dir else "",
        "KIND": base.kind,
        "NAME": base.name,
        "BASE_ID": base.container_id,
        "BASE_NAME": base.container_name,
        "KEPT": "".join(f"|{name}|" for name in kept if name),
        "PORT": str(relay.port_of(base.url)),
        "AT": _addresses(plan),
        "HOSTS": "".join(f"|{host}|" for host in relay.hosts(base.url)),
        "HEALTH": f"{url}/{base.ready_path.lstrip('/')}",
        "ASK": f"{url}/v1/chat/completions",
        "BODY_HEAD": head,
        "BODY_TAIL": tail,
        "READY_S": f"{base.ready_timeout_s:.0f}",
        "HUNG_S": f"{verify.HUNG_S:.0f}",
        "AGAIN_S": f"{start.RESTART_GRACE_S:.0f}",
        "ENGINE_S": str(ENGINE_S),
        "ASK_S": f"{max(1.0, base.completion.timeout_s):.0f}",
        "GRACE_S": f"{plan.grace_s:.0f}",
        "RECORD": str(process.record_path(plan.records_dir, base.name)) if base.process else "",
        "MARK": "=".join(_mark(plan)),
        "UNIT": base.unit.name if base.unit else "",
        "UNIT_FLAG": "--user" if base.unit and base.unit.user else "--system",
        "CALL_S": f"{units.CALL_S:.0f}",
        "SHA": process.spec_sha(base.process) if base.process else "",
        "LOG": str(log_path(plan)) if base.process else "",
        "BY_HAND": "\n".join(f"  {line}" for line in commands(plan)),
        "ROLE_LABEL": role_label(),
        "OWNER_LABEL": OWNER_LABEL,
        "OWNER": owner_on(plan.site_name),
        "ENGINE": "yes" if base.kind == "container" or _exports(plan) else "",
    }


def _addresses(plan: SealedPlan) -> str:
    """The addresses at which a socket answers for the baseline, as sed patterns in hexadecimal.

    A pattern has no character that a shell expands. There are no patterns if the baseline may be on
    another machine.
    """
    base = plan.baseline
    here = base.kind != "container" or is_local(base.url)
    if not here:
        return ""
    rows = ways(base.url, here=here) or [(r".\{8,32\}",)]
    return " ".join(dict.fromkeys(way for row in rows for way in row))


def _mark(plan: SealedPlan) -> tuple[str, ...]:
    """The variable and value by which the script finds a baseline process without its record."""
    base = plan.baseline
    return process.mark(plan.records_dir, base.name, base.process) if base.process else ()


def _exports(plan: SealedPlan) -> list[str]:
    address = plan.engine
    host = address.docker_host or (f"unix://{address.socket}" if address.socket else "")
    pairs = (("DOCKER_HOST", host), ("DOCKER_CONFIG", address.docker_config))
    return [f"export {key}={shlex.quote(value)}" for key, value in pairs if value]


def _body(plan: SealedPlan) -> tuple[str, str]:
    """The completion's JSON before and after the nonce."""
    head, _, tail = completion_body(plan, "[@NONCE@] ").partition("@NONCE@")
    return head, tail


def _compose(plan: SealedPlan) -> str:
    base = plan.baseline
    if not base.compose_argv:
        return "return 1"
    env = [f"{key}={value}" for key, value in base.compose_env]
    return shlex.join(["timeout", "120", "env", *env, *base.compose_argv])


def _spawn(plan: SealedPlan) -> list[str]:
    """The lines of the subshell that becomes the baseline's process by `exec`."""
    spec = plan.baseline.process
    if spec is None:
        return ["return 1"]
    base = plan.baseline
    pairs = (*base.environment, *spec.env, (COOKIE, BASELINE_COOKIE), _mark(plan))
    clear = ["-i"] if base.environment else []
    words = shlex.join(["env", *clear, *(f"{k}={v}" for k, v in pairs)])
    argv = " ".join(['"$program"', *map(shlex.quote, spec.argv[1:])])
    written = shlex.quote(spec.argv[0])
    return [
        *([f"cd {shlex.quote(spec.cwd)} || exit 7"] if spec.cwd else []),
        f"program={shlex.quote(base.program)}",
        f'if ! [ -x "$program" ]; then program={written}; fi',
        "if command -v setsid >/dev/null 2>&1; then",
        f'  exec {words} "$(command -v setsid)" "$(command -v nohup)" {argv}',
        "fi",
        f'exec {words} "$(command -v nohup)" {argv}',
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


def commands(plan: SealedPlan) -> tuple[str, ...]:
    """Commands that stop candidates, end a hung baseline, start it, show its log and query it."""
    base, docker = plan.baseline, docker_words(plan)
    out: list[str] = []
    if plan.engine.socket or plan.engine.docker_host or base.kind == "container":
        # These commands stop fewer containers than a rollback does. One without an owner's label
        # may be anybody's, and a person who pastes them does not inspect each container first.
        owner = shlex.quote(f"{OWNER_LABEL}={owner_on(plan.site_name)}")
        out += [
            f"{docker} ps -q --filter label={role_label()}={role} --filter label={owner} | "
            f"xargs -r {docker if docker == 'docker' else 'env ' + docker} stop"
            for role in ROLES
        ]
    if base.kind == "container":
        name = shlex.quote(next(iter(base.ways), ""))
        if name != "''":
            out.append(f"{docker} restart {name}")
        if base.compose_argv:
            extra = "".join(f"{key}={shlex.quote(value)} " for key, value in base.compose_env)
            prefix = docker.removesuffix("docker") if base.compose_argv[0] == "docker" else ""
            out.append(f"{prefix}{extra}{shlex.join(base.compose_argv)}")
        if name != "''":
            out.append(f"{docker} logs --tail 50 {name}")
    elif base.process is not None:
        marked = "=".join(process.mark(plan.records_dir, base.name, base.process))
        out.append(
            f"sed -s -z -n '/^{marked}$/F' /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 | "
            "xargs -r kill -9"
        )
        go = f"cd {shlex.quote(base.process.cwd)} && " if base.process.cwd else ""
        pairs = (*base.environment, *base.process.env)
        env = "".join(f"{key}={shlex.quote(value)} " for key, value in pairs)
        env = f"env {'-i ' if base.environment else ''}{env}" if env else ""
        argv = (base.program or base.process.argv[0], *base.process.argv[1:])
        out.append(f"{go}{env}setsid nohup {shlex.join(argv)} </dev/null &")
        out.append(f"tail -n 50 {shlex.quote(str(log_path(plan)))}")
    elif base.unit is not None:
        out.append(shlex.join(base.unit.command("restart")))
        out.append(shlex.join(base.unit.journal(50)))
    url = base.url.rstrip("/")
    out.append(f"curl -sS {shlex.quote(url + '/' + base.ready_path.lstrip('/'))}")
    out.append(
        f"curl -sS -H 'Content-Type: application/json' -d {shlex.quote(completion_body(plan))} "
        f"{shlex.quote(url.removesuffix('/v1') + '/v1/chat/completions')}"
    )
    return tuple(out)


def completion_body(plan: SealedPlan, before: str = "") -> str:
    """The JSON body, in ASCII, of the completion that proves the baseline; `before` precedes the
    prompt."""
    proof = plan.baseline.completion
    body: dict[str, object] = {"model": proof.model} if proof.model else {}
    body["messages"] = [{"role": "user", "content": before + proof.prompt}]
    body |= {"max_tokens": proof.max_tokens, "temperature": 0, "stream": False}
    return json.dumps(body)
