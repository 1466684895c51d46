"""Debian packages: install the few that are missing, fetch others without installing them."""

import os
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.cache import Unavailable, command, folder, locked

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def find(program: str) -> str | None:
    """Like which, but sees the system folders that a plain user's PATH lacks."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")


def codename() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError as error:
        raise Unavailable("this machine does not say which Linux it is") from error
    if release.get("ID") != "debian" or not shutil.which("apt-get"):
        raise Unavailable(f"this is not Debian but {release.get('PRETTY_NAME', 'unknown')}")
    return release.get("VERSION_CODENAME", "")


def require_program(program: str, packages: Sequence[str]) -> str:
    present = find(program)
    if present:
        return present
    codename()
    if os.geteuid() != 0:
        wanted = " ".join(packages)
        raise Unavailable(f"{program} is missing and only root can install it ({wanted})")
    with locked("apt-install"):
        _install(packages)
    present = find(program)
    if not present:
        raise Unavailable(f"{program} is still missing after installing {' '.join(packages)}")
    return present


def _install(packages: Sequence[str]) -> None:
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-y", "-q", "--no-install-recommends", "install", *packages]
    try:
        command(install, env=env, timeout=600)
    except Unavailable:
        # A bare machine has no package lists, or lists that name versions gone by now.
        command(["apt-get", "-q", "update"], env=env, timeout=300)
        command(install, env=env, timeout=600)


def mirror() -> str:
    """The archive that this machine's own apt is set up with, for its own release."""
    suite = codename()
    text = command(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"])
    # Updates and security are other suites; only the main archive also carries newer releases.
    found = re.search(rf"^(\S+) (?:{re.escape(suite)}|stable|oldstable) main$", text, re.M)
    if not found:
        raise Unavailable(f"apt is set up with no archive for {suite}")
    return found.group(1)


def fetch(suite: str, packages: Sequence[str], into: Path, *, depends: bool) -> list[Path]:
    """Download packages of ``suite`` without touching the system's apt. An empty status file makes
    apt believe that nothing is installed: ``depends`` gets everything down to the C library."""
    source = mirror()
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    with locked("apt-fetch"):
        state = folder(f"apt/{suite}")
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (into / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        (state / "sources.list").write_text(f"deb {signed}{source} {suite} main\n")
        base = ["apt-get", "-q", *_options(state, into)]
        command([*base, "update"])
        if depends:
            command([*base, "-y", "--download-only", "install", *packages])
            return sorted((into / "archives").glob("*.deb"))
        # apt-get download writes to the working folder and has no option for another one.
        command(["env", "-C", str(into), *base, "download", *packages])
        return sorted(into.glob("*.deb"))


def _options(state: Path, into: Path) -> list[str]:
    settings = {
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": into,
        "Dir::Cache::Archives": into / "archives",
        "APT::Install-Recommends": "false",
        # The cache may lie where apt's own user cannot write.
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def unpack(packages: Sequence[Path], root: Path) -> None:
    """Lay packages out under ``root`` as a merged-/usr system, without running their scripts."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        link = root / name
        if not link.is_symlink():
            link.symlink_to(f"usr/{name}")
    bare = "--exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale"
    script = (
        f'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --no-same-owner '
        f"--keep-directory-symlink {bare}"
    )
    for package in packages:
        command(["bash", "-o", "pipefail", "-c", script, "unpack", str(package), str(root)])
