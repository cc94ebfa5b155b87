"""`python -m held CONFIG`: the training; while there is a file `hold-N` beside its config, rank 0 waits after step N.

So a test acts at this step, however late it is itself. The file `held-N` says that rank 0 waits: all that follows the
step is done.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from tests.waiting import until
from torusrun.training.reporting.reporter import Reporter

begins = Reporter.stepping


def waits(reporter: Reporter) -> None:
    step = reporter._learner.progress.steps
    hold = Path(sys.argv[1]).with_name(f"hold-{step}")
    if os.environ["RANK"] == "0" and hold.exists():
        hold.with_name(f"held-{step}").touch()
        until(lambda: not hold.exists(), f"{hold} to be removed")
    begins(reporter)


if __name__ == "__main__":
    Reporter.stepping = waits  # type: ignore[method-assign]
    runpy.run_module("torusrun.training", run_name="__main__", alter_sys=True)
