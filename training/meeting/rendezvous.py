"""The rendezvous of the ranks: rank 0 opens a store on a free port and publishes its address in a file.

Strangers may find the port too. So every rank first proves that it holds the token of the attempt, and all messages are
signed with the token.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore  # torch.distributed has them untyped

from torusrun.training.collectives import device as devices
from torusrun.training.config import Config, Ranks
from torusrun.training.files.trusted import put
from torusrun.training.meeting.addresses import NAME_INTERFACE, RendezvousError, listen
from torusrun.training.reporting.exits import PeerLost

MAC_DIGITS = 64


class Secret:
    """A key for one attempt with `world` ranks, derived from the token of the attempt."""

    def __init__(self, token: str, attempt: int, world: int) -> None:
        self._key = bytes.fromhex(token)
        self._key = self._mac("store", str(attempt), str(world))

    def name(self, key: str) -> str:
        """The name of `key` in the store. It cannot be guessed without the token."""
        return self._mac("name", key).hex()

    def signature(self, key: str, value: bytes) -> str:
        """Proof that a holder of the token wrote `value` under `key`, as MAC_DIGITS hex digits."""
        return self._mac("value", key, value).hex()

    def _mac(self, *parts: str | bytes) -> bytes:
        """The HMAC of `parts` with their lengths, so that no two lists of parts give the same message."""
        encoded = [part.encode() if isinstance(part, str) else part for part in parts]
        message = b"".join(len(part).to_bytes(8, "big") + part for part in encoded)
        return hmac.digest(self._key, message, "sha256")


class SignedStore(Store):
    """The store methods that the ranks and gloo need, over another `store` that strangers can reach and write to.

    A stranger can delete values, and so make ranks wait for their time limit. But ranks accept no value of a stranger,
    and no value of another key. No key is ever set to a second value, so a stranger cannot put back an old value. There
    are no counters, because a signature cannot count.

    Keep a reference for as long as a process group uses the store: torch keeps only the C++ half of the object.
    """

    def __init__(self, store: Store, secret: Secret) -> None:
        super().__init__()
        self._store, self._secret = store, secret

    def set(self, key: str, value: str | bytes) -> None:
        """Store the signed `value` under `key`."""
        content = value.encode() if isinstance(value, str) else bytes(value)
        self._store.set(self._secret.name(key), self._secret.signature(key, content) + content.hex())

    def get(self, key: str) -> bytes:
        """Wait for `key`; returns its value. Raises RendezvousError if no holder of the token wrote it."""
        stored = self._store.get(self._secret.name(key))
        try:
            content = bytes.fromhex(stored[MAC_DIGITS:].decode())
        except ValueError:
            raise RendezvousError(_foreign(key)) from None
        if not hmac.compare_digest(stored[:MAC_DIGITS], self._secret.signature(key, content).encode()):
            raise RendezvousError(_foreign(key))
        return content

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until something is stored under all `keys`; only `get` checks its signature."""
        names = [self._secret.name(key) for key in keys]
        if timeout is None:
            self._store.wait(names)
        else:
            self._store.wait(names, timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether something is stored under all `keys`."""
        return self._store.check([self._secret.name(key) for key in keys])


def _foreign(key: str) -> str:
    return (
        f"someone else writes to the store of this attempt: the value of {key!r} is not signed with the attempt's "
        f"token, and was not used; resume the run (the new attempt gets a new token), and inform the administrators"
    )


ALL_HERE = "all here"
NONCE_BYTES = 16
POLL_S = 0.05
LOOK_S = 1.0  # between looks whether rank 0 is lost

_kept: list[Store] = []


class NotThere(RendezvousError, PeerLost):
    """Rank 0 did not arrive."""


def join(config: Config, ranks: Ranks, device: torch.device) -> SignedStore:
    """Start torch's default process group; returns the ranks' own store after all have proved that they are ranks.

    gloo exchanges its addresses through the signed store. NCCL reads and writes from its own threads, also while the
    interpreter shuts down and no Python may run. So it gets a plain store, under a prefix that only holders of the
    token know.
    """
    if config.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = config.interface
        os.environ["NCCL_SOCKET_IFNAME"] = f"={config.interface}"  # without "=" all that begin with this name match
    nccl = device.type == "cuda"
    plain = _open_store(config, ranks) if ranks.rank == 0 else _find_store(config, ranks)
    secret = Secret(config.token, config.attempt, ranks.world)
    store = SignedStore(plain, secret)
    _prove(store, ranks, timedelta(seconds=config.rendezvous_timeout_s))
    if ranks.rank == 0:  # a later start of the same config must not find this address
        config.rendezvous.unlink(missing_ok=True)
    own = PrefixStore(secret.name("nccl"), plain) if nccl else store
    _kept.append(store)  # torch does not keep it: see SignedStore
    bound = device if nccl else None  # NCCL connects at once, and need not guess the device
    name = devices.backend(device)
    dist.init_process_group(name, store=own, rank=ranks.rank, world_size=ranks.world, device_id=bound)
    return store


def wait_for_rank_0(store: SignedStore, key: str) -> None:
    """Wait for a value of rank 0, which may verify a large checkpoint before: as long as it keeps the store open.

    Raises DistNetworkError if the store is gone.
    """
    while True:
        try:
            return store.wait([key], timedelta(seconds=LOOK_S))
        except dist.DistNetworkError:
            raise
        except dist.DistError:  # the time of this wait is over; `check` raises DistNetworkError if rank 0 has ended
            if store.check([key]):
                return None


def leave() -> None:
    """End the process group and release its store."""
    dist.destroy_process_group()
    _kept.clear()


def _open_store(config: Config, ranks: Ranks) -> Store:
    config.rendezvous.unlink(missing_ok=True)
    listener = listen(config.interface)
    host, port = listener.getsockname()[:2]
    timeout = timedelta(seconds=config.rendezvous_timeout_s)
    serve = partial(TCPStore, host, port, ranks.world, True, timeout, wait_for_workers=False)
    descriptor = listener.detach()  # the store closes it
    try:
        store = serve(master_listen_fd=descriptor, use_libuv=True)
    except NotImplementedError:  # torch 2.6 takes a socket in its older server only
        store = serve(master_listen_fd=descriptor, use_libuv=False)
    config.rendezvous.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    put(config.rendezvous, json.dumps({"host": host, "port": port}).encode())
    return store


def _find_store(config: Config, ranks: Ranks) -> Store:
    address = _address_of_rank_0(config.rendezvous, config.rendezvous_timeout_s, ranks.rank)
    timeout = timedelta(seconds=config.rendezvous_timeout_s)
    try:
        return TCPStore(address["host"], address["port"], ranks.world, False, timeout, wait_for_workers=False)
    except dist.DistError as error:
        place = f"{address['host']}:{address['port']}"
        reason = f"rank {ranks.rank} cannot reach rank 0 at {place}: {error}"
        raise RendezvousError(f"{reason}; if other nodes cannot use that address, {NAME_INTERFACE}") from error


def _address_of_rank_0(path: Path, timeout_s: float, rank: int) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > deadline:
            reason = f"rank 0 has not written {path} in {timeout_s:g} s"
            raise NotThere(f"rank {rank}: {reason}; see rank 0's log for why it did not start")
        time.sleep(POLL_S)
    address: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return address


def _prove(store: SignedStore, ranks: Ranks, timeout: timedelta) -> None:
    """Meet in the store, so that rank 0 can name the missing ranks; the backend could not.

    Every rank signs a nonce under its own name. Rank 0 verifies them and signs the list of all. A rank finds its own
    nonce in the list, so it knows that the answer is new and not a copy.
    """
    mine = secrets.token_hex(NONCE_BYTES)
    store.set(f"here/{ranks.rank}", mine)
    _wait([f"here/{rank}" for rank in range(ranks.world)] if ranks.rank == 0 else [ALL_HERE], store, ranks, timeout)
    if ranks.rank == 0:
        store.set(ALL_HERE, " ".join(store.get(f"here/{rank}").decode() for rank in range(ranks.world)))
    nonces = store.get(ALL_HERE).decode().split(" ")
    if len(nonces) != ranks.world or nonces[ranks.rank] != mine:
        raise RendezvousError(
            f"rank {ranks.rank}: the answer of rank 0 was made for other ranks: the same attempt was "
            f"started twice, or someone replays old messages; resume the run"
        )


def _wait(keys: list[str], store: SignedStore, ranks: Ranks, timeout: timedelta) -> None:
    try:
        store.wait(keys, timeout)
    except dist.DistNetworkError as error:
        reason = f"rank {ranks.rank}: rank 0 ended before all ranks had met"
        raise RendezvousError(f"{reason}; see its log for why") from error
    except dist.DistError as error:
        who = _missing(store, ranks) if ranks.rank == 0 else "some ranks"
        message = f"rank {ranks.rank}: {who} did not come within {timeout.total_seconds():g} s"
        raise RendezvousError(f"{message}; see their logs") from error


def _missing(store: SignedStore, ranks: Ranks) -> str:
    missing = [str(rank) for rank in range(ranks.world) if not store.check([f"here/{rank}"])]
    return "ranks " + ", ".join(missing)
