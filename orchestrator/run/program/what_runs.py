"""The program of every rank of an attempt, as a value: how to start and stop it, and the meaning of its exit codes.

The supervisor makes it and writes it into the attempt's launch.json. Each rank's wrapper reads it, and adds the
environment that torchrun gives its workers, so that programs written for it run unchanged.

Source of the names: the PyTorch documentation, "torchrun (Elastic Launch)", section "Environment Variables". torchrun
itself reads the PET_* as defaults of its options, for ranks that are a torchrun.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torusrun.orchestrator.place.placement.mapping import Placement, Slot
from torusrun.orchestrator.run.folder.records import Meaning


@dataclass(frozen=True)
class MetricsSource:
    """Where the supervisor reads the progress of a program that does not write the run's metrics itself.

    '' stands for a source that is not used.
    """

    file: str = ""  # of JSON lines
    pattern: str = ""  # a regular expression for rank 0's log


@dataclass(frozen=True)
class ReadyCheck:
    """How a service shows that it is ready, and the seconds that it may take. `kind` '' means by its start.

    `http`: its port answers a GET of the path `value` with 2xx; `tcp`: its port accepts connections; `log`: a line of
    its first rank's output matches `value`; `file`: the file `value` exists, relative to its working directory.
    """

    kind: str = ""
    value: str = ""
    within_s: float = 600.0

    @property
    def words(self) -> str:
        """What is waited for, in words."""
        return {"tcp": "its port", "log": "its output"}.get(self.kind, self.value) or "its start"


@dataclass(frozen=True)
class Program:
    """A command with all facts that the wrapper and the supervisor need.

    `environment` is the same for every rank. `directory` is the working directory, '' for the attempt's folder.
    `exit_codes` has the meanings of exit codes (as text); another code means a failure, unless it is 0.
    `records_done` says that the program writes the attempt's done.json, without which it is not done; otherwise it
    is done once all ranks ended well. `shows_stack` says that it writes its stack to its log on SIGUSR1.
    `rendezvous` says that its ranks meet at MASTER_ADDR and MASTER_PORT. `own_group` says that it starts in its own
    process group, which the launcher's signals do not reach. `metrics` is None if it writes the run's metrics
    itself.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    stop_signal: int = signal.SIGTERM
    exit_codes: Mapping[str, Meaning] = field(default_factory=dict)
    records_done: bool = False
    shows_stack: bool = False
    rendezvous: bool = True
    own_group: bool = True
    metrics: MetricsSource | None = None

    def meaning(self, exit_code: int) -> Meaning:
        """The meaning of an exit code (negative: a signal)."""
        return self.exit_codes.get(str(exit_code), Meaning.FAILED if exit_code else Meaning.DONE)

    @property
    def says_later(self) -> bool:
        """Whether it has an exit code for "continue later"."""
        return Meaning.LATER in self.exit_codes.values()


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
    """The variables with the meeting point of the ranks of a role. A torchrun (one per node) reads PET_*."""
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


def facts(hosts: Iterable[str], address: str, port: int | str) -> dict[str, str]:
    """The place of a role: the values for {ROLE.hosts}, {ROLE.address}, {ROLE.port} and {ROLE.url}.

    The hosts, which may be named more than once, are parted by commas.
    """
    within = f"[{address}]" if ":" in address else address
    named = ",".join(dict.fromkeys(hosts))
    return {"hosts": named, "address": address, "port": str(port), "url": f"http://{within}:{port}"}


def role_environment(name: str, place: Mapping[str, str]) -> dict[str, str]:
    """The variables with the place of a role, from its `facts`, for the programs of all roles."""
    names = {"HOSTS": "hosts", "ADDR": "address", "PORT": "port"}
    return {f"TORUSRUN_{name.upper()}_{variable}": place[fact] for variable, fact in names.items()}


def _hosts(peers: Sequence[Slot]) -> list[str]:
    """The hosts of these slots, in order."""
    return list(dict.fromkeys(slot.host for slot in peers))
