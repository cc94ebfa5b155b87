"""`python -m benchmarks.packets RECORD`: see recorded.py."""

import sys
from pathlib import Path

from benchmarks.packets.recorded import main

if len(sys.argv) != 2:
    raise SystemExit("usage: python -m benchmarks.packets RECORD")
main(Path(sys.argv[1]))
