"""Another user's process at the store of a run: it is not believed, and it does not stop rank 0 from working."""

from __future__ import annotations

import json
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import Store
from training_runs import LIMIT_S, ROOT, Launch, config, launched

from tests.waiting import until
from torusrun.training.checkpoint.manifest import compose, name_of
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import ScheduleKeys

STRANGER = str(Path(__file__).with_name("stranger.py"))
SHORT = {"epochs": 1, "schedule": ScheduleKeys(warmup_epochs=0.5)}
LISTENING = "0A"
REFUSED = "someone else writes to the store of this attempt"


class Payload:
    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.mkdir, (Path(self.trace),))


def planted(folder: Path) -> tuple[Path, Path]:
    """A complete checkpoint outside of the run, and the folder that appears when its state is unpickled."""
    trace, evil = folder / "trace", folder / "elsewhere" / name_of(1)
    evil.mkdir(parents=True)
    state = pickle.dumps(Payload(trace))
    (evil / "state.pt").write_bytes(state)
    (evil / "manifest.json").write_text(json.dumps(compose(Progress(1, 64), 0.1, 1, {"state.pt": state})))
    return evil, trace


@contextmanager
def met_by_a_stranger(folder: Path, evil: Path, keys: int) -> Iterator[tuple[Launch, dict[str, Any]]]:
    """Two ranks, the second of which starts when the stranger has begun; and the address of rank 0."""
    document, ready = config(folder, (2, 1), **SHORT), folder / "ready"
    with launched(document, late=ready) as launch:
        address = address_of(Path(document["rendezvous"]))
        stranger = subprocess.Popen(
            [sys.executable, STRANGER, address["host"], str(address["port"]), str(evil), str(ready), str(keys)],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield launch, address
        finally:
            stranger.send_signal(signal.SIGKILL)
            stranger.wait()


def codes_of_a_run(launch: Launch) -> list[int]:
    """Wait for all ranks, or for one that fails: the supervisor of a run ends the others, which may wait for it."""
    polled = lambda: [rank.poll() for rank in launch.ranks]  # noqa: E731
    codes = until(lambda: (now := polled()) and (any(now) or None not in now) and now, "all ranks, or one that fails")
    if any(codes):
        launch.end()
    return launch.codes()


def address_of(path: Path) -> dict[str, Any]:
    until(path.exists, "rank 0 to publish its address", LIMIT_S)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def listening(port: int) -> set[str]:
    """The addresses on which this machine listens at `port`, as the kernel writes them."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    sockets = [(words[1].split(":"), words[3]) for words in lines[1:] if words[0] != "sl"]
    return {address for (address, number), state in sockets if int(number, 16) == port and state == LISTENING}


def test_one_who_guesses_does_not_disturb_and_reaches_one_address_only(tmp_path: Path) -> None:
    evil, trace = planted(tmp_path)
    with met_by_a_stranger(tmp_path, evil, keys=0) as (launch, address):
        assert listening(address["port"]) == {"0100007F"}, "the store must listen on 127.0.0.1 and nowhere else"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", address["port"]), timeout=5).close()
        codes = launch.codes()
    assert codes == [0, 0], f"noise and guessed names must not end a run: {codes}: {launch.stderr_text}"
    assert launch.events("start")[0]["resumed_from"] is None and not trace.exists()


@pytest.mark.parametrize("keys", [1, 5, 8])
def test_overwriting_of_the_store_is_detected(tmp_path: Path, keys: int) -> None:
    """After the first key, while gloo exchanges addresses, and when rank 0 names the checkpoint."""
    if not hasattr(Store, "list_keys"):
        pytest.skip("the stores of this torch cannot be listed")
    evil, trace = planted(tmp_path)
    with met_by_a_stranger(tmp_path, evil, keys) as (launch, _):
        codes = codes_of_a_run(launch)
    if keys == 1 or codes != [0, 0]:  # with the later keys he may come too late, and then nothing is lost
        assert 0 not in codes and REFUSED in launch.stderr_text, f"{codes}: {launch.stderr_text}"
    started = launch.events("start")
    assert not started or started[0]["resumed_from"] is None, f"nothing but the run's own may be loaded: {started}"
    assert not trace.exists(), "a pickle of the stranger was loaded"
