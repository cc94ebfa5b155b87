"""PBS's commands and directives: what a request becomes, and what qsub prints."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.pbs.scheduler import KEPT, OWN_COMMANDS, PBS

REQUEST = Request("digits-1", 4, 2, 3, 2, 3 * 2**30, 90.0, "rt_HF", "gag1", Path("/r/out"), Path("/r/err"))


@pytest.mark.parametrize(
    ("printed", "job"),
    [
        ("1.pbs1\n", "1.pbs1"), ("27[].pbs1\n", "27[].pbs1"), ("2.5\nbalance 17.3\n12.pbs1.org\n", "12.pbs1.org"),
        ("12.10.0.0.1\nallocation ok\n", "12.10.0.0.1"),
    ],
)  # fmt: skip
def test_the_id_of_a_submitted_job(printed: str, job: str) -> None:
    assert PBS().job_id(printed) == job


@pytest.mark.parametrize("printed", ["", "qsub: queued", "job 12"])
def test_without_an_id_there_is_an_error(printed: str) -> None:
    with pytest.raises(SiteError, match="did not print a job id"):
        PBS().job_id(printed)


def test_the_directives() -> None:
    request = replace(REQUEST, after=("1.s", "2.s"), after_any=("3.s",), array=20, parallel=5, extra=("-m e",))
    assert PBS().directives(request) == [
        f"#PBS {option}" for option in (
            "-N digits-1", "-l select=4:ncpus=6:mpiprocs=2:ngpus=2:mem=3072mb", "-l place=scatter",
            "-l walltime=00:01:30", "-j oe", "-k oe", "-r y", "-q rt_HF", "-P gag1",
            "-W depend=afterok:1.s:2.s,afterany:3.s", "-J 0-19%5", "-m e",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "is_kept"), [("digits-1.1.o17", False), ("digits-1.1.o17.3", False), ("run.out", True)]
)
def test_the_file_that_pbs_keeps_is_removed_and_no_other(name: str, is_kept: bool, tmp_path: Path) -> None:
    """A job that keeps going runs the scripts of its attempts with its own output, which is a file of the run."""
    output = tmp_path / name
    with output.open("w") as out:
        done = subprocess.run(
            ["bash", "-c", KEPT], stdout=out, env={"PBS_JOBNAME": "digits-1.1"}, timeout=10, check=False
        )
    assert (done.returncode, output.exists()) == (0, is_kept)


def test_a_site_asks_in_its_own_words() -> None:
    lines = PBS().directives(replace(REQUEST, ask=("-l select=4:mpiprocs=8",), account="a b", time_s=360000))
    assert "#PBS -l select=4:mpiprocs=8" in lines and not any("ncpus" in line or "scatter" in line for line in lines)
    assert '#PBS -P "a b"' in lines and "#PBS -l walltime=100:00:00" in lines


def test_a_site_says_itself_how_chunks_are_placed_and_of_which_type_its_gpus_are() -> None:
    lines = PBS().directives(replace(REQUEST, extra=("-l place=scatter:excl",), gpu_type="v100"))
    assert [line for line in lines if "place=" in line] == ["#PBS -l place=scatter:excl"], "PBS refuses a second one"
    assert "#PBS -l select=4:ncpus=6:mpiprocs=2:ngpus=2:gpu_type=v100:mem=3072mb" in lines


def test_quotes_keep_a_value_together() -> None:
    lines = PBS().directives(replace(REQUEST, queue='a" -l evil=1 "b', account="it's #1"))
    assert """#PBS -q 'a" -l evil=1 "b'""" in lines and '#PBS -P "it\'s #1"' in lines


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": "a\\"}, "'queue': 'a\\\\' holds a backslash"),
        ({"account": """a"b'c"""}, "both kinds of quotes"),
        ({"queue": "-x"}, "begins with '-'"),
        ({"name": "a\n#PBS -q x"}, "a directive is one line"),
        ({"account": "a" * 2100}, "may have 2000 bytes"),
        ({"extra": ("-m e \\",)}, "joins a directive that ends with a backslash with the next line"),
    ],
)
def test_a_value_that_a_directive_cannot_carry_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        PBS().directives(replace(REQUEST, **changes))


def test_a_job_is_not_run_again_but_the_tasks_of_an_array_have_to_be() -> None:
    assert "#PBS -r n" in PBS().directives(REQUEST), "a rerun would run under the same attempt"
    assert "#PBS -r y" in PBS().directives(replace(REQUEST, array=2)), "qsub refuses arrays that are not rerunable"


def test_the_hosts_inside_a_job(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("hnode002\nhnode002\nhnode001\nhnode001\n")
    assert PBS().hosts({"PBS_NODEFILE": str(nodes)}, "x") == ["hnode002", "hnode001"]
    nodes.write_text("")
    for environment in ({}, {"PBS_NODEFILE": str(nodes)}, {"PBS_NODEFILE": str(tmp_path / "none")}):
        with pytest.raises(SiteError):
            PBS().hosts(environment, "x")


def test_a_job_finds_pbs_own_commands_by_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pbs_tmrsh").touch(0o755)
    (tmp_path / "pbs.conf").write_text(f"PBS_EXEC={tmp_path}\n")
    environment = {"PATH": "/usr/bin:/bin", "PBS_CONF_FILE": str(tmp_path / "pbs.conf")}
    script = ["bash", "-ec", f"{OWN_COMMANDS}; command -v pbs_tmrsh; echo $PATH"]
    said = process.run(script, timeout_s=10, environment=environment).stdout.split()
    assert said == [str(tmp_path / "bin/pbs_tmrsh"), f"/usr/bin:/bin:{tmp_path}/bin"], "an MPI's mpiexec comes first"
    environment["PATH"] += f":{tmp_path}/bin"
    assert process.run(script, timeout_s=10, environment=environment).stdout.split() == said, "it is added once"


def test_a_thousand_jobs_cost_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"{n}.pbs1" for n in range(1000)]
    asked: list[list[str]] = []

    def run(argv: list[str], *, timeout_s: float) -> Finished:
        asked.append(argv)
        return Finished(tuple(argv), 0, "".join(f"Job Id: {job}\n    job_state = R\n\n" for job in argv[4:]), "")

    monkeypatch.setattr(process, "run", run)
    assert {status.state for status in client.Client(PBS(), 10).poll(ids).values()} == {State.RUNNING}
    assert asked == [["qstat", "-f", "-w", "-E", *ids]], "-E asks for all that are named over one connection"
