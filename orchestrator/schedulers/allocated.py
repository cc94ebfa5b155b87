"""The hosts of the job that this process belongs to, and which of them it is on."""

from __future__ import annotations

import os
import socket

from torusrun.orchestrator.place.hosts.this_host import this_host
from torusrun.orchestrator.schedulers.interface import Scheduler


def hosts_of(scheduler: Scheduler) -> list[str]:
    """The job's hosts in the scheduler's order, each once. Raises SiteError if they cannot be determined."""
    own = os.environ.get(scheduler.variables.host) or socket.gethostname()
    return list(dict.fromkeys(scheduler.hosts(os.environ, own)))


def here(scheduler: Scheduler, hosts: list[str]) -> str:
    """This host by its name in `hosts`."""
    return this_host(hosts, os.environ.get(scheduler.variables.host, ""))
