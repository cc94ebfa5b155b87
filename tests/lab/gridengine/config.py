"""Grid Engine's folder (SGE_ROOT) and the input of qconf, rendered from conf/."""

from __future__ import annotations

import shutil
from pathlib import Path
from string import Template

from ..cluster.settings import INTERFACE, Settings

TEMPLATES = Path(__file__).with_name("conf")
QMASTER_PORT, EXECD_PORT = 16444, 16445
ARCH = "lx-amd64"

# Debian's defaults, and this cluster's values in their place: root's folder, and short intervals.
CHANGES = {
    "load_report_time": "00:00:04",
    "max_unheard": "00:00:12",
    "min_uid": "0",
    "min_gid": "0",
    "mailer": "/bin/true",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
    "finished_jobs": "0",
}


def make_root(settings: Settings, unpacked: Path, sge: Path) -> None:
    """Make SGE_ROOT as the programs expect it: they find their libraries by their own place in it."""
    programs = unpacked / "usr/lib/gridengine"
    for name in ("bin", "utilbin", "lib"):
        shutil.copytree(programs, sge / name / ARCH, symlinks=True)
    shutil.copytree(unpacked / "usr/share/gridengine/util", sge / "util", symlinks=True)
    for folder in ("default/common", "spool/qmaster", "spool/execd", "lab"):
        (sge / folder).mkdir(parents=True)
    (sge / "default/common/bootstrap").write_text(rendered("bootstrap", settings, sge))
    (sge / "default/common/act_qmaster").write_text(f"{settings.controller}\n")
    changes = {**CHANGES, "execd_spool_dir": f"{sge}/spool/execd", "jsv_url": f"script:{sge}/lab/jsv.sh"}
    lines = (unpacked / "usr/share/gridengine/default-configuration").read_text().splitlines()
    (sge / "configuration").write_text("\n".join(_changed(line, changes) for line in lines) + "\n")
    for name in ("jsv.sh", "starter.sh", "qsub"):
        (sge / "lab" / name).write_text(rendered(name, settings, sge))
        (sge / "lab" / name).chmod(0o755)


def rendered(file: str, settings: Settings, sge: Path, **values: str) -> str:
    template = Template((TEMPLATES / file).read_text())
    nodes = " ".join(settings.nodes)
    return template.substitute(sge=sge, home=settings.home, nodes=nodes, interface=INTERFACE, **values)


def _changed(line: str, changes: dict[str, str]) -> str:
    key = line.split()[0] if line.split() else ""
    return f"{key} {changes[key]}" if key in changes else line
