"""Host lists for people."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.place.hosts.hostlist import fold


def folded(hosts: Sequence[str]) -> str:
    """'g[0001-0004]'; names that a host list cannot hold stay unchanged."""
    try:
        return plain(fold(hosts)) if hosts else ""
    except SiteError:
        return plain(",".join(hosts))
