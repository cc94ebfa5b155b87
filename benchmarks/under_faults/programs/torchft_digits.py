"""A replica of the training with torchft: `python -m benchmarks.under_faults.programs.torchft_digits REPLICA FOLDER`.

It follows torchft's own example of a fault-tolerant DDP. TORCHFT_LIGHTHOUSE has the address of the lighthouse. The
shard of a replica stays the same, so samples of a replica that is away are not seen.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from benchmarks.under_faults.programs.digits import Digits
from benchmarks.under_faults.programs.steps import Steps

TIMEOUT = timedelta(seconds=5)


def main() -> None:
    logging.disable(logging.INFO)
    replica, folder = int(sys.argv[1]), Path(sys.argv[2])
    steps, digits = Steps(folder, replica), Digits(replica)
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def load(state: dict[str, Any]) -> None:
        digits.model.load_state_dict(state["model"])
        digits.optimizer.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": digits.model.state_dict(), "optimizer": digits.optimizer.state_dict()},
        replica_id=f"digits_{replica}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=TIMEOUT,
    )
    model = DistributedDataParallel(manager, digits.model)
    optimizer = Optimizer(manager, digits.optimizer)
    while True:
        optimizer.zero_grad()
        before = manager.current_step()
        digits.loss(model, before).backward()
        optimizer.step()
        if manager.current_step() > before:
            steps.add(manager.current_step(), manager.num_participants())


if __name__ == "__main__":
    main()
