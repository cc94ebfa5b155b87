"""`python -m torusrun` is `torusrun`."""

import os
import sys

try:  # `-m` puts the working directory first; nothing is imported from there
    foreign = {"", os.getcwd()}
except OSError:
    foreign = {""}
sys.path[:1] = [entry for entry in sys.path[:1] if entry not in foreign]

from torusrun.orchestrator.cli.main import main  # noqa: E402

sys.exit(main())
