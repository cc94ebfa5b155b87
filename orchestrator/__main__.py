"""`python -m orchestrator` is `torusrun`."""

import os
import sys

# `-m` puts the working directory first. Nothing is imported from there, unless torusrun itself lies in it.
home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
try:
    foreign = {"", os.getcwd()} - {home}
except OSError:
    foreign = {""}
if home in sys.path[:1] and home not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), home)))  # for its children
sys.path[:] = [entry for entry in sys.path if entry not in foreign]

from orchestrator.cli.main import main  # noqa: E402

sys.exit(main())
