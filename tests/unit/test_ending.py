"""SIGTERM and SIGHUP end a block in order."""

import signal
import threading
from collections.abc import Iterator

import pytest

from torusrun.orchestrator.base import signals

SIGNALS = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    signal.raise_signal(number)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_ends_the_block_and_later_ones_let_it_clean_up(number: signal.Signals) -> None:
    cleaned = False
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, signals.in_order():
        try:
            send(number)
        finally:
            for each in SIGNALS:
                send(each)
            cleaned = True
    assert cleaned and ended.value.code == 128 + number
    assert signal.getsignal(number) == before


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.in_order():
        send(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    with pytest.raises(SystemExit), signals.in_order():
        send(signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_another_thread_changes_nothing() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    seen = list[object]()

    def look() -> None:
        with signals.in_order():
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == before
