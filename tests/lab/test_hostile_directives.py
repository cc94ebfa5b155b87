"""Directives with hostile values, read by the real sbatch and qsub: each value arrives whole and adds no option."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tests.unit.hostile import LINES, PRINTABLE
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.script import job_script

from .cluster.folder import give
from .cluster.lab import Done
from .gridengine import GridEngineLab
from .slurm import SlurmLab

TRICKS = [f"a{trick}b" for trick in PRINTABLE if len(trick) < 100]
REQUEST = Request("plain", 1, 1, 1, 0, None, 60.0, None, None, Path("/dev/null"), Path("/dev/null"))
# Lines that would be directives if a value could put one into the script.
LINES_OF_VALUES = {f"V{i}": line for i, line in enumerate(LINES) if line.isascii() and "\0" not in line}
OWN = re.compile(r"^JobId=.*|^ *Comment=.*|\b(SubmitTime|AccrueTime|EligibleTime|StartTime|LastSchedEval)=\S+", re.M)


def script(name: str, request: Request) -> str:
    return job_script(
        Site(name, "mpirun"), request, attempt=Path("/tmp"), entry=["true"], title="hostile",
        environment=LINES_OF_VALUES,
    )  # fmt: skip


def test_sbatch_reads_what_was_written(slurm_lab: SlurmLab) -> None:
    plain = _rest(_held(slurm_lab, replace(REQUEST, extra=("--comment=plain",))))
    for trick in TRICKS:
        shown = _held(slurm_lab, replace(REQUEST, name=trick, extra=(f"--comment={trick}",)))
        assert re.search("^JobId=\\d+ JobName=(.*)$", shown, re.M)[1] == trick
        assert re.search("^ *Comment=(.*) $", shown, re.M)[1] == trick
        assert _rest(shown) == plain, f"{trick!r} has changed what else is asked for"


def test_sbatch_looks_for_the_whole_queue_and_account(slurm_lab: SlurmLab) -> None:
    plain = _options(slurm_lab, replace(REQUEST, queue="main", account="lab"))
    assert plain["partition"] == "main" and plain["account"] == "lab"
    for trick in TRICKS:
        shown = _options(slurm_lab, replace(REQUEST, queue=trick, account=trick))
        assert shown == {**plain, "partition": trick, "account": trick}


def _rest(shown: str) -> str:
    return OWN.sub("", shown)


def _sbatch(lab: SlurmLab, request: Request, *words: str) -> Done:
    give(lab.settings, "hostile.sh", script("slurm", replace(request, extra=("--hold", *request.extra))))
    return lab.run_as_user(["sbatch", *words, "hostile.sh"])


def _options(lab: SlurmLab, request: Request) -> dict[str, str]:
    """Every option that sbatch has understood, whether or not Slurm would accept the job."""
    said = _sbatch(lab, request, "--test-only", "--verbose").stderr.partition("end of defined options")[0]
    return dict(re.findall("^sbatch: ([a-z-]+) *: (.*)$", said, re.M))


def _held(lab: SlurmLab, request: Request) -> str:
    """Slurm's description of a held job, which is then cancelled."""
    said = _sbatch(lab, request, "--parsable")
    assert said.returncode == 0, said.stderr
    shown = lab.run_as_user(["scontrol", "show", "job", said.stdout.strip()], check=True).stdout
    lab.run_as_user(["scancel", said.stdout.strip()], check=True)
    return shown


def test_qsub_reads_what_was_written(gridengine_lab: GridEngineLab) -> None:
    plain, taken = _verified(gridengine_lab, REQUEST), 0
    assert "hard_queue_list" not in plain, "a line of a value was read as a directive"
    for trick in TRICKS:
        try:
            shown = _verified(gridengine_lab, replace(REQUEST, queue=trick, account=trick))
        except UserError:  # tests/unit/test_gridengine.py tests these
            continue
        taken += 1
        assert shown == {**plain, "hard_queue_list": trick, "project": trick, "script_size": shown["script_size"]}
    assert taken > len(TRICKS) / 2


def test_qsub_stores_two_variables_of_a_login(gridengine_lab: GridEngineLab) -> None:
    stored = _verified(gridengine_lab, REQUEST, {"CLOUD_KEY": "secret"})["env_list"]
    assert "secret" not in stored and set(re.findall(r"(\w+)=", stored)) == {"PATH", "LD_LIBRARY_PATH"}


def _verified(lab: GridEngineLab, request: Request, environment: dict[str, str] | None = None) -> dict[str, str]:
    """The job that qsub would submit, in its own words."""
    text = script("gridengine", request)
    give(lab.settings, "hostile.sh", text)
    command = schedulers.get("gridengine").submit_command(lab.home / "hostile.sh", request)
    said = lab.run_as_user([command[0], "-verify", *command[1:]], env=environment, check=True).stdout
    return dict(re.findall(r"^(\w[\w ]*): +(.*?) *$", said.replace(text, "\n"), re.M))
