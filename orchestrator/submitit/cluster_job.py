"""A submitit job on a scheduler that submitit does not support: follows, reads and cancels it."""

from __future__ import annotations

import time
from pathlib import Path

from submitit.core import core

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.schedulers.client import Client

RECORDS_LAG_S = 30.0  # a job leaves a queue some time before the scheduler's records have its end


class Watcher(core.InfoWatcher):
    """submitit's view of all jobs of one scheduler: one poll for all of them.

    submitit's id of task 3 of array A is A_3. A submitit job may continue in another job of the scheduler.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self._standing: dict[str, str] = {}
        self._unseen_since_s: dict[str, float] = {}

    def stands_for(self, successor: str, job_id: str) -> None:
        """Use the state of the scheduler's job `successor` for `job_id` from now on."""
        if self._standing.get(job_id) != successor:
            self._standing[job_id] = successor
            self._finished.discard(job_id)
            self._last_status_check = float("-inf")

    def known_as(self, job_id: str) -> str:
        """The scheduler's id of the job with this id of submitit."""
        array, _, index = job_id.rpartition("_")
        if job_id in self._standing:
            return self._standing[job_id]
        return self.client.scheduler.task_id(array, int(index)) if array and index.isdigit() else job_id

    def update(self) -> None:
        self._num_calls += 1
        waiting = {self.known_as(job_id): job_id for job_id in sorted(self._registered - self._finished)}
        for known, status in self.client.poll(list(waiting)).items():
            job_id = waiting[known]
            self._info_dict[job_id] = {"JobID": known, "State": status.state.value, "NodeList": ",".join(status.hosts)}
            if status.state is not State.LOST:
                self._unseen_since_s.pop(job_id, None)
            elif time.time() < self._unseen_since_s.setdefault(job_id, time.time()) + RECORDS_LAG_S:
                self._info_dict[job_id]["State"] = State.UNKNOWN.value
                continue
            if status.state.over:
                self._finished.add(job_id)
        self._last_status_check = time.time()

    def is_gone(self, job_id: str) -> bool:
        """Whether the scheduler did not know the job in the last poll."""
        return job_id in self._unseen_since_s

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode).get("State", State.UNKNOWN.value)


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
        if self.paths.result_pickle.exists():
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
            state = (self.paths.folder / f"{self.job_id}_ended").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        return state if state in (State.FAILED.value, State.TIMEOUT.value, State.CANCELLED.value) else ""

    def _follow(self) -> None:
        continued = self.paths.folder / f"{self.job_id}_continues_as"
        if continued.exists():
            self.watcher.stands_for(self.watcher.client.scheduler.job_id(continued.read_text()), self.job_id)
