"""Grid Engine 8.1.9 from Debian, only unpacked: an installation would add a mailer and daemons."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..cluster.cache import cached
from ..cluster.packages import SEARCH, install_missing
from ..cluster.processes import LabError, run

UNPACKED = ["gridengine-master", "gridengine-exec", "gridengine-client", "gridengine-common"]
PLUGINS = Path("/usr/lib/gridengine")  # the programs look here for their spooling libraries, with any SGE_ROOT
LIBRARIES = ["libjemalloc2", "libmunge2", "libhwloc15", "libtirpc3", "libdb5.3", "libtinfo6"]


def unpacked() -> Path:
    """The folder with Grid Engine's files, in their layout below /."""
    install_missing({"cpp": "cpp"}, LIBRARIES)  # its script `arch`, which every JSV calls, calls the preprocessor
    return cached("gridengine", "\n".join(UNPACKED), _unpack)


def _unpack(folder: Path) -> None:
    env = {"PATH": SEARCH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    archives = folder / "archives"
    archives.mkdir(mode=0o777)
    run(["apt-get", "update", "-qq"], timeout_s=300, env=env)
    # apt's own user cannot write into every folder; root can, and apt then only warns.
    run(["sh", "-c", f"cd {archives} && apt-get download -qq {' '.join(UNPACKED)}"], timeout_s=300, env=env)
    for archive in archives.glob("*.deb"):
        run(["dpkg-deb", "-x", str(archive), str(folder)])
    if not (folder / "usr/lib/gridengine/sge_qmaster").exists():
        raise LabError(f"Debian's Grid Engine has no sge_qmaster: {sorted(p.name for p in archives.iterdir())}")
    shutil.rmtree(archives)


def show_plugins(folder: Path) -> None:
    if not PLUGINS.is_dir():
        PLUGINS.unlink(missing_ok=True)
        PLUGINS.symlink_to(folder / "usr/lib/gridengine")


def hide_plugins() -> None:
    if PLUGINS.is_symlink():
        PLUGINS.unlink()
