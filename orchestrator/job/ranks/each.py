"""A program that is started once for each checkpoint, in turn: of the main role, or of another run.

Its first rank chooses the checkpoint, and records that it is judged once all ranks of the role have ended with 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, explained
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.base.private import appended
from torusrun.orchestrator.job.ranks.rank_program import RankProgram
from torusrun.orchestrator.job.ranks.roles import record
from torusrun.orchestrator.job.start.launch_order import Rank
from torusrun.orchestrator.keys.main_role import MAIN
from torusrun.orchestrator.run.folder.judged import CompleteCheckpoint, ToJudge, kept
from torusrun.orchestrator.run.folder.records import JUDGED, JUDGING
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.program.progress import checkpoint_line

LOOK_S = 1.0  # between looks for checkpoints
OTHER_S = 3.0  # the same, with those for the end of another run


@dataclass(frozen=True)
class Subject:
    """One start of the role's program on all ranks; `number` counts from 1, and `path` is '' after the last start."""

    number: int
    path: str
    step: int | None

    @property
    def variables(self) -> dict[str, str]:
        step = {} if self.step is None else {"TORUSRUN_CHECKPOINT_STEP": str(self.step)}
        return {"TORUSRUN_CHECKPOINT": self.path, **step}


class Judge:
    """What a rank of the role judges; its `program` waits in between, and `log` is the descriptor of its output."""

    def __init__(self, rank: Rank, program: RankProgram, log: int) -> None:
        self.rank, self.attempt, self.name = rank, rank.attempt, rank.role.name or MAIN
        self.over = False  # whether all is judged
        self._program, self._log = program, log
        self._number, self._looked_s = 0, -OTHER_S
        self._kept = contextlib.ExitStack()
        if rank.leads:
            folder = Path(rank.role.judges)
            record(self.attempt, self.name, JUDGING, check="")
            self._queue = ToJudge(folder, rank.attempt.run.judged(self.name), newest=rank.role.newest)
            self._checkpoint = CompleteCheckpoint(folder)

    def next(self) -> Subject | None:
        """The next judgement, for which this waits; None if all is judged, or on a request to stop."""
        self._kept.close()
        judgement = self._program.until(self._chosen if self.rank.leads else self._given)
        if judgement is None:
            return None
        self._number, self.over = judgement.number, not judgement.path
        if self.rank.leads:
            self._tell(judgement)
        return None if self.over else judgement

    def judged(self) -> None:
        """The program has ended with 0: record it. Raises SiteError if that cannot be written."""
        if not self.rank.leads:
            write_json(self._record_of(self.rank.in_role), {"number": self._number})
        elif self._program.until(self._all_ended):
            self._queue.judged(self._checkpoint)

    def _chosen(self) -> Subject | None:
        """The first rank's choice, which is kept until the next judgement; None if there is nothing to judge yet."""
        service = self._program.service
        every_s = 0.0 if service and service.over else LOOK_S if service else OTHER_S
        if time.monotonic() < self._looked_s + every_s:
            return None
        self._looked_s = time.monotonic()
        # Before the look for checkpoints: the last may be written in between.
        over = service.over if service else _is_over(RunFolder(Path(self.rank.role.of_run)))
        checkpoint = self._queue.next(over=over)
        if checkpoint is None:
            return Subject(self._number + 1, "", None) if over else None
        self._kept.close()
        if not self._kept.enter_context(kept(checkpoint)):
            return None  # it has just been removed
        self._checkpoint = checkpoint
        return Subject(self._number + 1, str(checkpoint.path), checkpoint.step)

    def _tell(self, judgement: Subject) -> None:
        """Record it for the other ranks and for `status`, and its step where numbers without a step are read."""
        write_json(self.attempt.role_judgement(self.name), asdict(judgement))
        record(self.attempt, self.name, JUDGED if self.over else JUDGING, check=Path(judgement.path).name)
        if not self.over:
            os.write(self._log, checkpoint_line(judgement.path, judgement.step).encode(errors="surrogateescape"))
            metrics = self.attempt.role_metrics(self.name) if self.rank.role.service else self.attempt.metrics
            with explained(f"{metrics}: cannot be written"), appended(metrics) as file:
                file.write(f"\n{json.dumps({'step': judgement.step})}\n".encode())

    def _given(self) -> Subject | None:
        """The judgement that the first rank has chosen after this rank's last."""
        given = self._read(self.attempt.role_judgement(self.name))
        number, path, step = given.get("number"), given.get("path"), given.get("step")
        if type(number) is not int or number <= self._number or type(path) is not str:
            return None
        return Subject(number, path, step if type(step) is int else None)

    def _all_ended(self) -> bool:
        """Whether the other ranks have judged the checkpoint, too."""
        others = (self._read(self._record_of(number)) for number in range(1, len(self.rank.of_role)))
        return all(ended.get("number") == self._number for ended in others)

    def _record_of(self, number: int) -> Path:
        return self.attempt.role_judgement(f"{self.name}.{number}")

    @staticmethod
    def _read(path: Path) -> dict[str, object]:
        with contextlib.suppress(SiteError):
            return read_object(path) or {}
        return {}


def _is_over(run: RunFolder) -> bool:
    """Whether another run is over: no checkpoint follows without its user."""
    from torusrun.orchestrator.run.state.record import read_record  # imported late: a role needs none

    with contextlib.suppress(SiteError):  # a disk that does not answer
        return not run.folder.exists() or read_record(run).settled
    return False
