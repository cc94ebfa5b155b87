"""A submitit job on a scheduler that submitit does not support: follows, reads and cancels it."""

from __future__ import annotations

from pathlib import Path

from submitit.core import core

from orchestrator.base.states import State
from orchestrator.schedulers.for_submitit.executors import Watcher


class ClusterJob(core.Job[core.R]):
    """A submitit job. It may continue in another job of the scheduler, whose state is then its own."""

    watcher: Watcher

    def done(self, force_check: bool = False) -> bool:
        self._follow()
        return super().done(force_check) or State(self.state).over

    @property
    def state(self) -> str:
        self._follow()
        state: str = super().state
        gone = self.watcher.is_gone(self.job_id)  # PBS may keep no records of ended jobs
        nobody_knows = gone or state == State.UNKNOWN.value
        if all(task.paths.result_pickle.exists() for task in self._sub_jobs or [self]):
            if nobody_knows:
                state = (State.FAILED if self.exception() else State.COMPLETED).value
        elif nobody_knows or state == State.FAILED.value:
            state = self._recorded or state
        # PBS reports a job that was deleted while it started as failed, and a deleted task that waited not at all. A
        # function that SIGTERM interrupted leaves a failure as its result.
        unsaid = state == State.FAILED.value or (gone and state != State.COMPLETED.value)
        return State.CANCELLED.value if unsaid and self._cancelled.exists() else state

    def cancel(self, check: bool = True) -> None:
        self._cancelled.touch()  # first: a job that finds this file does not continue in another
        self._follow()
        self.watcher.client.cancel(self.watcher.known_as(self.job_id))
        self.watcher.register_job(self.job_id)  # polls often again, as for a new job

    def _interrupt(self, timeout: bool = False) -> None:
        """Request a checkpoint and a requeue of the job now, as before its time limit (for tests)."""
        (self.paths.folder / f"{self.job_id}_interrupt").touch()

    @property
    def _cancelled(self) -> Path:
        path: Path = self.paths.folder / f"{self.job_id}_cancelled"
        return path

    @property
    def _recorded(self) -> str:
        """The state that the job's script recorded when it ended badly; '' if there is none."""
        try:
            said = (self.paths.folder / f"{self.job_id}_ended").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        return said if said in (State.FAILED.value, State.TIMEOUT.value, State.CANCELLED.value) else ""

    def _follow(self) -> None:
        continued = self.paths.folder / f"{self.job_id}_continues_as"
        if continued.exists():
            self.watcher.stands_for(self.watcher.client.scheduler.job_id(continued.read_text()), self.job_id)
