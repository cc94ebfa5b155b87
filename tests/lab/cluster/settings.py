"""The settings of the labs' cluster, and the names that follow from them."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
CONTROLLER_ADDRESS = "10.77.0.1"
NODES = ("node1", "node2", "node3", "node4")
INTERFACE = "eth0"


@dataclass(frozen=True)
class Settings:
    root: Path = Path("/srv/torusrun-lab")  # not below /tmp, which is private to each node
    user: str = "labuser"
    nodes: tuple[str, ...] = NODES

    @property
    def controller(self) -> str:
        return socket.gethostname().split(".")[0]

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def src(self) -> Path:
        return self.root / "src"

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def boot(self) -> Path:
        """The folder of the scripts that a node runs when it boots: one per scheduler, with the node's name."""
        return self.root / "boot.d"

    def log(self, name: str) -> Path:
        return self.root / "log" / f"{name}.log"


def node_address(node: str) -> str:
    return f"10.77.0.{10 + int(node.removeprefix('node'))}"
