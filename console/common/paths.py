"""Where files are kept. Pure functions of the environment; only `make` touches the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import sys
from pathlib import Path

APP = "omni-console"
SEALED = "SEALED.sha256"
"""A file that only a sealed copy has beside the package; see console.recovery.rollback.shell."""


def module_argv(name: str, copy: str = "") -> tuple[str, ...]:
    """The argv that starts a module of this program as a process of its own; with `copy`, as that
    sealed copy has it. A process of a sealed copy starts modules of its copy.

    `-P`: else the current directory would come first, and a `json.py` there would be imported.
    """
    copy = copy or own_copy()
    return sealed_argv(copy, "-m", name) if copy else (sys.executable, "-P", "-m", name)


def sealed_argv(copy: str, *words: str) -> tuple[str, ...]:
    """The argv that starts a sealed copy by the interpreter behind a virtual environment, which is
    there when that is not."""
    return (os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", copy, *words)


def lost_file() -> str:
    """A file without which an installed console starts no process of its own, and that is gone, as
    in the middle of an upgrade; "" if all are there."""
    needed = (sys.executable, str(Path(__file__).parents[1] / "cli.py"))
    return next((path for path in needed if not os.path.exists(path)), "")


def own_copy() -> str:
    """The directory of the sealed copy that this process runs; "" in an installed console."""
    directory = Path(__file__).parents[2]
    return str(directory) if (directory / SEALED).is_file() else ""


HOMELESS = Path("/proc/no-home")
"""Stands for the home of a user without one: nothing exists or can be created there."""


def home() -> Path:
    """`$HOME`, else the home in the user database; HOMELESS if neither is a directory."""
    value = os.environ.get("HOME", "")
    if not value.startswith("/"):
        with contextlib.suppress(KeyError):
            value = pwd.getpwuid(os.getuid()).pw_dir
    return Path(value) if value.startswith("/") else HOMELESS


def is_homeless(path: Path) -> bool:
    """Whether a path is below the home of a user without one."""
    return path.is_relative_to(HOMELESS)


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    base = Path(value) if value.startswith("/") else home() / default
    return base / APP


def file_name(name: str) -> str:
    """A name as a file name of letters, digits, `_`, `.` and `-`; two names never share one.

    If other characters are replaced, a short hash of the whole name follows.
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    if plain == name:
        return name
    import hashlib  # only where it is wanted: it loads the TLS library

    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"


def state_dir() -> Path:
    """Runs, logs and measured restore times: `$XDG_STATE_HOME/omni-console`."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def config_dir() -> Path:
    return _xdg("XDG_CONFIG_HOME", ".config")


def cache_dir() -> Path:
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_dir() -> Path:
    """What was fetched for this user and may be fetched again: `$XDG_DATA_HOME/omni-console`."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def runs_dir() -> Path:
    return state_dir() / "runs"


def lessons_dir() -> Path:
    """Lessons of the operator's own, beside the shipped ones."""
    return config_dir() / "lessons"


def rehearsal_dir() -> Path:
    """Everything of rehearsals except their runs: site, lock, commands, moved paths."""
    return state_dir() / "rehearsal"


def tune_dir() -> Path:
    """Every point that a tuning step has measured."""
    return state_dir() / "tune"


def bisect_dir() -> Path:
    """How far each bisect is, and its report."""
    return state_dir() / "bisect"


def fleet_dir() -> Path:
    """What is known of the hosts of a fleet, and how far each rollout is."""
    return state_dir() / "fleet"


def bridge_dir() -> Path:
    """What operators far away have planned and started on this host."""
    return state_dir() / "bridge"


def slurm_dir() -> Path:
    """Runs that wait for an allocation of Slurm's, or had one."""
    return state_dir() / "slurm"


def quality_dir() -> Path:
    """Log-probabilities of baselines' models, as llama-perplexity wrote them."""
    return cache_dir() / "quality"


def notify_dir() -> Path:
    """Notifications on their way, and what is known of their channels."""
    return state_dir() / "notify"


def demo_dir() -> Path:
    """The embedded demo: its site file and its models."""
    return state_dir() / "demo"


def records_dir(site: str) -> Path:
    """Where the pids of a site's host processes are remembered between runs."""
    return state_dir() / "services" / site


def baseline_log(site: str) -> Path:
    """The log of a baseline that is a host process."""
    return state_dir() / "logs" / f"baseline-{site}.log"


def restore_file(site: str) -> Path:
    """Where the measured restore times of a site are remembered."""
    return state_dir() / "restore" / f"{site}.json"


SYSTEM_SITE = Path("/etc/omni-console/site.yaml")
"""The site file of every user of this machine who has none."""


def default_site(config: Path | None = None) -> Path:
    """The site file where none is named: the user's (`config`: that user's directory of
    configuration), else the machine's; the user's where there is neither."""
    own = (config or config_dir()) / "site.yaml"
    return own if os.path.exists(own) or not os.path.exists(SYSTEM_SITE) else SYSTEM_SITE


def host_dir() -> Path:
    """The directory of locks and pointers of all users of the machine; survives a reboot.

    `OMNI_HOST_DIR` moves it (tests, containers without /var/tmp).
    """
    return Path(os.environ.get("OMNI_HOST_DIR") or "/var/tmp")


def own_host_dir(state: Path | None = None) -> Path:
    """Directory of this user's lock and pointer if somebody has blocked their usual place; with
    `state`, of the user whose state directory that is."""
    return (state or state_dir()) / "host" / str(host_dir()).strip("/").replace("/", "-")


def host_lock(uid: int) -> Path:
    """One lock file per user: what another user creates or holds blocks nobody."""
    return host_dir() / f"{APP}.{uid}.lock"


def pointer(uid: int) -> Path:
    """One pointer file per user: a sticky directory lets nobody replace another one's file."""
    return host_dir() / f"{APP}.{uid}.json"


def make(path: Path) -> None:
    """Make a directory and its missing parents. Raises OSError.

    The state directory belongs to its user alone, whatever the umask, so that logs and plans below
    it are out of everybody else's reach, whatever their mode.
    """
    if is_homeless(path):
        raise OSError(errno.ENOENT, "this user has no home directory: set HOME", str(path))
    own = state_dir()
    inside = own == path or own in path.parents
    missing = [candidate for candidate in (path, *path.parents) if not candidate.exists()]
    for directory in reversed(missing):
        private = inside and own not in directory.parents
        with contextlib.suppress(FileExistsError):
            directory.mkdir(0o700 if private else 0o777)
    path.mkdir(exist_ok=True)
    if inside and own not in missing:
        with contextlib.suppress(OSError):
            info = own.stat()
            if info.st_uid == os.getuid() and info.st_mode & 0o077:
                own.chmod(0o700)
