"""A node from `nvidia-smi topo -m`: the connections of GPUs and adapters, and the cores beside every GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.base.errors import SiteError
from orchestrator.network.hosts.model import Nic

# From near to far, as in the legend of nvidia-smi; NV# means # bonded NVLinks.
NEAR = ("X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True)
class Topo:
    """Devices in the order of the matrix; `joined[a, b]` is the matrix's word for a pair."""

    gpus: tuple[str, ...]
    adapters: tuple[str, ...]
    joined: Mapping[tuple[str, str], str]
    cores: tuple[tuple[int, ...], ...]  # beside each GPU; empty if not listed

    def distance(self, gpu: int, adapter: str) -> int:
        """The distance of a GPU to an adapter; 0 is nearest."""
        return NEAR.index(re.sub(r"\d+$", "", self.joined[self.gpus[gpu], adapter]))

    def nics(self) -> tuple[Nic, ...]:
        """The adapters with the GPUs beside them: each GPU gets the nearest, of these the one with fewest GPUs."""
        taken: dict[str, list[int]] = {name: [] for name in self.adapters}
        for gpu in range(len(self.gpus)):
            if self.adapters:
                nearest = min(self.adapters, key=lambda name: (self.distance(gpu, name), len(taken[name])))
                taken[nearest].append(gpu)
        return tuple(Nic(name, rail, tuple(gpus)) for rail, (name, gpus) in enumerate(taken.items()))


def topo(text: str) -> Topo:
    """The matrix in `text`. Raises SiteError if it is cut off or missing."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    start = next((i for i, line in enumerate(lines) if re.match(r"\s*GPU0\b(?!\s+X)", line)), None)
    if start is None:
        raise SiteError(f"this is not what nvidia-smi topo -m says: {text.strip()[:80]!r}")
    devices = re.split(r"\s+CPU\s+Affinity", lines[start])[0].split()
    joined, cores = dict[tuple[str, str], str](), dict[str, tuple[int, ...]]()
    for line in lines[start + 1 :]:
        name, *words = line.split() or [""]
        if name not in devices:
            continue
        if len(words) < len(devices):
            raise SiteError(f"what nvidia-smi topo -m says of {name} is cut off: {line.strip()!r}")
        for other, word in zip(devices, words, strict=False):
            if not re.fullmatch(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS", word):
                raise SiteError(f"nvidia-smi topo -m joins {name} and {other} by {word!r}, which is unknown")
            joined[name, other] = word
        cores[name] = numbered(words[len(devices)]) if len(words) > len(devices) else ()
    if missing := [name for name in devices if (name, name) not in joined]:
        raise SiteError(f"what nvidia-smi topo -m says is cut off: it has no line for {', '.join(missing)}")
    gpus = tuple(name for name in devices if re.fullmatch(r"GPU\d+", name))
    names = dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)\s*$", "\n".join(lines), re.MULTILINE))
    adapters = tuple(name for name in devices if name not in gpus)
    real = {(names.get(a, a), names.get(b, b)): word for (a, b), word in joined.items()}
    return Topo(gpus, tuple(names.get(a, a) for a in adapters), real, tuple(cores[gpu] for gpu in gpus))


def numbered(text: str) -> tuple[int, ...]:
    """'0-3,8' as 0 1 2 3 8; empty for other text, as N/A."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return ()
    ranges = (part.partition("-") for part in text.split(","))
    return tuple(n for low, _, high in ranges for n in range(int(low), int(high or low) + 1))
