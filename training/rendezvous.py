"""How the ranks find each other: rank 0 opens a store on a free port and publishes where in a file."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore  # torch.distributed has them untyped

from training.config import Config
from training.ranks import Ranks

POLL_S = 0.05
SIOCGIFADDR = 0x8915  # linux/sockios.h


class RendezvousError(RuntimeError):
    """The ranks did not find each other; the message says who waited for what."""


def join(config: Config, ranks: Ranks, backend: str) -> Store:
    """Bring up torch's default process group and return its store; returns once all ranks are there."""
    if config.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = config.interface
    store = _open_store(config, ranks) if ranks.rank == 0 else _find_store(config, ranks)
    timeout = timedelta(seconds=config.rendezvous_timeout_s)
    _wait_for_all(store, ranks, timeout)
    if ranks.rank == 0:  # a later start of the same config must not find this address
        config.rendezvous.unlink(missing_ok=True)
    dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.world)
    return store


def interface_address(interface: str) -> str:
    """The IPv4 address of a network interface; RendezvousError when it has none."""
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, request)
        except OSError as error:
            known = ", ".join(name for _, name in socket.if_nameindex())
            reason = f"network interface {interface!r} has no IPv4 address ({error.strerror})"
            raise RendezvousError(f"{reason}; {socket.gethostname()} has {known}") from error
    return socket.inet_ntoa(answer[20:24])


def _open_store(config: Config, ranks: Ranks) -> Store:
    config.rendezvous.unlink(missing_ok=True)
    host = interface_address(config.interface) if config.interface else socket.gethostname()
    timeout = timedelta(seconds=config.rendezvous_timeout_s)
    store = TCPStore(host, 0, ranks.world, True, timeout, wait_for_workers=False)
    _publish(config.rendezvous, {"host": host, "port": store.port})
    return store


def _find_store(config: Config, ranks: Ranks) -> Store:
    address = _read_when_there(config.rendezvous, config.rendezvous_timeout_s, ranks.rank)
    timeout = timedelta(seconds=config.rendezvous_timeout_s)
    try:
        return TCPStore(address["host"], address["port"], ranks.world, False, timeout, wait_for_workers=False)
    except dist.DistError as error:
        place = f"{address['host']}:{address['port']}"
        raise RendezvousError(f"rank {ranks.rank} cannot reach rank 0 at {place}: {error}") from error


def _publish(path: Path, address: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}")
    temporary.write_text(json.dumps(address), encoding="utf-8")
    temporary.replace(path)


def _read_when_there(path: Path, timeout_s: float, rank: int) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > deadline:
            reason = f"rank 0 has not written {path} in {timeout_s:g} s"
            raise RendezvousError(f"rank {rank}: {reason}; see rank 0's log for why it did not start")
        time.sleep(POLL_S)
    address: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return address


def _wait_for_all(store: Store, ranks: Ranks, timeout: timedelta) -> None:
    """Meet in the store first: rank 0 can then name the ranks that are missing, the backend could not."""
    store.set(f"here/{ranks.rank}", "")
    try:
        store.wait([f"here/{rank}" for rank in range(ranks.world)], timeout)
    except dist.DistError as error:
        who = _missing(store, ranks) if ranks.rank == 0 else "some ranks"
        message = f"rank {ranks.rank}: {who} did not come within {timeout.total_seconds():g} s"
        raise RendezvousError(f"{message}; see their logs") from error


def _missing(store: Store, ranks: Ranks) -> str:
    missing = [str(rank) for rank in range(ranks.world) if not store.check([f"here/{rank}"])]
    return "ranks " + ", ".join(missing)
