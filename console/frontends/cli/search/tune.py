"""`tune`: a playbook of one step, made from another one or for the baseline, and its run."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.errors import UsageError
from console.common.files import write_atomically
from console.common.text import one_line
from console.config.locate import playbook_of, playbook_path
from console.config.playbook.playbook import Playbook
from console.config.site.site import Site
from console.config.yaml import parse, read_text

TITLE = "the playbook cannot be tuned"
WORDS = {"true": True, "false": False}
_RANGE = re.compile(r"-?\d+\.\.-?\d+(?: by \d+)?")


def tuning_playbook(args: Namespace, site: Site) -> Playbook:
    """The playbook that searches the flags asked for, written where runs can find it again.

    Raises UsageError, InvalidFile.
    """
    if args.baseline and args.playbook:
        hint = "omni-console tune --baseline -- -t 8,16"
        raise UsageError("a PLAYBOOK and --baseline exclude each other", "", hint)
    if not args.playbook and not args.baseline:
        hint = "omni-console tune --baseline -- -t 8,16"
        raise UsageError("what is to be tuned?", "a PLAYBOOK, or --baseline", hint)
    if args.baseline and args.service:
        raise UsageError("--service belongs to a playbook", "", "leave out --baseline")
    data: dict[str, Any] = {"schema": "omni.playbook/v1"}
    base = Path.cwd()
    service = "baseline"
    if args.playbook:
        path = playbook_path(args.playbook)
        base = path.resolve().parent
        document = parse(read_text(path, TITLE), str(path), TITLE).data
        taken = document if isinstance(document, dict) else {}
        data |= {
            key: taken[key] for key in ("inputs", "services", "guards", "lease") if key in taken
        }
        service = args.service or _only_service(taken)
    name = f"tune-{_plain(Path(args.playbook).stem if args.playbook else site.name)}"
    data |= {
        "name": name,
        "title": f"Find the fastest flags of {service}",
        "phases": [{"title": "Tune", "steps": [{"id": "tune", "tune": _step(args, service)}]}],
        "finally": [{"id": "report", "report": {}}],
    }
    place = paths.tune_dir() / f"{name}.yaml"
    paths.make(place.parent)
    write_atomically(place, _text(data), 0o600)
    return playbook_of(str(place), args.input, site, base=base)


def _step(args: Namespace, service: str) -> dict[str, Any]:
    step: dict[str, Any] = {
        "service": service, "flags": flags_of(args.flags), "prefer": args.prefer,
        "points": args.points, "depth": args.depth,
    }  # fmt: skip
    step |= {key: value for key, value in
             (("most_ram", args.most_ram), ("most_vram", args.most_vram)) if value}  # fmt: skip
    return step | ({"fresh": True} if args.fresh else {})


def flags_of(words: list[str]) -> dict[str, Any]:
    """`-t 8,16 --no-repack true,false` as a playbook has it; without any, the flags that matter
    most on llama.cpp and leave its answers as they are. Raises UsageError."""
    flags: dict[str, Any] = {}
    if len(words) % 2:
        raise UsageError(
            f"{one_line(words[-1], 60)} has no values", "expected FLAG VALUES, like -ub 256,512",
            "true: the flag alone, false: without it",
        )  # fmt: skip
    for name, values in zip(words[::2], words[1::2], strict=True):
        if not name.startswith("-"):
            raise UsageError(
                f"{one_line(name, 60)} is no flag", "expected FLAG VALUES, like -ub 256,512"
            )
        if name in flags:
            raise UsageError(f"{one_line(name, 60)} is given twice", "all its values in one list")
        mark = ";" if ";" in values else ","
        parts = [part.strip() for part in values.split(mark) if part.strip()]
        flags[name] = values if _RANGE.fullmatch(values) else [WORDS.get(p, p) for p in parts]
    return flags or _usual()


def _usual() -> dict[str, Any]:
    cores = os.cpu_count() or 1
    threads = sorted({max(1, cores // 4), max(1, cores // 2), cores})
    return {"-t": threads, "-ub": [128, 256, 512, 1024, 2048], "-fa": ["on", "off"]}


def _only_service(taken: dict[str, Any]) -> str:
    """The playbook's only service, or the one that its benchmark measures. Raises UsageError."""
    services = taken.get("services")
    names = [str(name) for name in services] if isinstance(services, dict) else []
    if len(names) == 1:
        return names[0]
    raise UsageError(
        "which service?", f"the playbook has {', '.join(map(one_line, names)) or 'none'}",
        "name it with --service",
    )  # fmt: skip


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "playbook"


def _text(data: dict[str, Any]) -> str:
    from io import StringIO

    from ruamel.yaml import YAML

    out = StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(data, out)
    return out.getvalue()
