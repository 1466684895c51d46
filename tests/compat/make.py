"""Makes the archives of this folder with a version of the program, before the next one changes it.

    python tests/compat/make.py VENV FOLDER

`VENV` has that version installed (`KEPT` and the helper's unit name its modules, and are written
anew for it); `FOLDER`, named by the day, gets `trials.tar.gz` and `cutover.tar.gz`. Needs root and
`unshare`: everything happens in a machine of its own name, boot, processes and places, so that
nothing of the one it is made on is in the archives. `tests/compat/world.py` says how they are read.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path("/srv/earlier")
PYTHON = str(ROOT / "venv/bin/python")
BASE_PORT, CAND_PORT = 20_011, 20_012
HERE = Path(__file__).parent
PLACES = {f"XDG_{part.upper()}_HOME": str(ROOT / part) for part in ("config", "cache", "state")}
ENV = {
    **PLACES, "OMNI_HOST_DIR": str(ROOT / "host"), "HOME": str(ROOT / "home"), "TZ": "UTC",
    "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
    "LOGNAME": "operator", "USER": "operator",
}  # fmt: skip
BOOTS = (f"0b0b0b0b-0001-4000-8000-00000000000{number}" for number in range(1, 9))
UP = "{id: up, service: {start: cand}}"
HEAD = "schema: omni.playbook/v1\nname: {name}\ntitle: {title}\nobjective: {title}\n"
BOOK = HEAD + "{more}phases:\n  - title: Trial\n    steps:\n{steps}"
BOOKS = {
    "measure": (
        "The candidate is measured and judged", "",
        UP, "{id: say, run: [echo, 'size: 9.5GB'], outputs: "
        "{size: {pattern: 'size: ([0-9.]+)GB', unit: GB}}}",
        "{id: bench, benchmark: {service: cand, max_tokens: 16, runs: 5, max_runs: 5}}",
        "{id: soak, soak: {service: cand, duration: 4s, max_tokens: 8, every: 200ms}}",
        '{id: go, gate: [{metric: bench.tok_s, go: "> 1 tok/s"}, '
        '{metric: say.size, go: "< 10GB"}, {metric: soak.errors, go: "== 0", min_samples: 1}]}',
        "{id: rep, report: {}}",
    ),
    "grow": (
        "The guard ends a candidate that grows",
        "guards: [{metric: service.ram_used, above: 100MiB, of: hog}]\n",
        "{id: up, service: {start: hog}}", f"{{id: go, run: [touch, {ROOT}/grow]}}",
        "{id: long, run: [sleep, '600']}",
    ),
    "outage": ("The power fails in an outage", "", UP, "{id: long, run: [sleep, '600']}"),
    "cutover": (
        "Clients stay at the candidate", "",
        UP, "{id: cut, cutover: {to: cand, watch: 1s, every: 200ms, then: stay}}",
    ),
}  # fmt: skip
LESSON = """\
schema: omni.lesson/v1
id: F-901
title: 'The tiny model needs no more than one slot'
date: 2026-01-25
status: stands
component: baseline
symptom: Two streams on one slot wait for each other.
cause: One slot serves one stream at a time.
resolution: Measure with one stream.
lesson: Ask for the slots first.
evidence: ['benchmark: 5 runs, 16 tokens']
"""
KEPT = """
import sys
from pathlib import Path
from console.checks.preflight.architecture.names import probe
from console.checks.preflight.architecture.support import ArchVerdict, Identity, Witness, keep
from console.config.locate import demo_site
from console.models.gguf.read import HeaderCache, read_header
demo_site()
file = Path(sys.argv[1])
file.write_bytes(probe("llama"))
HeaderCache().put("sha256:" + "a" * 64, read_header(file))
file.unlink()
engine = Identity("llama-server", "sha256:" + "b" * 64, "b1-fixed", "sha256:" + "b" * 64)
keep(ArchVerdict("llama", True, Witness.LOADER, engine, "the loader knows it"))
"""
DOCTOR = """
import json
from console.checks.doctor.run import CHECKS, iterate
ids = ("baseline.restore", "console.runs", "console.pointer")
found = iterate(checks=[one for one in CHECKS if one.id in ids], deadline_s=600)
print(json.dumps([[f.id, str(f.level), f.detail, f.hint] for one in found for f in one.findings]))
"""
"""Of its page only what the runs left: the rest is this machine's."""


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def console(*args: str) -> subprocess.CompletedProcess[str]:
    say("omni-console", *args)
    done = subprocess.run(
        [PYTHON, "-P", "-m", "console.cli", *args], env=ENV, cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    say(f"  exit {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    return done


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def boot() -> None:
    """Everything ends at once, what was in memory is gone, and the machine has another boot."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # this process is the first of its machine, and is spared
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    for left in Path("/dev/shm").iterdir():
        left.unlink()
    Path("/srv/boot").write_text(next(BOOTS) + "\n")


def site() -> dict[str, Any]:
    def service(*words: str, **more: Any) -> dict[str, Any]:
        argv = [PYTHON, "-S", str(ROOT / "engine.py"), *words]
        url = f"http://127.0.0.1:{words[0]}"
        return {"process": {"argv": argv}, "url": url, "ready": {"timeout": "60s"}, **more}

    cand = str(CAND_PORT)
    return {
        "schema": "omni.site/v1",
        "name": "local",
        "baseline": service(str(BASE_PORT)),
        "services": {
            "cand": service(cand, exclusive=True),
            "hog": service(cand, str(ROOT / "grow"), exclusive=True),
        },
    }


def fresh() -> None:
    """A new world in a new boot; its baseline, started by the site's own plan, serves."""
    boot()
    for path in ROOT.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != "venv":
            path.unlink()
    for name in ("config", "cache", "state", "host", "home"):
        (ROOT / name).mkdir()
    config = ROOT / "config/omni-console"
    (config / "lessons").mkdir(parents=True)
    (config / "lessons/F-901.yaml").write_text(LESSON)
    (config / "site.yaml").write_text(json.dumps(site(), indent=1) + "\n")
    shutil.copy(HERE / "engine.py", ROOT / "engine.py")
    for name, (title, more, *steps) in BOOKS.items():
        rows = "".join(f"      - {step}\n" for step in steps)
        text = BOOK.format(name=name, title=title, more=more, steps=rows)
        (ROOT / f"{name}.yaml").write_text(text)
    assert console("rollback", "--json").returncode == 0


def newest() -> Path:
    return max((ROOT / "state/omni-console/runs").iterdir(), key=lambda run: run.stat().st_ctime)


def run(name: str, *codes: int) -> str:
    assert console("run", f"{name}.yaml", "--json").returncode in codes, name
    time.sleep(2)  # a runner ends a moment after its follower
    return newest().name


def said(name: str, *args: str) -> None:
    """What this version prints, and its exit code, kept beside what it left."""
    done = console(*args)
    place = ROOT / "said" / f"{name}.json"
    place.parent.mkdir(exist_ok=True)
    value = {"argv": args, "code": done.returncode, "out": done.stdout, "err": done.stderr}
    place.write_text(json.dumps(value, indent=1) + "\n")


def read_all(*runs: str) -> None:
    said("runs", "runs", "--json")
    said("lesson", "lessons", "F-901", "--json")
    for name in runs:
        kind = name.split("-")[2]
        said(f"show-{kind}", "show", name, "--json")
        said(f"shown-{kind}", "show", name)
        said(f"attach-{kind}", "attach", name)
        said(f"report-{kind}", "report", name)
        said(f"logs-{kind}", "logs", "cand" if kind != "grow" else "hog", "--run", name)
    if len(runs) > 1:
        said("reports", "report", *runs, "--json")


def pack(to: Path) -> None:
    """Everything but what was linked in; owners are left out, and sockets are none to keep."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        skip = info.name.split("/", 1)[0] in ("venv", "home") or info.name.endswith("-shm")
        return None if skip else info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(ROOT.iterdir()):
            tar.add(path, path.name, filter=plain)
    to.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    say(to, to.stat().st_size)


def trials(to: Path) -> None:
    """A run that ended, one that the guard ended, and one that the power ended."""
    fresh()
    subprocess.run([PYTHON, "-c", KEPT, ROOT / "m.gguf"], env=ENV, cwd=ROOT, check=True)
    unit = subprocess.run(
        [PYTHON, "-m", "console.recovery.guard.kill.root_helper", "--unit"],
        env=ENV,
        check=True,
        capture_output=True,
    )
    (ROOT / "helper.service").write_bytes(unit.stdout)
    runs = [run("measure", 0), run("grow", 6)]
    read_all(*runs)
    assert console("run", "outage.yaml", "--json", "--detach").returncode == 0
    outage = newest()
    until(lambda: b'"step"' in (outage / "rollback/live.jsonl").read_bytes(), "the step runs")
    time.sleep(2)
    boot()
    said("show-outage", "show", outage.name, "--json")
    said("runs-after", "runs", "--json")
    for name in (*runs, outage.name):
        said(f"recorder-{name.split('-')[2]}", "recorder", name, "--json")
    doctor = subprocess.run(
        [PYTHON, "-c", DOCTOR], env=ENV, cwd=ROOT, check=True, capture_output=True, text=True
    )
    value = {"argv": ["doctor"], "code": 0, "out": doctor.stdout, "err": ""}
    (ROOT / "said/doctor.json").write_text(json.dumps(value, indent=1) + "\n")
    pack(to)


def cutover(to: Path) -> None:
    """A run that ended with its candidate on the production port, and then the power."""
    fresh()
    name = run("cutover", 0)
    boot()
    said("show-cutover", "show", name, "--json")
    pack(to)


def main(words: list[str]) -> None:
    venv, folder = (Path(word).resolve() for word in words[:2])
    if words[2:] != ["apart"] or os.getpid() != 1:  # `boot` ends every process it can reach
        apart = ["unshare", "--mount", "--uts", "--pid", "--net", "--fork", "--mount-proc"]
        argv = [*apart, sys.executable, __file__, str(venv), str(folder), "apart"]
        sys.exit(subprocess.run(argv, check=False).returncode)
    for command in (
        "mount -t tmpfs none /srv", "mount -t tmpfs none /dev/shm", "hostname workstation",
        "ip link set lo up", "touch /srv/boot",
        "mount --bind /srv/boot /proc/sys/kernel/random/boot_id",
    ):  # fmt: skip
        subprocess.run(command.split(), check=True)
    ROOT.mkdir()
    (ROOT / "venv").symlink_to(venv)
    for make in (trials, cutover):
        make(folder / f"{make.__name__}.tar.gz")


if __name__ == "__main__":
    main(sys.argv[1:])
