"""`python -m orchestrator` is `torusrun`."""

import sys

from orchestrator.cli import main

sys.exit(main())
