"""NCCL's time of a phase: the least of {ring, tree} x {LL, LL128, Simple}, by the model that NCCL itself uses.

Source: NCCL 2.30.7, src/graph/tuning.cc, commit 5067397 (verified), for an all-reduce of n bytes:

    ring  base + near hops + far hops + 2(N-1)/N n / (B x efficiency)
    tree  base + 2 [(ranks in a node - 1) near + floor(log2 nodes) far] + 2 n / (B x efficiency x correction(n))

A reduce-scatter and an all-gather are half a ring. Bandwidths are the site's. Left out: limits per channel (the
channels are unknown here), processors of AMD, GPUs on PCIe, NVLS, CollNet and PAT.

A latency of a link, declared or measured, is that of a small message, which NCCL sends by LL: its own is 0.6 us within
a node, and 5 us between nodes, of a tree. With these latencies a hop takes what NCCL's table says for its algorithm and
protocol. A slower link adds its difference to every hop, as NCCL adds the latency of an adapter; on a quicker link all
hops are quicker in proportion (derived).
"""

from __future__ import annotations

import re
from math import log2
from typing import Literal

from torusrun.orchestrator.place.cost.phases import PhaseLinks, TreeLinks

Algorithm = Literal["ring", "tree"]
Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")

# Microseconds (verified, lines 151, 159, 171): of a call, and of a hop over NVLink and over the network.
BASE_US = {"ring": {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}, "tree": {"LL": 6.8, "LL128": 14.0, "Simple": 8.4}}
NEAR_US = {"ring": {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}, "tree": {"LL": 0.6, "LL128": 1.25, "Simple": 4.0}}
FAR_US = {"ring": {"LL": 2.7, "LL128": 4.0, "Simple": 14.0}, "tree": {"LL": 5.0, "LL128": 8.5, "Simple": 14.0}}
# A ring over nodes posts a message in each step, which takes at least so long (verified, lines 230 and 408).
POST_US = {"LL": 1.0, "LL128": 1.0, "Simple": 3.0}

# Shares of the bandwidth (verified). A tree has 0.92 of that, and with one rank on each node 0.85 of that again
# (maxTreePattern; search.cc makes the pattern of a group with one GPU per node a plain tree).
RING = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
TREE = {"LL": 1 / 3.8, "LL128": 120 / 128, "Simple": 1.0}
TREE_IN_NODE = {**TREE, "LL128": 7 / 9}
TREE_EFFICIENCY, LONE_RANK = 0.92, 0.85
PLATEAU, OLDER_PLATEAU = 1.4, 1.9  # factors on the latency of Simple rings over nodes (verified, line 649)
AMPERE = 80  # the first compute capability with PLATEAU
LL128_FROM = 70  # the first compute capability with LL128 (verified, line 534)

# The most that LL carries, in bytes/s (verified, lines 179 to 182): in one node of GPUs from a compute capability on,
# over two nodes, and over more.
MOST_BY_LL = ((100, 282e9), (90, 141e9), (80, 87.7e9), (0, 39e9))
MOST_BY_LL_FAR = (39e9, 20.4e9)

# The share of a tree's bandwidth at 64 x 2^k bytes (verified); 1 beyond.
CORRECTION = {
    "LL": (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1),
    "Simple": (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9),
}  # fmt: skip
LEAST_BYTES = 64
# The sizes with a value in the table, and two beyond: between them a time is interpolated.
SIZES_BYTES = (0.0, *(float(LEAST_BYTES << k) for k in range(len(CORRECTION["LL"]) + 2)))


def compute_capability(architecture: str | None) -> int:
    """70 for 'sm_70'; that of Ampere for GPUs that are unknown, or not NVIDIA's."""
    digits = re.match(r"sm_(\d+)", architecture or "")
    return int(digits.group(1)) if digits else AMPERE


def phase_s(
    phase: PhaseLinks, size_bytes: float, capability: int, algorithms: tuple[Algorithm, ...] = ("ring", "tree")
) -> float:
    """Seconds of a phase for a gradient of `size_bytes`, by the fastest of `algorithms`; trees only all-reduce."""
    if phase.ranks == 1:
        return 0.0
    protocols = [protocol for protocol in PROTOCOLS if protocol != "LL128" or capability >= LL128_FROM]
    ways: list[float] = []
    if "ring" in algorithms or not phase.tree:
        ways += [ring_s(phase, size_bytes, protocol, capability) for protocol in protocols]
    if phase.tree and "tree" in algorithms:
        own_bytes = phase.share * size_bytes
        ways += [tree_s(phase.tree, size_bytes, own_bytes, protocol, capability) for protocol in protocols]
    return min(ways)


def ring_s(phase: PhaseLinks, size_bytes: float, protocol: Protocol, capability: int) -> float:
    """Seconds of a ring by one protocol. If each rank has its own node, NCCL gives its hops the latency of a tree's."""
    hops_s = phase.near_hops * _near_s("ring", phase.near_s, protocol)
    if phase.far_hops:
        hops_s = max(hops_s, phase.near_hops * POST_US[protocol] * 1e-6)
        far: Algorithm = "ring" if phase.near_hops else "tree"
        hops_s += phase.far_hops * _far_s(far, phase.far_s / phase.far_hops, protocol)
    latency_s = BASE_US["ring"][protocol] * 1e-6 + phase.times * hops_s
    if protocol == "Simple" and phase.far_hops and phase.times == 2:
        latency_s *= PLATEAU if capability >= AMPERE else OLDER_PLATEAU
    link_s = phase.link_s_per_byte * size_bytes / RING[protocol]
    if protocol == "LL":
        link_s = max(link_s, phase.sent * size_bytes / _most_by_ll(phase.far_hops + 1, capability))
    return latency_s + link_s


def tree_s(tree: TreeLinks, size_bytes: float, own_bytes: float, protocol: Protocol, capability: int) -> float:
    """Seconds of a double tree by one protocol; `own_bytes` is the size of one rank's vector."""
    near_s, far_s = _near_s("tree", tree.near_s, protocol), _far_s("tree", tree.far_s, protocol)
    hops_s = 2 * ((tree.chain - 1) * near_s + (tree.nodes.bit_length() - 1) * far_s)
    efficiency = TREE_EFFICIENCY * (TREE if tree.nodes > 1 else TREE_IN_NODE)[protocol]
    link_s = tree.link_s_per_byte * size_bytes / efficiency
    if protocol == "LL":
        link_s = max(link_s, 2 * own_bytes / _most_by_ll(tree.nodes, capability))
    link_s /= (LONE_RANK if tree.chain == 1 else 1.0) * _correction(own_bytes, protocol)
    return BASE_US["tree"][protocol] * 1e-6 + hops_s + link_s


def _near_s(algorithm: Algorithm, latency_s: float, protocol: Protocol) -> float:
    """A hop within a node whose small messages take `latency_s`."""
    return _hop_s(NEAR_US[algorithm][protocol] * 1e-6, NEAR_US["tree"]["LL"] * 1e-6, latency_s)


def _far_s(algorithm: Algorithm, latency_s: float, protocol: Protocol) -> float:
    """A hop between nodes whose small messages take `latency_s`."""
    return _hop_s(FAR_US[algorithm][protocol] * 1e-6, FAR_US["tree"]["LL"] * 1e-6, latency_s)


def _hop_s(nccls_s: float, usual_s: float, latency_s: float) -> float:
    return nccls_s + latency_s - usual_s if latency_s >= usual_s else nccls_s * latency_s / usual_s


def _most_by_ll(nodes: int, capability: int) -> float:
    if nodes == 1:
        return next(most for since, most in MOST_BY_LL if capability >= since)
    return MOST_BY_LL_FAR[min(nodes, 3) - 2]


def _correction(size_bytes: float, protocol: Protocol) -> float:
    table = CORRECTION[protocol]
    index = int(log2(size_bytes / LEAST_BYTES) + 1e-9) if size_bytes >= LEAST_BYTES else -1
    return table[index] if 0 <= index < len(table) else 1.0
