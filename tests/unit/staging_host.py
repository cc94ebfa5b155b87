"""A host of tests/unit/test_staging.py: the wrapper's part of staging, in a process of its own.

Its argument is JSON. It writes the copies, or the error, as one line, and keeps the copies until its input ends. With a
"gate" its disk gives two blocks of a source, and the rest once that file exists.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.waiting import until
from torusrun.orchestrator.base.errors import StoppedBeforeStart, TorusrunError
from torusrun.orchestrator.job.staging import node_folder, of_host
from torusrun.orchestrator.job.staging.of_rank import staged
from torusrun.orchestrator.job.staging.order import StageEntry, StageOrder
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import Placement, Slot
from torusrun.orchestrator.run.folder.run_folder import Attempt


def main() -> None:
    given = json.loads(sys.argv[1])
    if gate := given.get("gate"):
        of_host.packed = slow(Path(gate))
    node_folder.SPARE_BYTES = given.get("spare", 0)
    hosts = given["hosts"]
    placement = Placement(Grid((len(hosts),)), tuple(Slot(n, host, 0, (n,)) for n, host in enumerate(hosts)))
    entries = tuple(StageEntry(**entry) for entry in given["entries"])
    order = StageOrder(given["run"], given["folder"], entries, given["secret"], "lo")
    with ExitStack() as held:
        try:
            here = staged(order, given["number"], placement, Attempt(Path(given["attempt"])), held)
            said = {"copies": {**here.copies}}
        except (TorusrunError, StoppedBeforeStart) as error:
            said = {"kind": type(error).__name__, "error": str(error)}
        print(json.dumps(said), flush=True)
        sys.stdin.read()


def slow(gate: Path) -> object:
    packed = of_host.packed

    def blocks(path: str) -> Iterator[bytes]:
        for number, block in enumerate(packed(path)):
            if number == 2:
                until(gate.exists, "the gate")
            yield block

    return blocks


if __name__ == "__main__":
    main()
