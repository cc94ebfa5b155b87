"""Slurm's files: rendered from conf/, plus keys and fake GPUs."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from string import Template

from ..cluster.settings import CONTROLLER_ADDRESS, INTERFACE, Settings, node_address
from . import pyxis

TEMPLATES = Path(__file__).with_name("conf")
GPUS = 2  # of a node, as in conf/
FOLDERS = ["dev", "state", "spool", "munge", "db"]
CONTROLLER_PORT, NODE_PORT, DATABASE_PORT = 16817, 16818, 16819


def make_folders(settings: Settings) -> None:
    for name in FOLDERS:
        (settings.root / name).mkdir(mode=0o755)
    for node in settings.nodes:
        (settings.root / "spool" / node).mkdir()


def site(settings: Settings) -> str:
    return _rendered("site.yaml", settings, has_cgroups=False)


def write(settings: Settings, has_cgroups: bool) -> None:
    for name in ["slurm.conf", "slurmdbd.conf", "gres.conf", "topology.conf", "mpi.conf", "cgroup.conf"]:
        (settings.etc / name).write_text(_rendered(name, settings, has_cgroups))
    if plugged := pyxis.folder():
        with (settings.etc / "slurm.conf").open("a") as conf:
            conf.write(f"PlugStackConfig={plugged}/plugstack.conf\n")
    (settings.etc / "slurmdbd.conf").chmod(0o600)
    _make_key(settings.root / "munge" / "key")
    for number in range(GPUS):
        _make_fake_gpu(settings.root / "dev" / f"gpu{number}")


def _rendered(name: str, settings: Settings, has_cgroups: bool) -> str:
    return Template((TEMPLATES / name).read_text()).substitute(
        root=settings.root,
        home=settings.home,
        interface=INTERFACE,
        controller=settings.controller,
        address=CONTROLLER_ADDRESS,
        controller_port=CONTROLLER_PORT,
        node_port=NODE_PORT,
        database_port=DATABASE_PORT,
        plugin_dir=_plugin_dir(),
        proctrack="proctrack/cgroup" if has_cgroups else "proctrack/linuxproc",
        task="task/cgroup" if has_cgroups else "task/none",
        constrain_ram="yes" if has_cgroups else "no",
        nodes="\n".join(map(_node_line, settings.nodes)),
        racka=",".join(settings.nodes[: len(settings.nodes) // 2]),
        rackb=",".join(settings.nodes[len(settings.nodes) // 2 :]),
    )


def _node_line(node: str) -> str:
    return (
        f"NodeName={node} NodeAddr={node_address(node)} CPUs=8 CoresPerSocket=8 RealMemory=8000 "
        f"Gres=gpu:v100:{GPUS} State=UNKNOWN"
    )


def _make_key(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(1024))


def _make_fake_gpu(path: Path) -> None:
    """Make a character device, which Slurm needs: a second /dev/null."""
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    path.chmod(0o666)


def _plugin_dir() -> Path:
    return next(Path("/usr/lib").glob("*/slurm-wlm"))
