"""The environment that torchrun gives its workers, so that programs written for it run unchanged.

Source of the names: the PyTorch documentation, "torchrun (Elastic Launch)", section "Environment Variables". torchrun
itself reads the PET_* as defaults of its options, for ranks that are a torchrun.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torusrun.orchestrator.place.placement.mapping import Slot

# In the words of a role's program: the places of roles, and the role's own port. Nothing else in braces has a meaning.
REFERENCE = re.compile(r"\{([a-z][a-z0-9_]{0,30})\.(hosts|address|port|url)\}")
PORT = "{port}"


def ranks_environment(peers: Sequence[Slot], slot: Slot, run_id: str, attempt: int, grid: str) -> dict[str, str]:
    """The variables with a program's rank, and the number of ranks and nodes.

    `peers` are the slots of its role in order, `slot` its own among them; `grid` is '' for a role without one.
    """
    hosts = _hosts(peers)
    node = hosts.index(slot.host)
    here = [other for other in peers if other.host == slot.host]
    rank, ranks = slot.rank - peers[0].rank, len(peers)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(here.index(slot)),
        "LOCAL_WORLD_SIZE": str(len(here)),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "NODE_RANK": str(node),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(ranks),
        "ROLE_NAME": slot.role or "default",
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORUSRUN_RUN": run_id,
        "TORUSRUN_ATTEMPT": str(attempt),
        **({"TORUSRUN_GRID": grid} if grid else {}),
        **({"TORUSRUN_ROLE": slot.role} if slot.role else {}),
        "TORUSRUN_NODES": str(len(hosts)),
    }


def master_environment(peers: Sequence[Slot], slot: Slot, address: str, port: int | str) -> dict[str, str]:
    """The variables with the meeting point of the ranks of a role. A torchrun (one per node) reads the PET_ ones."""
    hosts = _hosts(peers)
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


def referred(texts: Sequence[str]) -> set[str]:
    """The roles that these texts name in braces."""
    return {match[1] for text in texts for match in REFERENCE.finditer(text)}


def filled(text: str, facts: Mapping[str, Mapping[str, str]], port: str) -> str:
    """The text with what it has in braces: the `facts` of roles by name, and the role's own port."""
    known = REFERENCE.sub(lambda match: facts[match[1]][match[2]] if match[1] in facts else match[0], text)
    return known.replace(PORT, port)


def _hosts(peers: Sequence[Slot]) -> list[str]:
    """The hosts of these slots, in order."""
    return list(dict.fromkeys(slot.host for slot in peers))
