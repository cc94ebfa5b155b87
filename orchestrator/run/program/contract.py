"""The environment that torchrun gives its workers, so that programs written for it run unchanged.

Source of the names: the PyTorch documentation, "torchrun (Elastic Launch)", section "Environment Variables". torchrun
itself reads the PET_* as defaults of its options, for ranks that are a torchrun.
"""

from __future__ import annotations

from torusrun.orchestrator.place.placement.mapping import Placement


def ranks_environment(placement: Placement, rank: int, run_id: str, attempt: int) -> dict[str, str]:
    """The variables with a program's rank, and the number of ranks and nodes."""
    slot = placement.slots[rank]
    hosts = placement.hosts
    node = hosts.index(slot.host)
    ranks, here = len(placement.slots), sum(other.host == slot.host for other in placement.slots)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(slot.local_rank),
        "LOCAL_WORLD_SIZE": str(here),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "NODE_RANK": str(node),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(ranks),
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORUSRUN_RUN": run_id,
        "TORUSRUN_ATTEMPT": str(attempt),
        "TORUSRUN_GRID": str(placement.grid),
        "TORUSRUN_NODES": str(len(hosts)),
    }


def master_environment(placement: Placement, rank: int, address: str, port: int | str) -> dict[str, str]:
    """The variables with the meeting point of the ranks. A torchrun (one per node) reads the PET_ ones."""
    hosts = placement.hosts
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "PET_NNODES": str(len(hosts)),
        "PET_NODE_RANK": str(hosts.index(placement.slots[rank].host)),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }
