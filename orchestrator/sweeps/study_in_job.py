"""A member of a study asks Optuna for its values before its ranks start, and reports its result at the end.

The study is a journal in the folder of its sweep, which the jobs share: no process waits for them. A member is one
trial. Optuna reopens no trial: if a member that failed is resumed, the study gets another one with the same values.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from torusrun.orchestrator.base import lock, process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError, explained
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.keys.nodes import KeyValue, from_value
from torusrun.orchestrator.keys.read import read_tree
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.study import Searched, Study
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder, number_of
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.fits import misfits
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.sweeps.table import results

ASKING_S = 60.0
LEAST = (4, 3)  # of Optuna: since then its lock on a journal ends some time after the process that held it was killed
PROBE = "import importlib.util as u, importlib.metadata as m; print(u.find_spec('optuna') and m.version('optuna'))"
LOCK_S = 120.0  # the jobs of a sweep may all begin at once, and each holds the lock for a moment
CUT_OFF = (State.TIMEOUT, State.PREEMPTED, State.NODE_FAIL)  # the member continues once it is resumed
RUN = "run"  # the attribute of a trial that has the member's id


def check_optuna(python: str) -> None:
    """Raise UserError if the Python of the jobs has no Optuna, or an old one; not if it cannot be run here."""
    try:
        said = process.run(process.program(python, PROBE), timeout_s=ASKING_S)
    except SiteError:  # it may be on the nodes alone; the job says it, too
        return
    match = re.search(r"^(None|(\d+)\.(\d+)\S*)$", said.stdout, re.MULTILINE)
    if said.exit_code or not match:
        return
    if match[1] == "None":
        raise UserError(without_optuna(python))
    if (int(match[2]), int(match[3])) < LEAST:
        raise UserError(without_optuna(python, match[1]))


def without_optuna(python: str, version: str = "") -> str:
    """What is wrong with the Optuna of this Python, '' for none, and how to mend it."""
    least = ".".join(map(str, LEAST))
    return (
        f"the study of the sweep needs Optuna {least} or newer in the Python of its jobs, and {python} has "
        f"{version or 'none'}: install torusrun[optuna] there, as by pip install 'optuna>={least}'"
    )


def begin(run: RunFolder, planned: AttemptPlan) -> AttemptPlan:
    """The plan of an attempt of a member, with the values that its study chose; they are written into its plans.

    The plan of a run without a study is unchanged. Raises UserError if this Python has no Optuna or the values do not
    fit, SiteError if the study cannot be used.
    """
    if planned.plan.chosen_values is None:
        return planned
    with _opened(run) as (study, optuna_study):
        values = {one.key: one.text(value) for one, value in _taken_up(study, optuna_study, run)}
    if planned.plan.chosen_values != values:
        source = f"the study of {run.run_id}"
        first = plan_files.read_first(run, planned.number)
        planned = replace(planned, plan=with_values(planned.plan, values, source))
        plan_files.write_attempt(run.attempt(planned.number), planned)
        plan_files.write_first(run, with_values(first, values, source))
    chosen = ", ".join(f"{key}={text}" for key, text in values.items() if not key.startswith("env."))
    if wrong := [str(misfit) for misfit in misfits(planned.plan.run, planned.plan.site)]:
        raise UserError("\n".join([f"the values that the study chose do not fit: {chosen}", *wrong]))
    print(f"torusrun: the study chose {chosen or 'values of env'}", flush=True)  # which others may not read
    return planned


def ended(run: RunFolder, number: int, end: End, *, wait: bool) -> None:
    """Report the end of attempt `number` to the run's study, if it has one.

    The trial of an attempt that was cut off, or that another one follows without the user, continues. So does the trial
    that a newer attempt has taken up. A problem is printed: the end of the member is what it is.
    """
    if not (end.kept_going or end.followed_by or end.state in CUT_OFF):
        _reported(run, end.state is State.COMPLETED, number)


def over(run: RunFolder, number: int, plan: Plan) -> None:
    """Report that no other attempt of a run follows: its trial has failed, unless its result was reported."""
    _reported(run, False)


def _reported(run: RunFolder, completed: bool, number: int | None = None) -> None:
    if not run.sweep or not SweepFolder(run.sweep).study.exists():
        return
    try:
        with _opened(run) as (study, optuna_study):
            if number is not None and not completed:
                claim.check(run, number)  # within the study's lock: a newer attempt takes up its trial after its claim
            _report(study, optuna_study, run, completed)
    except claim.Superseded:
        return
    except TorusrunError as error:
        say(f"the study does not have the result of {run.run_id}: {error}")


def _report(study: Study, optuna_study: Any, run: RunFolder, completed: bool) -> None:
    from optuna.trial import TrialState

    own = _trials(optuna_study, run)
    if not own or own[-1].state is not TrialState.RUNNING:
        return
    reported = results(run) if completed else {}
    value = reported.get(study.metric)
    if value is not None:
        optuna_study.tell(own[-1].number, value)
        return
    optuna_study.tell(own[-1].number, state=TrialState.FAIL)
    if completed:
        names = ", ".join(reported) or "nothing"
        say(f"{run.run_id} has reported no {study.metric!r} ({names}): its study counts it as failed")


def _taken_up(study: Study, optuna_study: Any, run: RunFolder) -> list[tuple[Searched, Any]]:
    """The values of the run's trial. It is the one that it has, one like it if that has failed, or a new one."""
    from optuna.trial import TrialState, create_trial

    distributions = {one.key: _distribution(one) for one in study.searched}
    if own := _trials(optuna_study, run):
        values = own[-1].params
        if own[-1].state is TrialState.FAIL:
            own_again = {"params": values, "distributions": distributions, "user_attrs": {RUN: run.run_id}}
            optuna_study.add_trial(create_trial(state=TrialState.RUNNING, **own_again))
    else:
        trial = optuna_study.ask(distributions)
        trial.set_user_attr(RUN, run.run_id)
        values = trial.params
    return [(one, values[one.key]) for one in study.searched]


def _trials(optuna_study: Any, run: RunFolder) -> list[Any]:
    """The trials of a member, the newest last."""
    return [trial for trial in optuna_study.get_trials(deepcopy=False) if trial.user_attrs.get(RUN) == run.run_id]


def _distribution(one: Searched) -> Any:
    from optuna import distributions

    if one.choices:
        return distributions.CategoricalDistribution(one.choices)
    if one.whole:
        return distributions.IntDistribution(round(one.low), round(one.high), log=one.log, step=round(one.step or 1))
    return distributions.FloatDistribution(one.low, one.high, log=one.log, step=one.step)


@contextlib.contextmanager
def _opened(run: RunFolder) -> Iterator[tuple[Study, Any]]:
    """The study of a member, and Optuna's, which no other job uses meanwhile."""
    sweep = SweepFolder(run.folder.parent)
    study = sweep.read_study()
    if study is None:
        raise SiteError(f"{sweep.study}: it is missing")
    _check_optuna()
    with lock.held(sweep.study_lock, wait_s=LOCK_S) as mine:
        if mine is False:
            raise SiteError(f"{sweep.study_lock}: another job has held it for {LOCK_S:g} s")
        if mine:
            _mend(sweep.journal)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a sampler is experimental
            try:
                yield study, _study(study, sweep, number_of(run))
            except TorusrunError:
                raise
            except Exception as error:  # whatever a damaged journal makes of it
                raise SiteError(f"{sweep.journal}: Optuna cannot use it: {type(error).__name__}: {error}") from None


def _check_optuna() -> None:
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend  # noqa: F401
    except ImportError:
        raise UserError(without_optuna(sys.executable)) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _study(study: Study, sweep: SweepFolder, number: int) -> Any:
    """Optuna's study; it is made if there is none. `number` is the member's: each draws other numbers at random."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    journal = str(sweep.journal)
    backend = JournalFileBackend(journal, JournalFileSymlinkLock(journal))  # a lock that NFS has, too
    seed = random.Random(f"{study.seed}:{number}").getrandbits(32)
    return optuna.create_study(
        storage=JournalStorage(backend),
        study_name=sweep.sweep_id,
        direction="maximize" if study.larger else "minimize",
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),  # members that run count as poor ones
        load_if_exists=True,
    )


def _mend(journal: Path) -> None:
    """Make the journal, or remove from it the line that a killed job, or a full disk, cut short: Optuna stops there."""
    with explained(f"{journal}: cannot be opened"), open(open_regular(journal, os.O_RDWR | os.O_CREAT), "r+b") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)


def with_values(plan: Plan, values: Mapping[str, str], source: str) -> Plan:
    """The plan with these values by key, which come from `source`. Raises SpecError if one cannot be read."""
    at = yaml.Mark(source, 0, 0, 0, "", 0)
    settings = [KeyValue(key, yaml.ScalarNode("", text, at, at)) for key, text in values.items()]
    run, _ = read_tree(RunSpec, from_value(as_written(plan.run), source), source, settings)
    return replace(plan, run=run, chosen_values=dict(values))
