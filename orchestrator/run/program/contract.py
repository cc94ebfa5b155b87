"""The environment that torchrun gives its workers, so that programs written for it run unchanged.

Source of the names: the PyTorch documentation, "torchrun (Elastic Launch)", section "Environment Variables". torchrun
itself reads the PET_* as defaults of its options, for ranks that are a torchrun.
"""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.place.placement.mapping import Placement, Slot


def ranks_environment(placement: Placement, rank: int, run_id: str, attempt: int) -> dict[str, str]:
    """The variables with the number of a program's rank in its role, and of the role's ranks and nodes."""
    slot = placement.slots[rank]
    peers = placement.of_role(slot.role)
    hosts = _hosts(peers)
    node = hosts.index(slot.host)
    here = [other for other in peers if other.host == slot.host]
    number, ranks = rank - peers[0].rank, len(peers)
    return {
        "RANK": str(number),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(here.index(slot)),
        "LOCAL_WORLD_SIZE": str(len(here)),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "NODE_RANK": str(node),
        "ROLE_RANK": str(number),
        "ROLE_WORLD_SIZE": str(ranks),
        "ROLE_NAME": slot.role or "default",
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORUSRUN_RUN": run_id,
        "TORUSRUN_ATTEMPT": str(attempt),
        **({"TORUSRUN_GRID": str(placement.grid)} if slot.at else {}),
        **({"TORUSRUN_ROLE": slot.role} if slot.role else {}),
        "TORUSRUN_NODES": str(len(hosts)),
    }


def master_environment(placement: Placement, rank: int, address: str, port: int | str) -> dict[str, str]:
    """The variables with the meeting point of the ranks of a role. A torchrun (one per node) reads the PET_ ones."""
    slot = placement.slots[rank]
    hosts = _hosts(placement.of_role(slot.role))
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "PET_NNODES": str(len(hosts)),
        "PET_NODE_RANK": str(hosts.index(slot.host)),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }


def role_environment(name: str, hosts: Sequence[str], address: str, port: int | str) -> dict[str, str]:
    """The variables with the place of a role, for the programs of all roles."""
    prefix = f"TORUSRUN_{name.upper()}"
    return {f"{prefix}_HOSTS": ",".join(hosts), f"{prefix}_ADDR": address, f"{prefix}_PORT": str(port)}


def _hosts(peers: Sequence[Slot]) -> list[str]:
    """The hosts of these slots, in order."""
    return list(dict.fromkeys(slot.host for slot in peers))
