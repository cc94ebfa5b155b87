"""The results of a verb that has no JSON of its own, such as the ids of runs and the paths of files, as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout

from torusrun.orchestrator.base import signals
from torusrun.orchestrator.base.terminal.remarks import printed, set_quiet

SCHEMA = 1


def as_json(act: Callable[[], int]) -> int:
    """Run a verb, and print the lines that --quiet leaves as a list.

    After an error, or on SIGTERM and SIGHUP, it is printed if it has any: a submitted run must not lose its id.
    """
    set_quiet(True)
    text, done = io.StringIO(), False
    try:
        with signals.in_order(), redirect_stdout(text):
            code = act()
        done = True
        return code
    finally:
        results = text.getvalue().splitlines()
        if done or results:
            printed(json.dumps({"schema": SCHEMA, "results": results}, indent=1))
