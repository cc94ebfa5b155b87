"""submitit executors of our schedulers: they build images in jobs, and any user of submitit can use them.

The script's text, the commands and the parsing are the scheduler's pure functions; submitit brings the pickled callable
and its handling inside the job. Its pause of 0.2 s between submissions is left out. Runs need no callable: their
script names the attempt's folder, which keeps its name when the scheduler has answered.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from submitit.core import core

from orchestrator.base import private
from orchestrator.base.states import State
from orchestrator.schedulers.client import Client
from orchestrator.schedulers.interface import Request

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


class BuildJob(core.Job[core.R]):
    """A job that `Executor` submitted."""

    watcher: Watcher

    def cancel(self, check: bool = True) -> None:
        self.watcher.client.cancel(self.job_id)


class Executor(core.PicklingExecutor):
    """Submits one callable as a job whose script is `text`; the script runs submitit's entry on `folder`."""

    def __init__(self, client: Client, request: Request, folder: Path, script: Path, text: str) -> None:
        super().__init__(folder)
        self.client = client
        self.request = request
        self.script = script
        self._text = text
        self._throttling = 0.0
        self.job_class = type("ClientJob", (BuildJob,), {"watcher": Watcher(client)})

    def _submit_command(self, command: str) -> core.Job[Any]:
        private.write_bytes(self.script, self._text.encode())
        job_id = self.client.submit(self.script, self.request)
        return self.job_class(folder=self.folder, job_id=job_id, tasks=[0])

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return self._text

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        raise NotImplementedError("the client submits")

    def _num_tasks(self) -> int:
        return 1

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError("the client reads the job's id")
