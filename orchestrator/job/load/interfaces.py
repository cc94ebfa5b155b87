"""The network traffic of a node: counters of bytes in and out of its interface and its InfiniBand ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator.run.folder.at_work import NetworkLoad

WORD_BYTES = 4  # InfiniBand counts data in units of 32 bits (IBTA specification, PortCounters)
INFINIBAND = "32"  # ARPHRD_INFINIBAND: IP over a port, whose own counters include this traffic

Counters = Mapping[str, tuple[int, int]]  # name -> bytes (in, out) since the start of the node


def counters(interface: str | None, adapters: Collection[str], root: Path = Path("/")) -> Counters:
    """The counters of the interface and the adapters that a job uses.

    Without `interface`: those of default routes, or else all cards. Without `adapters`: all adapters.
    Raises OSError or ValueError if the node does not report them.
    """
    ports = infiniband(adapters, root)
    known = interfaces((root / "proc/net/dev").read_text())
    used = [interface] if interface else default_routes((root / "proc/net/route").read_text())
    if not (used := [name for name in used if name in known]):  # cards have a device; bridges and the like have none
        used = [name for name in known if (root / "sys/class/net" / name / "device").exists()]
    return {name: known[name] for name in used if not (ports and _is_infiniband(name, root))} | ports


def interfaces(dev: str) -> dict[str, tuple[int, int]]:
    """Bytes (in, out) of each interface, from the text of /proc/net/dev. Raises ValueError if it is cut off."""
    found = {}
    for line in dev.splitlines()[2:]:
        name, _, words = line.partition(":")
        numbers = [int(word) for word in words.split()]
        if len(numbers) < 9:
            raise ValueError("/proc/net/dev is cut off")
        found[name.strip()] = numbers[0], numbers[8]
    return found


def default_routes(route: str) -> list[str]:
    """The interfaces of default routes, from the text of /proc/net/route."""
    rows = [line.split() for line in route.splitlines()[1:]]
    return list(dict.fromkeys(row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"))


def infiniband(adapters: Collection[str], root: Path = Path("/")) -> dict[str, tuple[int, int]]:
    """Bytes (in, out) of each port, named 'mlx5_0', or 'mlx5_0:2' if it is not the first port."""
    found = {}
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*/counters")):
        adapter, port = folder.parts[-4], folder.parts[-2]
        if not adapters or adapter in adapters or f"{adapter}:{port}" in adapters:
            inward, outward = (int((folder / f"port_{way}_data").read_text()) for way in ("rcv", "xmit"))
            found[adapter if port == "1" else f"{adapter}:{port}"] = inward * WORD_BYTES, outward * WORD_BYTES
    return found


def rates(before: Counters, now: Counters, passed_s: float) -> Sequence[NetworkLoad]:
    """The traffic in bytes per second between two looks; a counter that was reset is left out."""
    found = []
    for name in now.keys() & before.keys():
        came, went = (new - old for new, old in zip(now[name], before[name], strict=True))
        if came >= 0 and went >= 0 and passed_s > 0:
            found.append(NetworkLoad(name, round(came / passed_s), round(went / passed_s)))
    return sorted(found, key=lambda link: link.name)


def _is_infiniband(name: str, root: Path) -> bool:
    try:
        return (root / "sys/class/net" / name / "type").read_text().strip() == INFINIBAND
    except OSError:
        return False
