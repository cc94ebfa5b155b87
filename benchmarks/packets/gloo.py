"""Messages as gloo sends them between two ranks, and what a rank waits for.

A rank that begins to receive sends a note ("ready to receive"), and data leaves only after its note has arrived. Notes
use the connection of the data in their direction, so they wait behind data in its stream and in the queues of links.
Source: gloo, transport/tcp/pair.cc, commit 01e2c266 (verified).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.packets.stream import Connect, Stream
from benchmarks.packets.wire import Act, Clock

HEADER_BYTES = 96  # before data: a note of the send, and the data's own header
NOTE_BYTES = 110  # with the headers of Ethernet, IP and TCP, which packets of data have in their bandwidth


class Signal:
    """Something that happens once; one program may wait for it."""

    __slots__ = ("done", "_next")

    def __init__(self) -> None:
        self.done = False
        self._next: Act | None = None

    def fire(self) -> None:
        self.done = True
        if self._next:
            self._next()

    def then(self, act: Act) -> None:
        """Call `act` when it happens."""
        self._next = act


Program = Iterator[Signal | float]  # what a rank does, as the signals and the times that it waits for
Pair = tuple[int, int, int]  # (process group, from rank, to rank)


class Gloo:
    """The messages of all ranks. A rank needs `handling_s` to act on one, half as much to one and a half times.

    `connect(a, b)` makes a connection; each process group has its own ones.
    """

    def __init__(self, clock: Clock, connect: Connect, handling_s: float, chance: Random) -> None:
        self.clock, self._connect, self._handling_s, self._chance = clock, connect, handling_s, chance
        self._connections: dict[Pair, Stream] = {}
        self._ready: defaultdict[tuple[Pair, int], int] = defaultdict(int)  # receives that have no send yet
        self._held: defaultdict[tuple[Pair, int], deque[Act]] = defaultdict(deque)  # sends that have no receive yet
        self._coming: defaultdict[tuple[Pair, int], deque[Signal]] = defaultdict(deque)

    def receive(self, group: int, me: int, source: int, tag: int = 0) -> Signal:
        """Begin to receive a message."""
        key = ((group, source, me), tag)
        arrives = Signal()
        self._coming[key].append(arrives)
        self._connection((group, me, source)).put(NOTE_BYTES, lambda: self._noted(key))
        return arrives

    def send(self, group: int, me: int, target: int, size_bytes: float, tag: int = 0) -> Signal:
        """Begin to send a message; the signal means that the kernel has all of it."""
        key = ((group, me, target), tag)
        sent = Signal()

        def go() -> None:
            self._connection(key[0]).put(size_bytes + HEADER_BYTES, lambda: self._arrived(key), sent.fire)

        if self._ready[key]:
            self._ready[key] -= 1
            go()
        else:
            self._held[key].append(go)
        return sent

    def run(self, program: Program, ended: Callable[[], None]) -> None:
        """Let a program run, from now on; `ended` is called at its end."""
        clock = self.clock

        def go_on() -> None:
            for awaited in program:
                if isinstance(awaited, Signal):
                    if not awaited.done:
                        return awaited.then(go_on)
                elif awaited > clock.now_s:
                    return clock.at(awaited, go_on)
            ended()

        go_on()

    def _connection(self, pair: Pair) -> Stream:
        if pair not in self._connections:
            self._connections[pair] = self._connect(*pair[1:])
        return self._connections[pair]

    def _noted(self, key: tuple[Pair, int]) -> None:
        if self._held[key]:
            self._held[key].popleft()()
        else:
            self._ready[key] += 1

    def _arrived(self, key: tuple[Pair, int]) -> None:
        delay_s = self._handling_s * (0.5 + self._chance.random())
        self.clock.at(self.clock.now_s + delay_s, self._coming[key].popleft().fire)
