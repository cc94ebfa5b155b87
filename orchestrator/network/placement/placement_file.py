"""A placement in the format of launchers."""

from __future__ import annotations

from orchestrator.network.placement.mapping import Placement


def hostfile(placement: Placement) -> str:
    """One host per rank, in rank order; all launchers read this form."""
    return "".join(f"{slot.host}\n" for slot in placement.slots)
