"""A state directory with a site, runs that have ended and downloads on record."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.config.site.site import Site, load_site
from console.journal.run_dir import RunDir, RunMeta, create
from console.journal.store import Journal
from console.models.hub import local_files
from console.models.hub.listing import RemoteFile
from console.runner.cleanup import leftover


@dataclass
class Attic:
    """One user's machine: `root` is everything."""

    root: Path

    def site(self, **baseline: Any) -> Site:
        file = self.root / "site.yaml"
        process = {"process": {"argv": ["serve"]}, "url": "http://127.0.0.1:1", **baseline}
        file.write_text(json.dumps(
            {"schema": "omni.site/v1", "name": "ws", "baseline": process,
             "engine": {"host": f"unix://{self.root}/no.sock"}}
        ))  # fmt: skip
        return load_site(file)

    def run(self, name: str, state: str = "succeeded") -> RunDir:
        """A run that ended so; it has a little log."""
        meta = RunMeta("", name, "/", "d", str(self.root / "site.yaml"), str(self.root))
        made = create(name, meta, "x", "y")
        journal = Journal(made.journal)
        journal.append(1.0, "run.created", "", 0, {"run_id": made.id, "title": f"The {name}"})
        for one in ("running", state):
            journal.append(2.0, "run.state", "", 0, {"state": one})
        journal.close()
        made.log("x").write_bytes(b"x" * 100_000)
        return made

    def download(self, where: str, files: dict[str, int], *, there: bool = True) -> Path:
        """A directory as a download step leaves it."""
        target = self.root / where
        target.mkdir(parents=True, exist_ok=True)
        remote = [RemoteFile(name, size) for name, size in files.items()]
        local_files.note_taken(target, "org/name", remote, "20260101-000000-trial-abcd")
        for name, size in files.items() if there else ():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(b"w" * size)
        return target


@pytest.fixture
def attic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attic:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path / "host"))
    (tmp_path / "state" / "omni-console").mkdir(parents=True)
    (tmp_path / "host").mkdir()
    running = leftover.running_words  # other programs of the machine speak of files called alike
    mine = str(tmp_path)
    monkeypatch.setattr(leftover, "running_words", lambda: [w for w in running() if mine in w])
    return Attic(tmp_path)
