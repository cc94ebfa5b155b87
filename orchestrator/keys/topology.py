"""The keys of a site's topology: the switches above its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torusrun.orchestrator.keys.kinds import LINE, NODES, SHARE, Limits
from torusrun.training.recipe.key import key, needed


@dataclass(frozen=True)
class Topology:
    """The switch of every node, by which ranks are ordered."""

    source: Literal["names", "switches", "slurm", "pbs", "gridengine", "infiniband"] = needed(
        "its source: names (of hosts, by pattern), switches (listed below), slurm, pbs, gridengine (queried), "
        "or infiniband (a file that ibnetdiscover wrote)"
    )
    pattern: Annotated[str, LINE] = key(
        r"\D*(?P<number>\d+).*",
        "of names: a regular expression with a group 'number', or a group 'rack' that names the rack",
    )
    rack_nodes: Annotated[int, NODES] | None = key(
        None, "of names: nodes per rack, as in 34; numbering continues from rack to rack"
    )
    first: Annotated[int, Limits(at_least=0, at_most=10**9)] = key(1, "of names: the first node's number")
    attribute: Annotated[str, LINE] | None = key(
        None,
        "of pbs: the resource with the switch, or nested ones (default: switch); of gridengine: how racks' host groups "
        "begin (default: @rack); of slurm: a topology's name (default: the cluster's)",
    )
    file: Annotated[str, LINE] | None = key(None, "a file with the output of the source, read in place of a query")
    switches: dict[Annotated[str, LINE], Annotated[str, LINE]] = key(
        {}, "of switches: each one's hosts, as in rack1: 'g[0001-0034]'"
    )
    uplink: Annotated[float, SHARE] = key(
        1.0, "bandwidth of a rack's uplink as a share of that of all its nodes, as in 1/3"
    )
    nvlink: bool = key(
        False, "a rack (a block of Slurm) is an NVLink domain (NVL72): a row of grid auto is one, summed by NCCL"
    )
    slow: dict[Annotated[str, LINE], Annotated[float, SHARE]] = key(
        {}, "hosts and switches with a slow link: the share of bandwidth that is left"
    )

    @property
    def by_name(self) -> bool:
        """Whether racks follow from the names of hosts; then no source lists the other hosts."""
        return self.source == "names"
