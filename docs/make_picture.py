"""Draw docs/demo.svg from a real run: `python docs/make_picture.py`. It shows the output of the commands."""

from __future__ import annotations

import os
import pty
import subprocess
import tempfile
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console

COMMANDS = (
    "torusrun plan examples/digits.yaml",
    "torusrun submit examples/digits.yaml --wait",
    "torusrun status",
)
WIDTH = 118


def said_on_a_terminal(command: str, home: str) -> str:
    """The output of a command on a terminal; of a line that was drawn over and over, the last state."""
    mine, theirs = pty.openpty()
    env = {**os.environ, "HOME": home, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    child = subprocess.Popen(command.split(), stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=env)
    os.close(theirs)
    text = b""
    try:
        while block := os.read(mine, 65536):
            text += block
    except OSError:  # a pseudo-terminal reports a closed other end in this way
        pass
    child.wait(timeout=10)
    lines = text.decode().replace("\x1b[?25l", "").replace("\x1b[?25h", "").split("\r\n")
    return "\n".join(line.rpartition("\x1b[2K")[2] for line in lines).rstrip()


def main() -> None:
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115
    with tempfile.TemporaryDirectory() as home:
        for command in COMMANDS:
            console.print(f"[bold]$ {command}[/]", highlight=False)
            for line in AnsiDecoder().decode(said_on_a_terminal(command, home).replace(home, "~")):
                console.print(line, highlight=False, soft_wrap=True)
    (Path(__file__).parent / "demo.svg").write_text(console.export_svg(title="torusrun"))


if __name__ == "__main__":
    main()
