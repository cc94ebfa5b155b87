"""A verb with its user's streams and the environment of a login shell, on a terminal if it has one."""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
from collections.abc import Sequence

from torusrun.orchestrator.base import process


def command(words: Sequence[str]) -> str:
    """The command that runs `torusrun WORDS...` on any terminal. It is the same text in every shell."""
    encoded = base64.urlsafe_b64encode(json.dumps(words).encode()).decode()
    argv = process.module(sys.executable, "torusrun.orchestrator.remote.login_node.on_terminal", encoded)
    return shlex.join(["env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", *argv])


def main() -> int:
    os.environ.update(process.login_environment())
    words = json.loads(base64.urlsafe_b64decode(sys.argv[1]))
    return process.interact(process.module(sys.executable, "torusrun.orchestrator", *words))


if __name__ == "__main__":
    sys.exit(main())
