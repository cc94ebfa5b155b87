"""How the ranks meet, what their store holds for those with the token, and which errors mean that one is gone."""

from __future__ import annotations

import dataclasses
import json
import signal
import socket
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from training_runs import TOKEN, config, launched

from tests.waiting import until
from torusrun.training import config as configuration
from torusrun.training.config import Config, Ranks, load
from torusrun.training.meeting import rendezvous
from torusrun.training.meeting.addresses import RendezvousError, interface_address, listen
from torusrun.training.meeting.rendezvous import NotThere, Secret, SignedStore
from torusrun.training.recipe.train import ScheduleKeys
from torusrun.training.reporting.exits import PeerLost, cut_off


def impatient(folder: Path) -> Config:
    (folder / "config.json").write_text(json.dumps(config(folder, (2, 1))))
    return dataclasses.replace(load(folder / "config.json", world=2), rendezvous_timeout_s=0.5)


@pytest.mark.parametrize(
    "said",
    [
        r"rank 0: ranks 1 did not come within 0\.5 s",
        r"rank 1: rank 0 has not written .*rendezvous\.json in 0\.5 s",
    ],
)
def test_a_rank_names_the_missing(tmp_path: Path, said: str) -> None:
    rank = int(said[5])
    with pytest.raises(RendezvousError, match=said):
        rendezvous.join(impatient(tmp_path), Ranks(rank=rank, world=2, local=rank), torch.device("cpu"))


def test_a_rank_that_waits_for_the_others_ends_at_once_on_sigterm(tmp_path: Path) -> None:
    waiting = config(tmp_path, (2, 1))
    with launched(waiting) as launch:
        launch.ranks[1].kill()
        until(Path(waiting["rendezvous"]).exists, "rank 0 to wait")
        launch.ranks[0].send_signal(signal.SIGTERM)
        assert launch.codes()[0] == -signal.SIGTERM, "there is nothing to save, and rank 1 will never come"


def test_an_unknown_interface_is_reported_with_the_known_ones() -> None:
    assert interface_address("lo") == "127.0.0.1"
    with pytest.raises(RendezvousError, match=r"'nope0' has no IPv4 address .* has .*lo"):
        interface_address("nope0")


def test_the_socket_is_bound_to_one_address() -> None:
    with listen("lo") as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with listen(None) as listener:
        address = listener.getsockname()[0]
        own = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)}
        outward = {text for text in own if not ip_address(text.partition("%")[0]).is_loopback}
        assert address not in ("0.0.0.0", "::"), "without an interface, one address and not all"
        assert not outward or address in outward, "of the host's own name, one that other hosts can use"


def test_a_stale_address_of_a_dead_start_does_no_harm(tmp_path: Path) -> None:
    document = config(tmp_path, (2, 1), epochs=1, schedule=ScheduleKeys(warmup_epochs=0.5))
    with launched(document) as launch:
        assert launch.codes() == [0, 0], launch.stderr_text
    assert not Path(document["rendezvous"]).exists(), "the address must go once all ranks have met"


def test_ranks_wait_for_a_slow_rank_0_while_its_store_lives_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "LOOK_S", 0.02)
    served = [dist.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)]
    secret = Secret("0123456789abcdef" * 4, 1, 2)
    store = SignedStore(dist.TCPStore("127.0.0.1", served[0].port, 2, False, wait_for_workers=False), secret)
    waits: list[int] = []
    check = store.check

    def slowly(keys: list[str]) -> bool:
        waits.append(1)
        if len(waits) == 3:
            SignedStore(served[0], secret).set("resume", "step-8")
        return check(keys)

    monkeypatch.setattr(store, "check", slowly)
    rendezvous.wait_for_rank_0(store, "resume")
    assert len(waits) >= 3 and store.get("resume") == b"step-8"
    served.clear()
    with pytest.raises(dist.DistNetworkError):
        rendezvous.wait_for_rank_0(store, "another")


def test_a_rank_opens_as_many_files_as_it_may_and_says_if_these_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(configuration.resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(configuration.resource, "setrlimit", lambda _, both: limits.append(both))
    assert configuration.too_few(1500) == "" and limits[-1] == (4096, 4096)
    assert "2048 ranks need 4128 open files in each process, and this node allows 4096" in configuration.too_few(2048)


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


@pytest.mark.parametrize(
    "error", [PeerLost("x"), dist.DistNetworkError("x"), dist.DistBackendError("x"), NotThere("x")]
)
def test_errors_of_an_exchange_mean_that_another_rank_is_gone(error: Exception) -> None:
    assert cut_off(error)


@pytest.mark.parametrize(
    "error", [ValueError("x"), RuntimeError("out of memory"), OSError(28, "x"), RendezvousError("x")]
)
def test_other_errors_are_the_ranks_own(error: Exception) -> None:
    assert not cut_off(error)


def test_an_error_raised_inside_torch_distributed_is_one_of_an_exchange() -> None:
    with pytest.raises(ValueError) as caught:
        dist.all_reduce(torch.zeros(1))  # without a process group
    own = RuntimeError("says nothing of connections").with_traceback(caught.tb)
    assert cut_off(own)
    try:
        raise RendezvousError("rank 1 did not come") from own
    except RendezvousError as error:
        assert cut_off(error), "an error that was raised because of another one counts as that one"


def test_a_mistake_in_the_call_of_a_collective_is_the_ranks_own() -> None:
    with pytest.raises(TypeError) as caught:
        dist.all_reduce()  # type: ignore[call-arg]
    assert not cut_off(caught.value)
