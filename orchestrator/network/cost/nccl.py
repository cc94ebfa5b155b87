"""NCCL's time of a phase: the least of {ring, tree} x {LL, LL128, Simple}, by the model that NCCL itself uses.

Source: NCCL 2.30.7, src/graph/tuning.cc, commit 5067397 (verified), for an all-reduce of n bytes:

    ring  base + near hops + far hops + 2(N-1)/N n / (B x efficiency)
    tree  base + 2 [(ranks in a node - 1) near + floor(log2 nodes) far] + 2 n / (B x efficiency x correction(n))

A reduce-scatter and an all-gather are half a ring. Left out: limits per channel and for LL (the channels are unknown
here), NVLS, CollNet and PAT, and the network's overhead of 1 to 3 us on steps within a node.

For LL, the latency of a hop is the site's, measured or declared; a slower protocol adds its difference in NCCL's table
(derived: the latency is measured with small messages, which use LL). Bandwidths are the site's.
"""

from __future__ import annotations

from math import log2
from typing import Literal

from orchestrator.network.cost.phases import PhaseLinks, TreeLinks

Algorithm = Literal["ring", "tree"]
Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")

# Microseconds (verified): of a call, and of a hop over NVLink and over the network.
BASE_US = {"ring": {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}, "tree": {"LL": 6.8, "LL128": 14.0, "Simple": 8.4}}
NEAR_US = {"ring": {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}, "tree": {"LL": 0.6, "LL128": 1.25, "Simple": 4.0}}
FAR_US = {"ring": {"LL": 2.7, "LL128": 4.0, "Simple": 14.0}, "tree": {"LL": 5.0, "LL128": 8.5, "Simple": 14.0}}

# Shares of the bandwidth (verified). A tree has 0.92 of that, and with one rank on each node 0.85 of that again
# (maxTreePattern; search.cc makes the pattern of a group with one GPU per node a plain tree).
RING = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
TREE = {"LL": 1 / 3.8, "LL128": 120 / 128, "Simple": 1.0}
TREE_IN_NODE = {**TREE, "LL128": 7 / 9}
TREE_EFFICIENCY, LONE_RANK = 0.92, 0.85
PLATEAU = 1.4  # factor on the latency of Simple rings over nodes (verified for sm_80 and later; 1.9 before)

# The share of a tree's bandwidth at 64 x 2^k bytes (verified); 1 beyond.
CORRECTION = {
    "LL": (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1),
    "Simple": (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9),
}  # fmt: skip
LEAST_BYTES = 64
# The sizes with a value in the table, and two beyond: between them a time is interpolated.
SIZES_BYTES = (0.0, *(float(LEAST_BYTES << k) for k in range(len(CORRECTION["LL"]) + 2)))


def phase_s(phase: PhaseLinks, size_bytes: float, algorithms: tuple[Algorithm, ...] = ("ring", "tree")) -> float:
    """Seconds of a phase for a gradient of `size_bytes`, by the fastest of `algorithms`; trees only all-reduce."""
    if phase.ranks == 1:
        return 0.0
    ways = [ring_s(phase, size_bytes, protocol) for protocol in PROTOCOLS if "ring" in algorithms or not phase.tree]
    if phase.tree and "tree" in algorithms:
        own_bytes = phase.share * size_bytes
        ways += [tree_s(phase.tree, size_bytes, own_bytes, protocol) for protocol in PROTOCOLS]
    return min(ways)


def ring_s(phase: PhaseLinks, size_bytes: float, protocol: Protocol) -> float:
    """Seconds of a ring by one protocol. If each rank has its own node, NCCL gives its hops the latency of a tree's."""
    far = FAR_US["ring" if phase.near_hops else "tree"]
    hops_s = phase.hops_s + phase.near_hops * _added_s(NEAR_US["ring"], protocol)
    hops_s += phase.far_hops * _added_s(far, protocol)
    plateau = PLATEAU if protocol == "Simple" and phase.far_hops and phase.times == 2 else 1.0
    latency_s = BASE_US["ring"][protocol] * 1e-6 + phase.times * hops_s
    return latency_s * plateau + phase.link_s_per_byte * size_bytes / RING[protocol]


def tree_s(tree: TreeLinks, size_bytes: float, own_bytes: float, protocol: Protocol) -> float:
    """Seconds of a double tree by one protocol; `own_bytes` is the size of one rank's vector."""
    near_s = tree.near_s + _added_s(NEAR_US["tree"], protocol)
    far_s = tree.far_s + _added_s(FAR_US["tree"], protocol)
    hops_s = 2 * ((tree.chain - 1) * near_s + (tree.nodes.bit_length() - 1) * far_s)
    efficiency = TREE_EFFICIENCY * (TREE if tree.nodes > 1 else TREE_IN_NODE)[protocol]
    efficiency *= LONE_RANK if tree.chain == 1 else 1.0
    link_s = tree.link_s_per_byte * size_bytes / efficiency / _correction(own_bytes, protocol)
    return BASE_US["tree"][protocol] * 1e-6 + hops_s + link_s


def _added_s(hop_us: dict[str, float], protocol: Protocol) -> float:
    return (hop_us[protocol] - hop_us["LL"]) * 1e-6


def _correction(size_bytes: float, protocol: Protocol) -> float:
    table = CORRECTION[protocol]
    index = int(log2(size_bytes / LEAST_BYTES) + 1e-9) if size_bytes >= LEAST_BYTES else -1
    return table[index] if 0 <= index < len(table) else 1.0
