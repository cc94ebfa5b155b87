"""Apptainer of Debian's sid beside the system: it needs a newer C library than this release has.

Its two binaries use sid's libraries, which nothing else uses. Apptainer finds its files relative to its own
place, but its halves disagree on the prefix (one takes usr, the other usr/lib).
"""

from __future__ import annotations

from pathlib import Path

from tests.lab.cluster.processes import LabError, run

from . import archive, packages

SUITE = "sid"
NAMES = {"apptainer": "apptainer", "singularity": "apptainer", "run-singularity": "run-singularity.apptainer"}
LINKS = {
    "usr/etc": "../etc",
    "usr/var": "../var",
    "usr/lib/etc": "../../etc",
    "usr/lib/var": "../../var",
    "usr/lib/bin": "../bin",
    "usr/lib/lib": ".",
}


def make(entry: Path) -> None:
    """Fill the entry: bin/ for the search path, usr/ and etc/ as packaged, tiny/ as a root folder to run.

    Raises LabError if the archive lacks it, or if sid's newest does not run here.
    """
    with archive.downloaded(SUITE, "apptainer", "busybox-static") as files:
        for file in files:
            if file.name.startswith(("apptainer_", "lib", "busybox-static_")):
                run(["dpkg-deb", "--extract", str(file), str(entry)])
    for link, target in LINKS.items():
        (entry / link).symlink_to(target)
    _use_own_libraries(entry)
    (entry / "bin").mkdir()
    for name, program in NAMES.items():
        (entry / "bin" / name).symlink_to(f"../usr/bin/{program}")
    _make_tiny(entry / "tiny", entry / "usr" / "bin" / "busybox")
    _try(entry)


def _use_own_libraries(entry: Path) -> None:
    libraries = next(entry.glob("usr/lib/*/libc.so.6")).parent
    for binary in (entry / "usr/bin/apptainer", libraries / "apptainer/bin/starter"):
        loader = Path(run(["patchelf", "--print-interpreter", str(binary)]).stdout.strip()).name
        # An rpath, unlike a runpath, also holds for the libraries of the libraries.
        rpath = ["--force-rpath", "--set-rpath", str(libraries)]
        run(["patchelf", "--set-interpreter", str(libraries / loader), *rpath, str(binary)])


def _make_tiny(tiny: Path, busybox: Path) -> None:
    """A root of two megabytes with a shell: an image of it is built in half a second."""
    for name in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "var"):
        (tiny / name).mkdir(parents=True)
    (tiny / "bin" / "busybox").write_bytes(busybox.read_bytes())
    (tiny / "bin" / "busybox").chmod(0o755)
    for name in run([str(busybox), "--list"]).stdout.split():
        if name != "busybox":
            (tiny / "bin" / name).symlink_to("busybox")
    (tiny / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tiny / "etc" / "group").write_text("root:x:0:\n")


def _try(entry: Path) -> None:
    run(["chmod", "-R", "a+rX", str(entry)])
    argv = ["exec", "--containall", "--no-home", str(entry / "tiny"), "true"]
    said = run(
        ["env", "--chdir=/", *packages.AS_NOBODY, f"{entry}/bin/apptainer", *argv],
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    if said.returncode:
        raise LabError(f"{SUITE}'s apptainer does not run here as an ordinary user:\n{said.stderr}")
