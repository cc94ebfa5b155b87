"""The open files that a rank may have: gloo connects each rank to all others, and rank 0's store to every rank."""

from __future__ import annotations

import resource
from contextlib import suppress

OTHERS = 32  # data, logs, libraries: a guess that refuses little; not measured


def too_few(world: int) -> str:
    """Raise the limit of open files to the most that this process may have; why `world` ranks need more, or ''."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needs = 2 * world + OTHERS
    if soft != resource.RLIM_INFINITY and soft < needs:
        with suppress(ValueError, OSError):  # above the kernel's own limit (fs.nr_open)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY or hard >= needs:
        return ""
    return (
        f"{world} ranks need {needs} open files in each process, and this node allows {hard} (ulimit -Hn): "
        "have its administrators raise the limit, or ask for fewer ranks"
    )
