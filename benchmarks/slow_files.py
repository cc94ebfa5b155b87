"""How long `torusrun status` takes where each opened file takes 10 ms, as in a home folder on a busy NFS or GPFS.

`python -m benchmarks.slow_files [ROUNDS] [--runs N]` needs a C compiler and strace.

It compares `torusrun.pyz` with an installation of the wheel in a virtual environment, both with N runs that are over. A
preloaded library delays every open(), openat(), fopen() and opendir() of the process, also of Python's own files, as if
Python lay on that file system, too. strace counts the opens, those of the loader with them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.cold_start import make
from torusrun.orchestrator.remote.archive import one_file

DELAYED = """
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#define MODE va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more)
#define REAL(type, name, ...) usleep(DELAY_US); return ((type (*)())dlsym(RTLD_NEXT, name))(__VA_ARGS__)
int open(const char *path, int flags, ...) { MODE; REAL(int, "open", path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE; REAL(int, "open64", path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE; REAL(int, "openat", at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE; REAL(int, "openat64", at, path, flags, mode); }
FILE *fopen(const char *path, const char *how) { REAL(FILE *, "fopen", path, how); }
FILE *fopen64(const char *path, const char *how) { REAL(FILE *, "fopen64", path, how); }
DIR *opendir(const char *path) { REAL(DIR *, "opendir", path); }
"""
DELAY_MS = 10


def seconds(argv: list[str], preloaded: str) -> tuple[float, float]:
    """(wall time, time of the processor) of a program with this library."""
    started_s, before = time.perf_counter(), os.times()
    environment = {**os.environ, "LD_PRELOAD": preloaded}
    subprocess.run(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=600)
    after = os.times()
    of_processor_s = sum(after[2:4]) - sum(before[2:4])  # of children
    return time.perf_counter() - started_s, of_processor_s


def opens(argv: list[str], folder: Path) -> int:
    """How many opens of a program succeed."""
    log = folder / "strace"
    traced = ["strace", "-f", "-qq", "-e", "trace=open,openat", "-o", str(log), *argv]
    subprocess.run(traced, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=600)
    return len(re.findall(r"\) = \d+$", log.read_text(), re.MULTILINE))


def installed(folder: Path) -> list[str]:
    """`status` of this torusrun, installed into a virtual environment as from its wheel."""
    pip = [sys.executable, "-m", "pip", "--quiet"]
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=300)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([*pip, "--python", python, "install", str(root)], check=True, timeout=900)
    return [str(folder / "venv" / "bin" / "torusrun"), "status"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_files")
    parser.add_argument("rounds", metavar="ROUNDS", type=int, nargs="?", default=9)
    parser.add_argument("--runs", metavar="N", type=int, default=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(HOME=name, XDG_STATE_HOME=f"{name}/state", XDG_DATA_HOME=f"{name}/data")
        os.environ.pop("PYTHONPATH", None)
        (folder / "delayed.c").write_text(DELAYED)
        library = str(folder / "delayed.so")
        flags = ["-shared", "-fPIC", "-w", f"-DDELAY_US={DELAY_MS * 1000}"]
        subprocess.run(["cc", *flags, "-o", library, folder / "delayed.c", "-ldl"], check=True, timeout=60)
        pyz = folder / "torusrun.pyz"
        pyz.write_bytes(one_file())
        pyz.chmod(0o755)
        cases = {"torusrun.pyz status": [str(pyz), "status"], "the same, from the wheel": installed(folder)}
        make(folder, chosen.runs)
        rounds = f"the fastest of {chosen.rounds} starts"
        print(f"{chosen.runs} runs, {rounds}; {os.cpu_count()} cores, Python {sys.version.split()[0]}")
        for case, argv in cases.items():
            seconds(argv, "")  # the first unpacks, and compiles
            seconds(argv, "")
            (quick_s, cpu_s), (slow_s, _) = (
                min(seconds(argv, preloaded) for _ in range(chosen.rounds)) for preloaded in ("", library)
            )
            what = f"{case:26}{opens(argv, folder):5} opens{quick_s:8.3f} s, {cpu_s:.2f} s of it of the processor"
            print(f"{what};{slow_s:8.3f} s with {DELAY_MS} ms for each", flush=True)


if __name__ == "__main__":
    main()
