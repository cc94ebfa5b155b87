"""One direction of a TCP connection on links that lose nothing, as Linux sends with Reno.

- Messages are a stream: each waits behind the one before (head-of-line blocking).
- Few packets wait in the sender's own adapter (TCP small queues, tcp_output.c, from memory), so connections of one host
  take turns there. The queues beyond, in switches, get as long as the window.
- The window begins with ten segments (RFC 6928) and grows by a packet for each that arrives (slow start, RFC 5681):
  without losses it grows up to the send buffer. It halves for each retransmission timeout without a packet (RFC 2861),
  which is a round trip and 0.2 s (RFC 6298, Linux's least variance).

A switch forwards a packet while it arrives (cut-through). Acknowledgements take no time of their own: bandwidths are
measured with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.packets.wire import Act, Clock, OneWay

PACKET_BYTES = 5 * 1448  # as many segments of Ethernet as Linux hands to an adapter in one piece, if at most 8 KB
FIRST_WINDOW = 2.0  # packets
LARGEST_WINDOW = 400.0  # packets: a send buffer of 4 MB, of which a quarter is overhead
IN_ADAPTER = 2  # packets
LEAST_TIMEOUT_S = 0.2
BUFFERED_BYTES = 80e3  # that the sender's kernel takes before they are acknowledged


class Stream:
    """Carries messages over `links`, in order; the last byte arrives `latency_s` after it has left the last link."""

    def __init__(
        self, clock: Clock, links: Sequence[OneWay], latency_s: float, packet_bytes: float = PACKET_BYTES
    ) -> None:
        self._clock, self._links, self._latency_s, self._packet_bytes = clock, links, latency_s, packet_bytes
        self._queue: deque[tuple[float, Act]] = deque()
        self._buffered: deque[tuple[float, Act]] = deque()  # (arrived bytes from which it is sent, what happens then)
        self._put_bytes = self._arrived_bytes = 0.0
        self._window, self._flying, self._in_adapter, self._full = FIRST_WINDOW, 0, 0, False
        self._last_s = self._trip_s = 0.0

    def put(self, size_bytes: float, arrived: Act, sent: Act | None = None) -> None:
        """Send a message; `sent` is called when the kernel has taken it, `arrived` when its last byte is there."""
        self._put_bytes += size_bytes
        self._queue.append((size_bytes, arrived))
        if sent:
            self._buffered.append((self._put_bytes - BUFFERED_BYTES, sent))
            self._call_sent()
        self._send()

    def _send(self) -> None:
        now_s = self._clock.now_s
        if self._queue and not self._flying:
            self._shrink(now_s - self._last_s)
        while self._queue and self._in_adapter < IN_ADAPTER and self._flying < int(self._window):
            left, arrived = self._queue.popleft()
            size = min(self._packet_bytes, left)
            if left > size:
                self._queue.appendleft((left - size, arrived))
            self._flying += 1
            self._in_adapter += 1
            self._full = 2 * self._flying >= int(self._window)
            self._last_s = now_s
            self._pass(0, size, now_s, now_s, arrived if left <= size else None)

    def _shrink(self, idle_s: float) -> None:
        """Halve the window for each timeout of a pause."""
        timeouts = int(idle_s / (LEAST_TIMEOUT_S + self._trip_s))
        if timeouts:
            self._window = max(FIRST_WINDOW, self._window / 2 ** min(timeouts, 10))

    def _pass(self, at: int, size: float, left_s: float, end_s: float, arrived: Act | None) -> None:
        """Pass a packet that left at `left_s` on from link `at`, where its first byte is now."""
        clock, links = self._clock, self._links
        now_s, last = clock.now_s, len(links) - 1
        for index in range(at, last + 1):
            link = links[index]
            passed_s = link.end_s(now_s, size)
            end_s = max(end_s, passed_s)
            if index == 0:
                self._leave(passed_s)
            begins_s = passed_s - size * link.s_per_byte
            if begins_s > now_s and index < last:
                clock.at(begins_s, partial(self._pass, index + 1, size, left_s, end_s, arrived))
                return
        clock.at(end_s + self._latency_s, partial(self._arrive, size, left_s, arrived))

    def _leave(self, passed_s: float) -> None:
        """Make room in the adapter when a packet has passed its own link."""
        if passed_s <= self._clock.now_s:
            self._in_adapter -= 1
        else:
            self._clock.at(passed_s, self._left)

    def _left(self) -> None:
        self._in_adapter -= 1
        self._send()

    def _arrive(self, size: float, left_s: float, arrived: Act | None) -> None:
        self._flying -= 1
        self._arrived_bytes += size
        self._last_s = self._clock.now_s
        self._trip_s += (self._clock.now_s - left_s - self._trip_s) / 8
        if self._full and self._window < LARGEST_WINDOW:
            self._window += size / self._packet_bytes
        self._call_sent()
        if arrived:
            arrived()
        self._send()

    def _call_sent(self) -> None:
        while self._buffered and self._arrived_bytes >= self._buffered[0][0]:
            self._buffered.popleft()[1]()


Connect = Callable[[int, int], Stream]
