"""Ranks on the hosts of a cluster, and the time until the last of them is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from benchmarks.packets.gloo import Gloo, Program
from benchmarks.packets.stream import PACKET_BYTES, Stream
from benchmarks.packets.wire import Clock, OneWay
from torusrun.orchestrator.place.hosts.model import Cluster, Link

BARRIER_S = 0.003  # between two rounds

Programs = Callable[[Gloo, int], Sequence[Program]]  # what a rank does, thread by thread


@dataclass(frozen=True)
class Placed:
    """Ranks on hosts: `ranks_per_node` consecutive ones on each of `names`, in order.

    A link passes `burst_bytes` at once after a pause, as shaped links do; a rank needs `handling_s` for each message.
    """

    cluster: Cluster
    names: Sequence[str]
    ranks_per_node: int
    burst_bytes: float = 0.0
    handling_s: float = 0.0
    packet_bytes: float = PACKET_BYTES

    @property
    def ranks(self) -> int:
        return len(self.names) * self.ranks_per_node

    def rounds_s(self, programs: Programs, rounds: int = 1) -> list[float]:
        """The seconds of each round until the last rank is done; all begin a round together, on the same connections.

        Deterministic. Raises SiteError for unknown hosts, and ValueError if ranks wait for one another forever.
        """
        clock, links = Clock(), _Links(self)

        def connect(a: int, b: int) -> Stream:
            return Stream(clock, *links.between(a, b), self.packet_bytes)

        gloo = Gloo(clock, connect, self.handling_s, Random(0))
        return [self._round_s(gloo, programs) for _ in range(rounds)]

    def _round_s(self, gloo: Gloo, programs: Programs) -> float:
        clock, ends = gloo.clock, list[float]()
        begun_s = clock.now_s
        threads = [program for rank in range(self.ranks) for program in programs(gloo, rank)]
        for program in threads:
            gloo.run(program, lambda: ends.append(clock.now_s))
        clock.run()
        if len(ends) < len(threads):
            raise ValueError(f"{len(threads) - len(ends)} of {len(threads)} threads of ranks wait forever")
        clock.now_s = max(ends) + BARRIER_S
        return max(ends) - begun_s


class _Links:
    """Both directions of all links of some hosts and the switches above them."""

    def __init__(self, placed: Placed) -> None:
        self._placed, self._hosts = placed, placed.cluster.only(placed.names)
        self._out, self._in = ([self._one_way(host.network) for host in self._hosts] for _ in range(2))
        self._inside = [self._one_way(placed.cluster.node.intra_node, 0.0) for _ in range(placed.ranks)]

    def between(self, a: int, b: int) -> tuple[list[OneWay], float]:
        """The links from one rank to another, and their latency in seconds."""
        at, to = a // self._placed.ranks_per_node, b // self._placed.ranks_per_node
        if at == to:
            return [self._inside[a]], self._placed.cluster.node.intra_node.latency_s
        up, down = (self._placed.cluster.path(self._hosts[host].leaf) for host in (at, to))
        shared = {switch.name for switch in up} & {switch.name for switch in down}
        rising = [switch.name for switch in up if switch.name not in shared]
        falling = [switch.name for switch in reversed(down) if switch.name not in shared]
        own_s = max(self._hosts[host].network.latency_s for host in (at, to))
        latency_s = own_s + sum(self._uplinks[name][2] for name in (*rising, *falling))
        ways = [*(self._uplinks[name][0] for name in rising), *(self._uplinks[name][1] for name in falling)]
        return [self._out[at], *ways, self._in[to]], latency_s

    @cached_property
    def _uplinks(self) -> dict[str, tuple[OneWay, OneWay, float]]:
        """Up, down and latency of every switch's uplink."""
        switches = self._placed.cluster.switches
        return {
            switch.name: (self._one_way(switch.uplink), self._one_way(switch.uplink), switch.uplink.latency_s)
            for switch in switches
            if switch.uplink
        }

    def _one_way(self, link: Link, burst_bytes: float | None = None) -> OneWay:
        burst = self._placed.burst_bytes if burst_bytes is None else burst_bytes
        return OneWay(1 / link.bandwidth_bytes_per_s, burst / link.bandwidth_bytes_per_s)
