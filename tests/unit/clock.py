"""A clock for tests: it stands until somebody sleeps by it, and takes the place of a module's `time`."""


class Clock:
    """The clocks that `time` has, as one."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic

    def thread_time(self) -> float:
        """Nothing costs anything."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
