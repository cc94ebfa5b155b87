"""A job of submitit's on a scheduler that submitit does not know: how it is followed, read and cancelled."""

from __future__ import annotations

from pathlib import Path

from submitit.core import core

from orchestrator.base.states import State
from orchestrator.schedulers.for_submitit.executors import Watcher


class ClusterJob(core.Job[core.R]):
    """A job of submitit's; it may go on in another job of the scheduler's, which then stands for it."""

    watcher: Watcher

    def done(self, force_check: bool = False) -> bool:
        self._follow()
        return super().done(force_check) or State(self.state).over

    @property
    def state(self) -> str:
        self._follow()
        state: str = super().state
        gone = self.watcher.is_gone(self.job_id)  # PBS may keep no records of what is over
        nobody_knows = gone or state == State.UNKNOWN.value
        if all(task.paths.result_pickle.exists() for task in self._sub_jobs or [self]):
            if nobody_knows:
                state = (State.FAILED if self.exception() else State.COMPLETED).value
        elif nobody_knows or state == State.FAILED.value:
            state = self._recorded or state
        # Of a job that is deleted while it starts, PBS says that it failed; of a task that waited, nothing. And a
        # function that SIGTERM has interrupted leaves a failure as its result.
        unsaid = state == State.FAILED.value or (gone and state != State.COMPLETED.value)
        return State.CANCELLED.value if unsaid and self._cancelled.exists() else state

    def cancel(self, check: bool = True) -> None:
        self._cancelled.touch()  # first: a job that finds it does not go on in another
        self._follow()
        self.watcher.client.cancel(self.watcher.known_as(self.job_id))
        self.watcher.register_job(self.job_id)  # asks often again, as of a new job

    def _interrupt(self, timeout: bool = False) -> None:
        """Ask the job to checkpoint and requeue now, as before its time limit (for tests)."""
        (self.paths.folder / f"{self.job_id}_interrupt").touch()

    @property
    def _cancelled(self) -> Path:
        path: Path = self.paths.folder / f"{self.job_id}_cancelled"
        return path

    @property
    def _recorded(self) -> str:
        """The state that the job's script recorded as it ended badly; '' if it did not."""
        try:
            said = (self.paths.folder / f"{self.job_id}_ended").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        return said if said in (State.FAILED.value, State.TIMEOUT.value, State.CANCELLED.value) else ""

    def _follow(self) -> None:
        continued = self.paths.folder / f"{self.job_id}_continues_as"
        if continued.exists():
            self.watcher.stands_for(self.watcher.client.scheduler.job_id(continued.read_text()), self.job_id)
