"""The site of a rehearsal: the operator's, with a stand-in in the place of its baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.config.site.site import Site
from console.config.yaml import parse
from console.rehearsal import workspace
from console.rehearsal.rewrite import Rewriter

REFERENCE_TOK_S = 10.9
"""What a baseline without a reference is taken to do."""
WORKSTATION = (
    {"uuid": "GPU-rehearsal-0", "name": "RTX PRO 6000 (scripted)", "memory": "96GiB",
     "compute": "12.0"},
    {"uuid": "GPU-rehearsal-1", "name": "RTX 5090 (scripted)", "memory": "32GiB",
     "compute": "12.0"},
)  # fmt: skip
HELD = 0.84
"""Of each card that a stand-in holds; the seeds' baseline holds 115 GB of 128 GiB."""
DEFAULT_BYTES = 32 << 30


def container() -> str:
    return workspace.own_name("baseline")


def reference(site: Site) -> float:
    known = site.model.baseline.reference
    return known.tok_s if known is not None else REFERENCE_TOK_S


def port_of(url: str) -> int:
    return urlsplit(url).port or 80


def cards(site: Site) -> list[dict[str, Any]]:
    """{uuid, name, total} of each scripted card: the site's, or a workstation's."""
    if not site.model.gpus:
        from console.common.units import parse_bytes

        return [{**one, "total": parse_bytes(one["memory"])} for one in WORKSTATION]
    return [
        {"uuid": gpu.uuid, "name": gpu.name or gpu.uuid, "total": gpu.memory or DEFAULT_BYTES}
        for gpu in site.model.gpus
    ]


def hold(of: list[dict[str, Any]]) -> dict[str, int]:
    """UUID → bytes that a load takes."""
    return {str(card["uuid"]): int(card["total"] * HELD) for card in of}


def write(site: Site, rewriter: Rewriter, model: Path) -> Path:
    """The site file of the rehearsal, as JSON, written to its directory. Services and guards are
    rewritten as a playbook's are. Raises OSError."""
    data = json.loads(json.dumps(parse(site.text, str(site.path), "the site").data))
    mapping, real = rewriter.mapping, site.model.baseline
    made = {key: data["baseline"][key] for key in ("ready", "completion", "args")
            if key in data["baseline"]}  # fmt: skip
    data["name"] = f"REHEARSAL-{site.name}"
    data["baseline"] = {
        **made, "container": container(), "models": [str(model)],
        "url": mapping.text(f"http://127.0.0.1:{port_of(real.url)}", {}),
        "reference": {**data["baseline"].get("reference", {}), "tok_s": reference(site)},
    }  # fmt: skip
    names = site.model.names  # the baseline's real container is a name of its stand-in
    data["aliases"] = {old: names.get(new, new) for old, new in names.items()}
    if not site.model.gpus:
        data["gpus"] = list(WORKSTATION)
    for name, service in (data.get("services") or {}).items():
        rewriter.service(name, service, site.base)
    guards = data.setdefault("guards", [])
    for guard in guards:
        rewriter.guard(guard)
    if not any(guard.get("metric") == "host.ram_available" for guard in guards):
        guards.append({"metric": "host.ram_available", "below": "24GiB"})
        rewriter.guard(guards[-1])
    path = workspace.site()
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path
