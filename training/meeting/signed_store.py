"""A store for holders of the attempt's token: names and values carry an HMAC-SHA256."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store  # torch.distributed has it untyped

from torusrun.training.meeting.addresses import RendezvousError

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
