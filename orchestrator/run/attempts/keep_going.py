"""The next attempt of a run that keeps going, made by the job that begins it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.keys.run import Grow
from torusrun.orchestrator.run import hooks
from torusrun.orchestrator.run.attempts import submit
from torusrun.orchestrator.run.bad_nodes.left_out import listed
from torusrun.orchestrator.run.folder import claim, ledger, metrics
from torusrun.orchestrator.run.folder.attempt_folders import supervised_on
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import (
    CancelRequested,
    Changes,
    Ended,
    Event,
    GivenBadHosts,
    KeptGoing,
    RequestChanged,
    Started,
    Submitting,
)
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.records import End, is_done
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan, derive
from torusrun.orchestrator.run.program.command import newest_checkpoint
from torusrun.orchestrator.run.state.attempts import newest_of
from torusrun.orchestrator.run.state.decide import History, More, Policy, Resume, Step, Stop, Wait, decide
from torusrun.orchestrator.run.state.next_attempt import (
    Checkpoint,
    changes_for,
    ended_outside,
    first_of_submission,
    hopeless,
    more_after,
    pause_s,
)
from torusrun.orchestrator.run.state.outcome import resolve
from torusrun.orchestrator.schedulers.client import Client

LOCK_S = 120.0  # a client that resumes the run holds its lock during the submission
ANSWER_S = 10.0  # for the scheduler's answer about the job before; many nodes cannot query it


@dataclass(frozen=True)
class Here:
    """The job that asks.

    `job` is its id as it was submitted, `name` its own (a task's, in an array), `first` the attempt that was submitted
    with it, `hosts` the number of its usable hosts. `begun` is the newest attempt that it began itself, or 0. `bad` are
    those of its hosts that are bad and keep it from beginning a further attempt, with the reason for each. `later` are
    the names of the jobs of the same submission that begin after it: they may be at work beside this job.
    """

    job: str
    name: str
    first: int
    hosts: int
    begun: int = 0
    bad: Mapping[str, str] = field(default_factory=dict)
    later: Collection[str] = ()


def next_step(run: RunFolder, here: Here, *, begin: bool) -> Step:
    """What follows for the run: Resume has the attempt to begin in this job, which is made if the job will `begin` it.

    Wait leaves it to the next job, or asks for a pause. If none follows, the ledger says why. A job that is not in
    charge any more writes nothing. Raises SiteError or UserError if the attempt cannot be made.
    """
    with alone(run, LOCK_S):
        newest = _Newest(run, here)
        step = decide(newest.history, Policy.KEEP_GOING)
        if begin and isinstance(step, Resume) and step.attempt > newest.number:
            if step.more:
                return newest.submit_next(step.more)
            step = newest.pause() or (newest.refuse() if here.bad else newest.make_next())
        if isinstance(step, Stop) and not newest.in_other_job:
            close(run, newest.number, step)
        return replace(step, later_job=newest.in_later_job) if isinstance(step, Stop) else step


def close(run: RunFolder, number: int, stop: Stop) -> None:
    """Record that no further attempt follows attempt `number`."""
    if not last(ledger.events(run.ledger), KeptGoing, number):
        ledger.append(run.ledger, KeptGoing(number, stop.why, hosts=stop.hosts))


class _Newest:
    """The newest attempt of a run whose job asks. If the job is in charge, its end is then in the ledger."""

    def __init__(self, run: RunFolder, here: Here) -> None:
        self.run, self.here = run, here
        self.number = newest_of(run)
        self.plan = plan_files.read_first(run, self.number)
        self.checkpoint, self.content = newest_checkpoint(self.plan, run)
        self.events = ledger.events(run.ledger)
        self.own = End.readable(run.attempt(self.number).end)
        self.end = None if self.in_other_job else self._end()
        self.events = ledger.events(run.ledger)

    @property
    def in_other_job(self) -> bool:
        """Whether another submission, or another job of the same array, works for the run now."""
        return not self._of_this_submission or self.in_later_job

    @property
    def in_later_job(self) -> bool:
        """Whether a later job of the same submission works for the run now, although this job has not ended.

        Seen on Slurm 22.05: a job with --no-kill lost a host, or the slurmstepd of its first host was killed, and the
        array's next task began beside it.
        """
        if not self._of_this_submission:
            return False
        if self.here.begun:
            return self.here.begun < self.number
        began, intent = last(self.events, Started, self.number), last(self.events, Submitting, self.number)
        if began:  # without a rank at work this job was begun again after the later job
            return began.job in self.here.later and bool(claim.held(self.run.attempt(self.number)))
        return intent is not None and intent.by in self.here.later

    @property
    def _of_this_submission(self) -> bool:
        return first_of_submission(self.events, self.number) == self.here.first

    @property
    def history(self) -> History:
        own, status = self.own, self.end.status if self.end else Status(State.RUNNING)
        # A task that its scheduler calls cancelled does not stop the run: who cancels a run cancels its whole array.
        asked_to_stop = own and own.certain and own.cause is Cause.STOPPED and "exit_code" not in own.evidence
        return History(
            self.number,
            status.state,
            status.reason,
            begun=self.end is not None,
            again=self.end is None or self.end.again,
            cancelled=last(self.events, CancelRequested, self.number) is not None,
            stopped=Cause.STOPPED if asked_to_stop else None,
            more=self._more,
            other_job=self.in_other_job,
            hopeless=hopeless(*self._attempts, self.plan.run.keep_going.without_progress),
        )

    @property
    def _more(self) -> More | None:
        if self.plan.run.keep_going.grow == Grow():
            return None
        return more_after(self.events, plan_files.read_plan(self.run, self.number), *self._attempts[1:])

    def pause(self) -> Wait | None:
        """The wait for what ended the last attempts outside the program; None if the next may begin now."""
        end, count = last(self.events, Ended, self.number), ended_outside(*self._attempts)
        left_s = pause_s(count, end.time_s, time.time()) if end else 0.0
        why = f"waits {left_s:.0f} s: its launcher, its scheduler or a host ended {count} attempts in a row"
        return Wait(why, left_s) if left_s else None

    def refuse(self) -> Step:
        """What follows if this job begins nothing on its bad hosts."""
        ledger.append(self.run.ledger, GivenBadHosts(self.number, self.here.name, self.here.bad))
        self.events = ledger.events(self.run.ledger)
        step = decide(self.history, Policy.KEEP_GOING)
        return step if isinstance(step, Stop) else Wait(f"waits for its next job: bad hosts: {listed(self.here.bad)}")

    def make_next(self) -> Step:
        """Make the next attempt, to begin in this job."""
        planned, before = self._planned(), last(self.events, Submitting, self.number)
        changed = last(self.events, RequestChanged, self.number) or before
        intent = Submitting(
            planned.number,
            before.name if before else self.run.run_id,
            before.after if before else (),
            before.after_any if before else (),
            resumes=self.checkpoint,
            resumes_content=self.content,
            follows=self.number,
            by=self.here.name,
            jobs=before.jobs if before else 1,
            left_out=changed.left_out if changed else {},
        )
        submit.within(planned, self.run, intent, self.here.job)
        return Resume(planned.number)

    def submit_next(self, wanted: More) -> Stop:
        """Submit the next attempt in jobs that ask for more: those of this submission cannot change their request."""
        history, number = plan_files.history(self.run, self.events), self.number + 1
        why = f"ended for lack of {wanted.what}, and the next attempt asks for {wanted}"
        try:
            planned = derive(self.plan, history, number, changes_for(wanted))
            submit.later(planned, self.run, self.checkpoint, follows=self.number)
        except NoAnswer as error:
            return Stop(f"{why}: {error}")
        except (SiteError, UserError) as error:
            step = Stop(f"{why}, which this job cannot submit ({error}): `torusrun resume {self.run.run_id}` does")
            close(self.run, self.number, step)
            return step
        return Stop(f"{why}, in another job")

    @property
    def _attempts(self) -> tuple[Sequence[Event], int, Checkpoint, Mapping[int, int]]:
        """What the functions of next_attempt.py count: the attempts up to this attempt, and how far they came."""
        return self.events, self.number, (self.checkpoint, self.content), self._began_after()

    def _began_after(self) -> dict[int, int]:
        """The steps after which attempts began, if they may continue from the memory of a node, or by a command."""
        if not (self.plan.run.train.checkpoints.memory or self.plan.run.command):
            return {}
        with contextlib.suppress(SiteError):
            return metrics.began_after(metrics.rows(self.run.metrics))
        return {}

    def _end(self) -> End | None:
        """How the attempt ended; None if it has not begun. An end that the ledger lacks is added to it.

        Only one job of the run works at a time, so an attempt that has begun is over.
        """
        began, seen = last(self.events, Started, self.number), last(self.events, Ended, self.number)
        certain = self.own if self.own and self.own.certain else None
        if seen:
            return certain or seen.end
        if not began and not self.own:
            return None
        elsewhere = began is not None and began.job != self.here.name
        end = certain or self._by_all_records(self._end_of_job(began.job) if began and elsewhere else None)
        ledger.append(self.run.ledger, Ended.by(self.number, end))
        hooks.ended(self.run, self.number, replace(end, certain=True, kept_going=True))
        return end

    def _by_all_records(self, job: Status | None) -> End:
        """The end by the attempt's own record, and by its job's end if the scheduler knows that."""
        done = is_done(self.run.attempt(self.number))
        status = resolve(self.events, self.number, self.own, job, time.time(), done=done)
        if not status.state.over or status.state is State.LOST:
            return self.own or self._unrecorded()
        own = self.own or End(status.state, status.reason, hosts=self._first_host(status))
        return replace(own, state=status.state, reason=status.reason, cause=status.cause)

    @property
    def _asked(self) -> Client:
        return Client(schedulers.get(self.plan.site.scheduler), min(self.plan.site.command_timeout_s, ANSWER_S))

    def _end_of_job(self, job: str) -> Status | None:
        """How an earlier job ended by the scheduler; None if it does not know, or this node cannot query it."""
        status = self._asked.poll([job])[job]
        return status if status.state.over else None

    def _unrecorded(self) -> End:
        """The end of an attempt that left no record. PBS begins the job again if it loses the first host."""
        host = supervised_on(self.run.attempt(self.number))
        if why := self._asked.lost(host):
            return ended(How.FIRST_HOST_DOWN, hosts=[host], host=host, why=why)
        return ended(How.NO_END, supervisor=host)

    def _first_host(self, status: Status) -> tuple[str, ...]:
        """The supervisor's host, if a lost host ended the attempt: it would have named any other host itself."""
        host = supervised_on(self.run.attempt(self.number))
        return (host,) if host and status.state is State.NODE_FAIL else ()

    def _planned(self) -> AttemptPlan:
        """The plan of the next attempt, on fewer nodes if the job has lost too many.

        Raises UserError if the run fits on no number of nodes that is left.
        """
        history, number = plan_files.history(self.run, self.events), self.number + 1
        full = derive(self.plan, history, number, Changes())
        if self.here.hosts >= full.plan.all_nodes:
            return full
        fewest = self.plan.run.keep_going.min_nodes or full.plan.run.nodes
        most = self.here.hosts - self.plan.service_nodes
        for nodes in range(most, fewest - 1, -1):
            with contextlib.suppress(UserError):  # the batch does not divide by these ranks, for example
                return derive(self.plan, history, number, Changes(nodes=nodes, grid=()))
        raise UserError(f"the run does not fit on any number of nodes from {fewest} to {most}")
