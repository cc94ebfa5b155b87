"""The cluster's folder: its parts, the user's home, host names, the checkout as the user sees it."""

from __future__ import annotations

import pwd
import shutil
import sys
from pathlib import Path

from .processes import LabError, run
from .settings import CONTROLLER_ADDRESS, Settings, node_address

FOLDERS = ["etc", "run", "log", "boot.d", "src"]
FOLDER_MARK = ".torusrun-lab"
HOSTS = Path("/etc/hosts")


def make(settings: Settings) -> None:
    settings.root.mkdir(parents=True, mode=0o755)
    (settings.root / FOLDER_MARK).touch()
    for name in FOLDERS:
        (settings.root / name).mkdir(mode=0o755)
    (settings.etc / "hosts").write_text(_hosts(settings))


def remove(root: Path) -> None:
    """Remove the folder, without following a mount: the checkout is mounted below."""
    if not root.exists():
        return
    if not (root / FOLDER_MARK).exists():
        raise LabError(f"{root} is not a lab's folder: choose another root, or remove it yourself")
    for point in mounts_below(root):
        run(["umount", "--lazy", point])
    if left := mounts_below(root):
        raise LabError(f"still mounted: {left}")
    shutil.rmtree(root)


def mounts_below(root: Path) -> list[str]:
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [point for point in points if point.startswith(f"{root}/")]


def mount_checkout(repo: Path, src: Path) -> None:
    """Mount the checkout for the user, even if it is below a folder closed to others.

    It is compiled first, because the user must not write there, and every rank would compile it anew.
    """
    packages = [str(repo / name) for name in ("orchestrator", "training", "tests")]
    run([sys.executable, "-m", "compileall", "-q", *packages])
    run(["mount", "--bind", str(repo), str(src)])
    run(["mount", "-o", "remount,bind,ro", str(src)])


def make_user(settings: Settings) -> None:
    home = str(settings.home)
    try:
        known = pwd.getpwnam(settings.user)
    except KeyError:
        run(["useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/bash", settings.user])
    else:
        if known.pw_dir != home:
            run(["usermod", "--home", home, settings.user])
    settings.home.mkdir(mode=0o755)
    shutil.chown(settings.home, settings.user, settings.user)
    # Without it git refuses to read the checkout, which belongs to another user.
    give(settings, ".gitconfig", "[safe]\n\tdirectory = *\n")


def give(settings: Settings, name: str, text: str) -> Path:
    """Write a file of the user, below the home."""
    path = settings.home / name
    for folder in [*reversed(path.relative_to(settings.home).parents)][1:]:
        (settings.home / folder).mkdir(exist_ok=True)
        shutil.chown(settings.home / folder, settings.user, settings.user)
    path.write_text(text)
    shutil.chown(path, settings.user, settings.user)
    return path


def mount_hosts(settings: Settings) -> None:
    """Give the controller and its clients, which are on this machine, the names of the nodes too."""
    run(["mount", "--bind", str(settings.etc / "hosts"), str(HOSTS)])


def unmount_hosts(settings: Settings) -> None:
    """Unmount the names of this cluster, or of a killed earlier one."""
    ours = f"{settings.etc}/hosts {HOSTS} "
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if ours in line:
            run(["umount", str(HOSTS)])


def _hosts(settings: Settings) -> str:
    """The lab's names, then this machine's own, which its other programs still need."""
    lines = ["127.0.0.1 localhost", f"{CONTROLLER_ADDRESS} {settings.controller}"]
    lines += [f"{node_address(node)} {node}" for node in settings.nodes]
    return "\n".join([*lines, HOSTS.read_text()])
