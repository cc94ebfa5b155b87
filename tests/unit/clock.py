"""A clock for tests: it stands until somebody sleeps by it, and takes the place of a module's `time`."""


class Clock:
    """Both of the clocks that `time` has, as one."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
