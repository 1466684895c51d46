"""The exact commands that a person can paste into a shell when a rollback has failed."""

from __future__ import annotations

import json
import shlex

from console.host import process
from console.recovery.rollback.context import log_path
from console.recovery.rollback.sealed_plan import SealedPlan
from console.recovery.rollback.stages.stop import ROLES
from console.runtime.engine_api import DEFAULT_SOCKET
from console.runtime.spec import OWNER_LABEL, owner_on, role_label


def docker_words(plan: SealedPlan) -> str:
    """`docker`, after the variables for the sealed address where that is not the default one."""
    address = plan.engine
    host = address.docker_host or (f"unix://{address.socket}" if address.socket else "")
    words = []
    if host and host != f"unix://{DEFAULT_SOCKET}":
        words.append(f"DOCKER_HOST={shlex.quote(host)}")
    if address.docker_config:
        words.append(f"DOCKER_CONFIG={shlex.quote(address.docker_config)}")
    return " ".join([*words, "docker"])


def commands(plan: SealedPlan) -> tuple[str, ...]:
    """Commands that stop candidates, end a hung baseline, start it, show its log and ask it."""
    base, docker = plan.baseline, docker_words(plan)
    out: list[str] = []
    if plan.engine.socket or plan.engine.docker_host or base.kind == "container":
        # These commands stop fewer containers than a rollback does: one without an owner's label
        # may be anybody's, and whoever pastes them does not inspect each container.
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
    url = base.url.rstrip("/")
    out.append(f"curl -sS {shlex.quote(url + '/' + base.ready_path.lstrip('/'))}")
    body = completion_body(plan)
    out.append(
        f"curl -sS -H 'Content-Type: application/json' -d {shlex.quote(body)} "
        f"{shlex.quote(url.removesuffix('/v1') + '/v1/chat/completions')}"
    )
    return tuple(out)


def completion_body(plan: SealedPlan) -> str:
    """The JSON body, in ASCII, of the completion that proves the baseline."""
    proof = plan.baseline.completion
    body: dict[str, object] = {"model": proof.model} if proof.model else {}
    body["messages"] = [{"role": "user", "content": proof.prompt}]
    body |= {"max_tokens": proof.max_tokens, "temperature": 0, "stream": False}
    return json.dumps(body)
