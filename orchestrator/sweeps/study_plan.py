"""The plan of the members of a study: the same for all of them, since their values are chosen in their jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.keys.combinations import checked_members, in_words
from torusrun.orchestrator.keys.load import RunSource
from torusrun.orchestrator.keys.study import Study
from torusrun.orchestrator.keys.sweep import SweepKeys
from torusrun.orchestrator.run.plan.phase_groups import stretches
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.sweeps.table import NO_RESULTS
from torusrun.training.recipe.near import did_you_mean
from torusrun.training.reporting.events import NUMBERS

ASKING_S = 60.0
LEAST = (4, 3)  # of Optuna: since then its lock on a journal ends some time after the process that held it was killed
PROBE = "import importlib.util as u, importlib.metadata as m; print(u.find_spec('optuna') and m.version('optuna'))"


def plan_of_members(
    path: RunSource, site: str | None, settings: Sequence[str], sweep: SweepKeys, study: Study, later: bool
) -> Plan:
    """The plan of every member, with the first value of each key.

    Raises UserError if a value or the metric does not fit. Of a long range only the ends are checked: a value between
    them that does not fit ends its member in the job.
    """
    made = []
    for member in checked_members(sweep, study):
        try:
            made.append(plan(path, site=site, settings=[*settings, *member], later=later))
        except UserError as error:
            raise UserError(f"a member with {in_words(member)}:\n{error}") from None
    first = made[0]
    if first.recipe:
        raise UserError("a study cannot use a published recipe, which computes other values from the chosen ones")
    if stretches(first.run):
        raise UserError("a study cannot use a training whose phases need different numbers of nodes")
    known = [name for name in NUMBERS if name not in NO_RESULTS]
    if not first.run.command and study.metric not in known:
        hint = did_you_mean(study.metric, known)
        raise UserError(f"sweep.metric: a training reports no {study.metric!r}{hint} (it has: {', '.join(known)})")
    return replace(first, chosen_values={})


def check_optuna(python: str) -> None:
    """Raise UserError if the Python of the jobs has no Optuna, or an old one; not if it cannot be run here."""
    try:
        said = process.run(process.program(python, PROBE), timeout_s=ASKING_S)
    except SiteError:  # it may be on the nodes alone; the job says it, too
        return
    found = re.search(r"^(None|(\d+)\.(\d+)\S*)$", said.stdout, re.MULTILINE)
    if said.exit_code or not found:
        return
    if found[1] == "None":
        raise UserError(without_optuna(python))
    if (int(found[2]), int(found[3])) < LEAST:
        raise UserError(without_optuna(python, found[1]))


def without_optuna(python: str, version: str = "") -> str:
    """What is wrong with the Optuna of this Python, '' for none, and how to mend it."""
    least = ".".join(map(str, LEAST))
    return (
        f"the study of the sweep needs Optuna {least} or newer in the Python of its jobs, and {python} has "
        f"{version or 'none'}: install torusrun[optuna] there, as by pip install 'optuna>={least}'"
    )
