"""One bridge, and a network namespace per node joined to it by a veth pair: no route to other networks."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .processes import run
from .settings import CONTROLLER_ADDRESS, INTERFACE, node_address

BRIDGE = "trlab0"
BURST_S = 0.002  # of traffic at full rate; a link of 1 Gbit/s with less was busy half of the time


def namespace(node: str) -> str:
    return f"trlab-{node}"


def port(node: str) -> str:
    """The bridge's end of the node's cable."""
    return f"trlab-{node}"


def make(nodes: Sequence[str]) -> None:
    lines = [
        f"link add {BRIDGE} type bridge",
        f"addr add {CONTROLLER_ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]
    for node in nodes:
        lines += [
            f"netns add {namespace(node)}",
            f"link add {port(node)} type veth peer name {INTERFACE} netns {namespace(node)}",
            f"link set {port(node)} master {BRIDGE} up",
        ]
    run(["ip", "-batch", "-"], stdin="\n".join(lines))
    for node in nodes:
        run(
            ["ip", "-n", namespace(node), "-batch", "-"],
            stdin=(f"addr add {node_address(node)}/24 dev {INTERFACE}\nlink set {INTERFACE} up\nlink set lo up\n"),
        )


def unplug(node: str) -> None:
    """Unplug the node: peers get no answer at all, as from a machine without power."""
    run(["ip", "link", "set", port(node), "down"])


def plug(node: str) -> None:
    run(["ip", "link", "set", port(node), "up"])


@contextmanager
def limited(node: str, bits_per_s: float) -> Iterator[None]:
    """Within it the node receives no faster than this, as by a cable with a lower rate."""
    with slow(port(node), bits_per_s):
        yield


@contextmanager
def slow(device: str, bits_per_s: float, netns: str = "") -> Iterator[None]:
    """Within it a network device of this machine, or of one of its namespaces, sends no faster than this."""
    burst = max(1 << 16, int(bits_per_s / 8 * BURST_S))
    rate = ["rate", f"{bits_per_s:.0f}bit", "burst", str(burst), "limit", "4mb"]
    tc = ["tc", *(["-n", netns] if netns else []), "qdisc"]
    run([*tc, "add", "dev", device, "root", "tbf", *rate])
    try:
        yield
    finally:
        run([*tc, "del", "dev", device, "root"])


def remove() -> None:
    """Remove the networks of an earlier lab."""
    names = [BRIDGE, port("node*")]
    lines = [f"link del {found.name}" for name in names for found in Path("/sys/class/net").glob(name)]
    lines += [f"netns del {found.name}" for found in Path("/run/netns").glob(namespace("node*"))]
    if lines:
        run(["ip", "-batch", "-"], stdin="\n".join(lines))


def listens(address: str, port_number: int) -> bool:
    try:
        socket.create_connection((address, port_number), timeout=1).close()
    except OSError:
        return False
    return True
