"""Every kind of fault by its name."""

from tests.campaign.faults import hosts, jobs, ranks, requests, servers
from tests.campaign.faults.fault import Expected, Fault

KINDS: dict[str, Fault] = {
    fault.kind: fault for module in (ranks, jobs, hosts, requests, servers) for fault in module.FAULTS
}

__all__ = ["KINDS", "Expected", "Fault"]
