"""A login node without ssh: a process of this machine, behind a link that breaks wherever a test says."""

import os
import sys
from pathlib import Path

from torusrun.orchestrator.remote.host import LoginHost

HERE = LoginHost("nobody@nowhere", python=sys.executable)
# Runs a command, passes on so many bytes of its output, and ends as ssh does when a link breaks.
BREAKS = """
import os, subprocess, sys
left = int(sys.argv[1])
program = subprocess.Popen(["sh", "-c", sys.argv[2]], stdout=subprocess.PIPE)
while left and (data := os.read(program.stdout.fileno(), left)):
    os.write(1, data)
    left -= len(data)
if not left:
    os._exit(255)
sys.exit(program.wait())
"""


def argv(command: str, home: Path, lives: float = float("inf")) -> list[str]:
    """The program that runs a command as a login node with this home would, over a link of so many bytes."""
    variables = {"HOME": home, "PATH": os.defpath, "SHELL": "/bin/sh", "PYTHONPATH": home}
    env = ["env", "-i", "-C", str(home), *(f"{name}={value}" for name, value in variables.items())]
    if lives == float("inf"):
        return [*env, "sh", "-c", command]
    return [*env, sys.executable, "-c", BREAKS, str(int(lives)), command]
