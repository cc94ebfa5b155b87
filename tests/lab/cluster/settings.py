"""The settings of the labs' cluster, and the names that follow from them."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
CONTROLLER_ADDRESS = "10.77.0.1"
MOST_NODES = 8
INTERFACE = "eth0"


@dataclass(frozen=True)
class Settings:
    root: Path = Path("/srv/torusrun-lab")
    node_count: int = 4
    gpus_per_node: int = 2
    user: str = "labuser"
    min_job_age_s: int = 300
    kill_wait_s: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.node_count <= MOST_NODES:
            raise ValueError(f"node_count is {self.node_count}, must be 1 to {MOST_NODES}")
        if self.root.parts[:2] == ("/", "tmp") or len(self.root.parts) < 3:
            raise ValueError(
                f"root is {self.root}: choose a folder below the top level and outside /tmp, "
                "which is private to each node"
            )

    @property
    def nodes(self) -> list[str]:
        return [f"node{number}" for number in range(1, self.node_count + 1)]

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
