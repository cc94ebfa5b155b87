"""What a store holds for those with the token, and what others can make of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import torch.distributed as dist
from training_runs import TOKEN

from torusrun.training.meeting.addresses import RendezvousError
from torusrun.training.meeting.signed_store import Secret, SignedStore

SECRET = Secret(TOKEN, attempt=1, world=2)
SOON = timedelta(seconds=0.1)


def overwritten(plain: dist.Store) -> None:
    plain.set(SECRET.name("resume"), "step-00000099")


def emptied(plain: dist.Store) -> None:
    plain.set(SECRET.name("resume"), "")


def not_text(plain: dist.Store) -> None:
    plain.set(SECRET.name("resume"), b"\xff" * 200)


def changed_in_one_bit(plain: dist.Store) -> None:
    stored = bytearray(plain.get(SECRET.name("resume")))
    stored[-1] ^= 1
    plain.set(SECRET.name("resume"), bytes(stored))


def taken_from_another_key(plain: dist.Store) -> None:
    plain.set(SECRET.name("resume"), plain.get(SECRET.name("here/1")))


def signed_with(token: str, attempt: int, world: int) -> Callable[[dist.Store], None]:
    def forge(plain: dist.Store) -> None:
        signature = Secret(token, attempt, world).signature("resume", b"x")
        plain.set(SECRET.name("resume"), signature + b"x".hex())

    return forge


FORGERIES = {
    "overwritten": overwritten, "emptied": emptied, "not text": not_text, "one bit": changed_in_one_bit,
    "another key": taken_from_another_key, "another token": signed_with("0" * 64, 1, 2),
    "another attempt": signed_with(TOKEN, 2, 2), "another world": signed_with(TOKEN, 1, 3),
}  # fmt: skip


def test_ranks_understand_each_other() -> None:
    plain = dist.HashStore()
    SignedStore(plain, SECRET).set("a", "text")
    SignedStore(plain, SECRET).set("b", b"\x00\xff")
    other = SignedStore(plain, Secret(TOKEN, attempt=1, world=2))
    other.wait(["a", "b"], SOON)
    assert other.get("a") == b"text" and other.get("b") == b"\x00\xff"
    assert other.check(["a", "b"]) and not other.check(["a", "c"])


def test_a_missing_key_is_waited_for() -> None:
    with pytest.raises(dist.DistError):
        SignedStore(dist.HashStore(), SECRET).wait(["resume"], SOON)


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_nothing_forged_is_returned(forge: Callable[[dist.Store], None]) -> None:
    plain = dist.HashStore()
    store = SignedStore(plain, SECRET)
    store.set("resume", "step-00000007")
    store.set("here/1", "nonce")
    forge(plain)
    with pytest.raises(RendezvousError, match="someone else writes to the store of this attempt") as caught:
        store.get("resume")
    assert TOKEN[:16] not in str(caught.value)


def test_names_and_secrets_are_not_shown() -> None:
    assert SECRET.name("resume") not in {Secret(TOKEN, 2, 2).name("resume"), Secret("0" * 64, 1, 2).name("resume")}
    assert "resume" not in SECRET.name("resume") and TOKEN[:16] not in repr(vars(SECRET)) + repr(SECRET)
    pairs = {SECRET.signature("ab", b"c"), SECRET.signature("a", b"bc"), SECRET.name("abc")}
    assert len(pairs) == 3, "a key and a value must not run into each other"
