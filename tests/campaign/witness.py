"""Checks that no two attempts of a run train at the same time."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.e2e.places import Place

LOOK_S = 0.3
ATTEMPT = re.compile(r"/attempts/(\d+)/config\.json")


class Witness:
    """Watches the trainings of a run all the time; `overlaps` names attempts that ran at the same time."""

    def __init__(self, place: Place, run: Path) -> None:
        self.place, self.run = place, run
        self.overlaps: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        seen = 0
        while not self._end.wait(LOOK_S):
            if not (self.run / "attempts/2").exists():
                continue
            with suppress(OSError, RuntimeError):  # a host may lose its power at this moment
                alive = sorted(self._training())
                seen += len(alive) > 1
                if seen:
                    self.overlaps = [f"two attempts trained at once (seen {seen} times)"]

    def _training(self) -> set[str]:
        """The attempts with a living training. A fork that is not a training yet looks like its parent."""
        trainings = [p for p in self.place.processes(self.run) if p.module == "torusrun.training"]
        return {match[1] for p in trainings for word in p.arguments if (match := ATTEMPT.search(word))}
