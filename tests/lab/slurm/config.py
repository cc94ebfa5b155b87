"""The lab's folder and the files in it: rendered from conf/, plus keys, fake GPUs and host names."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from pathlib import Path
from string import Template

from .processes import LabError, run
from .settings import (
    CONTROLLER_ADDRESS,
    CONTROLLER_PORT,
    DATABASE_PORT,
    INTERFACE,
    NODE_PORT,
    Settings,
    node_address,
)

TEMPLATES = Path(__file__).with_name("conf")
FOLDERS = ["etc", "dev", "run", "log", "state", "spool", "munge", "db", "src"]
FOLDER_MARK = ".torusrun-lab"


def make_folder(settings: Settings) -> None:
    settings.root.mkdir(parents=True, mode=0o755)
    (settings.root / FOLDER_MARK).touch()
    for name in FOLDERS:
        (settings.root / name).mkdir(mode=0o755)
    for node in settings.nodes:
        (settings.root / "spool" / node).mkdir()


def remove_folder(root: Path) -> None:
    """Never follows a mount: the checkout is mounted below."""
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
    """The user's way to the checkout, even when it lies below a folder closed to others."""
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
    # Else git refuses to read the checkout, which belongs to another user.
    (settings.home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    (settings.home / "site.yaml").write_text(_rendered("site.yaml", settings, has_cgroups=False))
    for path in [settings.home, *settings.home.iterdir()]:
        shutil.chown(path, settings.user, settings.user)


def write(settings: Settings, has_cgroups: bool) -> None:
    for name in ["slurm.conf", "slurmdbd.conf", "gres.conf", "mpi.conf", "cgroup.conf"]:
        (settings.etc / name).write_text(_rendered(name, settings, has_cgroups))
    (settings.etc / "slurmdbd.conf").chmod(0o600)
    (settings.etc / "hosts").write_text(_hosts(settings))
    _make_key(settings.root / "munge" / "key")
    for number in range(settings.gpus_per_node):
        _make_fake_gpu(settings.root / "dev" / f"gpu{number}")


def _rendered(name: str, settings: Settings, has_cgroups: bool) -> str:
    return Template((TEMPLATES / name).read_text()).substitute(
        root=settings.root,
        home=settings.home,
        interface=INTERFACE,
        gpus=settings.gpus_per_node,
        controller=settings.controller,
        address=CONTROLLER_ADDRESS,
        controller_port=CONTROLLER_PORT,
        node_port=NODE_PORT,
        database_port=DATABASE_PORT,
        plugin_dir=_plugin_dir(),
        proctrack="proctrack/cgroup" if has_cgroups else "proctrack/linuxproc",
        task="task/cgroup" if has_cgroups else "task/none",
        constrain_ram="yes" if has_cgroups else "no",
        kill_wait_s=settings.kill_wait_s,
        min_job_age_s=settings.min_job_age_s,
        gpu_files=f"{settings.root}/dev/gpu[0-{settings.gpus_per_node - 1}]",
        nodes="\n".join(_node_line(node, settings) for node in settings.nodes),
    )


def _node_line(node: str, settings: Settings) -> str:
    return (
        f"NodeName={node} NodeAddr={node_address(node)} CPUs=8 CoresPerSocket=8 RealMemory=8000 "
        f"Gres=gpu:v100:{settings.gpus_per_node} State=UNKNOWN"
    )


def _hosts(settings: Settings) -> str:
    lines = ["127.0.0.1 localhost", f"{CONTROLLER_ADDRESS} {settings.controller}"]
    return "\n".join([*lines, *(f"{node_address(node)} {node}" for node in settings.nodes), ""])


def _make_key(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(1024))


def _make_fake_gpu(path: Path) -> None:
    """Slurm wants a character device: this one is a second /dev/null."""
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    path.chmod(0o666)


def _plugin_dir() -> Path:
    return next(Path("/usr/lib").glob("*/slurm-wlm"))
