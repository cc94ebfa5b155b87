"""`python -m torusrun.training CONFIG`: one rank, numbered by RANK, WORLD_SIZE and LOCAL_RANK (0, 1, 0 by default)."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from torusrun.training.checkpoint import writer
from torusrun.training.checkpoint.manifest import OtherSchema
from torusrun.training.config import Config, ConfigError, Ranks, load, too_few
from torusrun.training.reporting import start
from torusrun.training.reporting.exits import (
    EXIT_BAD_CONFIG,
    EXIT_CUT_OFF,
    EXIT_FAILED,
    StopRequest,
    TrainingError,
    cut_off,
)
from torusrun.training.reporting.output import never_fail, warn


def main(arguments: list[str]) -> int:
    """Run one rank to its end; returns the exit code (see `training.reporting.exits`)."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # torusrun sends it when a run hangs: the stacks show where this rank is
    try:
        start.ended("python")
        config, ranks = read(arguments)
        if why := too_few(ranks.world):
            raise ConfigError(why)
        writing = writer.start() if ranks.rank == 0 else None  # before the imports: see writer.py
        return _loop()(config, ranks, StopRequest(), writing)
    except (ConfigError, OtherSchema) as error:
        warn(f"training: {error}")
        return EXIT_BAD_CONFIG
    except TrainingError as error:
        warn(f"training: {error}")
        return EXIT_FAILED
    except Exception as error:
        traceback.print_exc()
        return EXIT_CUT_OFF if cut_off(error) else EXIT_FAILED


def _loop() -> Callable[[Config, Ranks, StopRequest, writer.Writer | None], int]:
    with start.without_garbage():
        from torusrun.training.loop import run

        gc.freeze()
    start.ended("imports")
    return run


def read(arguments: list[str]) -> tuple[Config, Ranks]:
    """The config that the arguments name, and which rank this is. Raises ConfigError if either is invalid."""
    if len(arguments) != 1:
        raise ConfigError("usage: python -m torusrun.training CONFIG.json")
    ranks = Ranks.from_environment(os.environ)
    return load(Path(arguments[0]), ranks.world), ranks


if __name__ == "__main__":
    never_fail()
    code = main(sys.argv[1:])
    if code in (EXIT_FAILED, EXIT_BAD_CONFIG, EXIT_CUT_OFF):
        # Threads that still wait for other ranks would abort the interpreter at its end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
