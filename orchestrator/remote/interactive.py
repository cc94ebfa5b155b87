"""A verb on the login node with the streams of this program, on a terminal where there is one.

There, `orchestrator.remote.interactive WORDS` runs `torusrun WORD...` with the environment of a login shell.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence

from orchestrator.base import process
from orchestrator.remote.remote_runs import Known


def shell(run: Known, rank: int, command: Sequence[str], *, terminal: bool) -> int:
    """A command, or a shell, beside a rank of a run on a login node; its exit code.

    Raises LinkLost when the link breaks, which ends it.
    """
    from orchestrator.remote.replies import received
    from orchestrator.remote.session import Session

    words = ["shell", run.run, f"--rank={rank}", "--", *command]
    with Session(run.host) as session:
        answer, _ = session.ask({"ask": "command", "words": words})
        return session.interact(received(run.host, str, answer.get("command"), str), terminal=terminal)


def main() -> int:
    os.environ.update(process.login_environment())
    words = json.loads(base64.urlsafe_b64decode(sys.argv[1]))
    return process.interact(process.module(sys.executable, "orchestrator", *words))


if __name__ == "__main__":
    sys.exit(main())
