"""Finds the site, playbook and inputs that are meant: by path, by name, or by configuration.

Parsers are imported only when a file is read, so that a screen appears first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.common.errors import ConsoleError, UsageError
from console.common.files import write_atomically
from console.common.text import one_line
from console.config.candidates import CANDIDATES

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site

PORTS = range(18080, 18180)
GARBLED = ("--repeat-penalty", "0.01")
"""A wrong setting that garbles every answer: what was said once is a hundred times as likely."""


def site(given: str | None) -> Site:
    """The site: given, OMNI_SITE, the user's, the machine's, else the embedded demo's. Raises
    InvalidFile."""
    from console.config.site.site import load_site

    return load_site(site_file(given) or demo_site())


def site_file(given: str | None) -> Path | None:
    """`--site`, then `OMNI_SITE`, then the user's site file or the machine's, if one exists; None
    means the embedded demo. Creates and parses nothing."""
    for named in (given, os.environ.get("OMNI_SITE")):
        if named:
            return Path(named)
    default = paths.default_site()
    return default if default.exists() else None


def own_site(given: str | None) -> Path:
    """The site file, or that of a demo which was made before: whoever asks after a baseline makes
    none. Raises UsageError."""
    made = paths.demo_dir() / "site.yaml"
    path = site_file(given) or (made if made.exists() else None)
    if path is None:
        raise UsageError(
            "no site file",
            f"neither {paths.default_site()} nor {paths.SYSTEM_SITE}: no baseline is known",
            "omni-console init writes one for what runs; or name it: --site FILE",
        )
    return path


def services(given: str | None) -> frozenset[str]:
    """Services that a playbook may use without declaring them: the site's, or the demo's.

    Raises InvalidFile.
    """
    from console.config.playbook.load import BASELINE, resolved
    from console.config.site.site import load_site

    path = site_file(given)
    if path is None:
        return frozenset(CANDIDATES)
    model = load_site(path).model
    return frozenset(model.services) | resolved(model.names, {*model.services, BASELINE}).keys()


def site_name(given: str | None) -> str:
    """The name of the site; "" for the embedded demo's. Raises InvalidFile."""
    from console.config.site.site import load_site

    path = site_file(given)
    return load_site(path).name if path is not None else ""


def shipped() -> Path:
    """The directory of the playbooks that come with the console."""
    import playbooks  # importlib.resources takes longer than everything else here

    return Path(playbooks.__path__[0])


def playbook_places() -> tuple[Path, ...]:
    """The directories in which a playbook is looked for by its name."""
    return shipped(), paths.config_dir() / "playbooks"


def playbook_path(text: str) -> Path:
    """A file, or the name of a playbook that ships with the console. Raises UsageError."""
    path = Path(text)
    if re.fullmatch(r"[a-z0-9-]+", text) and not path.exists():
        for place in playbook_places():
            candidate = place / f"{text}.yaml"
            if candidate.is_file():
                return candidate
        import difflib  # only where it is wanted: it costs start-up time

        names = sorted({p.stem for place in playbook_places() for p in place.glob("*.yaml")})
        parts = [name for name in names if text in name]
        near = parts[:1] or difflib.get_close_matches(text, names, 1)
        hint = f"did you mean {near[0]}?" if near else "or give a path to a file"
        raise UsageError(f"no playbook '{text}'", f"there are: {', '.join(names)}", hint)
    return path


def demo_site() -> Path:
    """The demo's site file, created with its models at first use. Raises UsageError."""
    path = paths.demo_dir() / "site.yaml"
    if not path.exists():
        names = ("baseline", *CANDIDATES)
        ports = _free_ports(len(names))
        paths.make(path.parent)
        write_atomically(path, _site(dict(zip(names, ports, strict=True))))
    return path


@contextlib.contextmanager
def leaving_no_demo() -> Iterator[None]:
    """Take the demo's site file away again if it is made for a command that then fails: it would be
    the site of whoever asks after a baseline (`own_site`)."""
    path = paths.demo_dir() / "site.yaml"
    existed = path.exists()
    try:
        yield
    except ConsoleError:
        with contextlib.suppress(OSError):
            if not existed and os.listdir(path.parent) == [path.name]:  # no model, no server of it
                path.unlink()
                path.parent.rmdir()
        raise


def _free_ports(count: int) -> list[int]:
    """Ports of the demo's range, one after another, on which nothing listens: the next free block,
    so that no two demos of a machine share one."""
    from console.host.ports import is_free  # only where it is wanted: it costs start-up time

    for first in range(PORTS.start, PORTS.stop - count + 1, count):
        ports = list(range(first, first + count))
        if all(map(is_free, ports)):
            return ports
    raise UsageError("no free ports for the demo", f"looked at {PORTS.start}-{PORTS.stop - 1}")


def _process(name: str, port: int) -> str:
    model, flags = ("fast", GARBLED) if name == "garbled" else (name, ())
    argv = [
        *paths.module_argv("console.rehearsal.demo.engine"), "--model", f"models/{model}.gguf",
        "--port", str(port), "--alias", f"demo-{name}", "--cache-ram", "0", *flags,
    ]  # fmt: skip
    return f"process: {{argv: {json.dumps(argv)}}}"


def _site(ports: dict[str, int]) -> str:
    services = "".join(
        f"  {name}:\n    {_process(name, ports[name])}\n"
        f"    url: http://127.0.0.1:{ports[name]}\n    ready: {{timeout: 60s}}\n"
        for name in CANDIDATES
    )
    return (
        "# Written by `omni-console demo`; `omni-console demo --stop` removes it.\n"
        "schema: omni.site/v1\n"
        "name: demo\n"
        "baseline:\n"
        f"  {_process('baseline', ports['baseline'])}\n"
        f"  url: http://127.0.0.1:{ports['baseline']}\n"
        "  ready: {timeout: 60s}\n"
        "  models: [models/baseline.gguf]\n"
        f"services:\n{services}"
    )


def own_command() -> str:
    """The command to type for this program: its name if the PATH has it."""
    import shutil
    import sys
    from pathlib import Path

    if shutil.which("omni-console"):
        return "omni-console"
    here = Path(sys.executable).parent / "omni-console"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def inputs_of(pairs: list[str]) -> dict[str, str]:
    """`NAME=VALUE` arguments. Raises UsageError."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise UsageError(
                f"--input {one_line(pair, 60)}", "expected NAME=VALUE", "--input port=8001"
            )
        given[name] = value
    return given


def playbook_of(
    text: str, pairs: list[str], site: Site, *, planning: bool = False, base: Path | None = None
) -> Playbook:
    from console.config.playbook.load import load_playbook

    return load_playbook(
        playbook_path(text), inputs_of(pairs), planning=planning, base=base,
        site_services=frozenset(site.model.services), aliases=site.model.names, offers=site.offers,
    )  # fmt: skip
