"""Stands in for apptainer: builds in a moment (or fails as asked), and hands variables in as the real one does."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

VERSION = os.environ.get("FAKE_VERSION", "apptainer version 1.4.5")
PREFIX = "APPTAINERENV_" if VERSION.startswith("apptainer") else "SINGULARITYENV_"


def build(arguments: list[str]) -> int:
    image, definition = Path(arguments[-2]), Path(arguments[-1])
    with open(os.environ.get("FAKE_COUNT", os.devnull), "a") as count:
        count.write(" ".join(arguments[:-2]) + "\n")
    print("INFO:    Starting build...", file=sys.stderr, flush=True)
    text = definition.read_text() + "".join(p.read_text() for p in sorted(Path("files").iterdir()) if p.is_file())
    middle = len(text) // 2
    with open(image, "w") as stream:
        for part in (text[:middle], text[middle:]):
            stream.write(part)
            stream.flush()
            time.sleep(float(os.environ.get("FAKE_SECONDS", "0")) / 2)
    if said := os.environ.get("FAKE_FAILURE"):
        print(said, flush=True)
        return 255
    print("INFO:    Build complete", flush=True)
    return 0


def execute(arguments: list[str]) -> int:
    """As the action script: evaluates without --no-eval, unsets what is empty, keeps HOME, eats CRs before LFs."""
    options = arguments[: arguments.index("IMAGE.sif")]
    command = arguments[len(options) + 1 :]
    given = {k[len(PREFIX) :]: v for k, v in os.environ.items() if k.startswith(PREFIX)}
    lines = []
    for name, value in given.items():
        value = value.replace("\r\n", "\n")
        if name != "HOME" and value:
            lines.append(f"export {name}=" + (shlex.quote(value) if "--no-eval" in options else f'"{value}"'))
    script = "\n".join([*lines, 'exec "$@"'])
    assert "--cleanenv" in options
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
    return subprocess.run(["/bin/sh", "-c", script, "sh", *command], env=clean).returncode


if __name__ == "__main__":
    if sys.argv[1] == "--version":
        print(VERSION)
        sys.exit(0)
    sys.exit({"build": build, "exec": execute}[sys.argv[1]](sys.argv[2:]))
