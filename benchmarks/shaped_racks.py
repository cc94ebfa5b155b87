"""Racks of nodes in network namespaces, every link shaped: nodes on a bridge per rack, the bridges on one above.

Links lose no packets, like those of InfiniBand: queues hold 4 MB and senders use Reno. Packets of at most 8 KB and a
bucket of 32 KB keep a link of 50 Mbit/s busy even if the machine's few cores fill it late: a flow has 95 % of the rate
(the rest is headers) at any size. With 100 Mbit/s and tbf's usual settings it had 86 to 96 %.

Nothing is sent twice. On links as slow as these a queue delays packets for longer than TCP's timers wait (0.2 s, and
loss probes sooner), so TCP would repeat what was never lost: one step in two took up to 1 s longer. Links of InfiniBand
and fast Ethernet have no such queues.

Everything is in its own namespaces and ends with them. Needs root, iproute2, procps, and the tbf discipline.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType

LEAST_TIMEOUT_S = 10  # of TCP


class ShapedRacks:
    """`racks` maps a rack's name to its nodes; rates are in bits per second, each way, uplinks' by rack if they differ.

    Use it in a `with`.
    """

    def __init__(
        self, racks: Mapping[str, Sequence[str]], node_bits_per_s: float, uplink_bits_per_s: float | Mapping[str, float]
    ) -> None:
        uplinks = uplink_bits_per_s
        self.racks, self.node_bits_per_s = racks, node_bits_per_s
        self.uplink_bits_per_s = {rack: uplinks if isinstance(uplinks, float) else uplinks[rack] for rack in racks}
        self.prefix = f"pl{os.getpid()}-"
        self.fabric = f"{self.prefix}fabric"

    def namespace(self, node: str) -> str:
        return f"/run/netns/{self.prefix}{node}"

    def __enter__(self) -> ShapedRacks:
        self._ip("netns", "add", self.fabric)
        self._bridge("top")
        for number, (rack, nodes) in enumerate(self.racks.items()):
            self._bridge(rack)
            self._fabric("link", "add", f"u{rack}", "type", "veth", "peer", "name", f"d{rack}")
            self._plug(f"u{rack}", rack, self.uplink_bits_per_s[rack])
            self._plug(f"d{rack}", "top", self.uplink_bits_per_s[rack])
            for i, node in enumerate(nodes):
                self._node(node, rack, f"10.99.{number}.{i + 1}/16")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
        for name in names:
            if name.startswith(self.prefix):
                subprocess.run(["ip", "netns", "delete", name], check=False)

    def _node(self, node: str, rack: str, address: str) -> None:
        inside = f"{self.prefix}{node}"
        self._ip("netns", "add", inside)
        self._fabric("link", "add", f"p{node}", "type", "veth", "peer", "name", "eth0", "netns", inside)
        self._plug(f"p{node}", rack, self.node_bits_per_s)
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", address, "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            self._ip("-n", inside, *words)
        self._ip("-n", inside, "route", "change", "10.99.0.0/16", "dev", "eth0", "rto_min", f"{LEAST_TIMEOUT_S}s")
        control = ["net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_early_retrans=0"]
        subprocess.run(["ip", "netns", "exec", inside, "sysctl", "-qw", *control], check=True)
        self._shape(inside, "eth0", self.node_bits_per_s)

    def _bridge(self, name: str) -> None:
        self._fabric("link", "add", name, "type", "bridge")
        self._fabric("link", "set", name, "up")

    def _plug(self, device: str, bridge: str, bits_per_s: float) -> None:
        self._fabric("link", "set", device, "master", bridge, "up")
        self._shape(self.fabric, device, bits_per_s)

    def _shape(self, namespace: str, device: str, bits_per_s: float) -> None:
        self._ip("-n", namespace, "link", "set", device, "gso_max_size", "8192")
        rate = ["rate", f"{bits_per_s:.0f}bit", "burst", "32kb", "limit", "4mb"]
        command = ["tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *rate]
        subprocess.run(command, check=True)

    def _fabric(self, *words: str) -> None:
        self._ip("-n", self.fabric, *words)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)
