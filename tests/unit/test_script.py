"""Job scripts: golden text for every scheduler, and values that try to be commands."""

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import jinja2
import pytest

from tests.unit.golden_text import assert_golden, differences
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.shipped import ROOT, shipped
from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.base.templates import render, word
from torusrun.orchestrator.keys.read import read_value
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.run.attempts import script as scripts
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import request
from torusrun.orchestrator.run.plan.plan import Plan, plan

GOLDEN = Path(__file__).parent / "golden"
FOLDER, PYTHON = Path("/shared/runs/digits-1"), "/opt/env/bin/python"
WHOLE, TITLE = "gridengine", "\n# torusrun "  # above it are the directives, below what all schedulers share
SITES = {
    "local": "scheduler: local\nlauncher: spawn\nnode: {ranks: 4, interface: lo}\n",
    "slurm": """scheduler: slurm
launcher: srun
queue: gpu
account: group 1
node: {ranks: 4, gpus: 4, interface: ib0}
environment: {modules: [gcc/12.2, "openmpi/4.1"]}
env: {NCCL_IB_HCA: "mlx5_0,mlx5_1"}
request: {cpus_per_rank: 5, memory: 60GiB, options: [--exclusive, "--comment=a \\"b\\" c"]}
""",
    "pbs": """scheduler: pbs
launcher: mpirun
queue: rt_HF
account: group 1
node: {ranks: 4, gpus: 4}
environment: {modules: [hpcx/2.20]}
request: {cpus_per_rank: 5, memory: 60GiB, options: ["-m e"]}
""",
    "gridengine": """scheduler: gridengine
launcher: mpirun
queue: gpu.q@@v100
account: group 1
ask: ["-pe mpi {ranks}", "-l gpu={gpus}"]
node: {ranks: 4, gpus: 4, interface: ib0}
environment: {modules: [gcc/12.2, "openmpi/4.1"]}
env: {MOTTO: "one\\n#$ -q evil.q"}
request: {cpus_per_rank: 5, memory: 60GiB, options: ["-ac weight=heavy", -m n]}
""",
}


@pytest.fixture(autouse=True)
def no_path_of_the_developers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


def planned(tmp_path: Path, site: str, run: str = "nodes: 1\ntrain: {}\n") -> Plan:
    (tmp_path / "site.yaml").write_text(f"{site}python: {PYTHON}\nruns: /shared/runs\n")
    (tmp_path / "run.yaml").write_text(f"name: digits\nsite: site.yaml\n{run}")
    made = plan(tmp_path / "run.yaml")
    return Plan("digits-1", made.run, made.site, FOLDER, made.python)


KEEPS = "nodes: 1\nkeep_going: {attempts: 9}\ntrain: {}\n"


def script(made: Plan) -> str:
    return scripts.script(AttemptPlan(1, made), RunFolder(made.folder).attempt(1)).replace(str(ROOT), "/opt/torusrun")


def as_kept(text: str, folder: Path) -> str:
    """A script's lines above the title, and how those below differ from the script that is kept whole."""
    (head, _, body), whole = text.partition(TITLE), script(planned(folder, SITES[WHOLE]))
    return f"{head}\n{differences(body, whole.partition(TITLE)[2])}"


@pytest.mark.parametrize("name", SITES)
def test_a_script_equals_its_golden_file(name: str, tmp_path: Path) -> None:
    text = script(planned(tmp_path, SITES[name]))
    if name == WHOLE:
        assert_golden(GOLDEN / f"{name}.sh", text)
    else:
        assert_golden(GOLDEN / f"{name}.diff", as_kept(text, tmp_path))
    assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=300).returncode == 0


@pytest.mark.parametrize("name", ["abci-v", "abci-a", "abci-h", "tsubame4", "slurm-v100"])
def test_a_shipped_profile_asks_as_its_site_wants(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"name: digits\nsite: {name}\nnodes: 4\naccount: gaa50000\ntrain: {{}}\n")
    made = plan(tmp_path / "run.yaml")
    made = Plan("digits-1", made.run, replace(made.site, python=PYTHON), FOLDER, PYTHON)
    attempt = RunFolder(made.folder).attempt(1)
    submit = schedulers.get(made.site.scheduler).submit_command(attempt.script, request(AttemptPlan(1, made), attempt))
    assert_golden(GOLDEN / f"{name}.diff", f"# {shlex.join(submit)}\n{as_kept(script(made), tmp_path)}")


HOSTILE = ["$(touch pwned)", "`touch pwned`", "a'b\"c", "; touch pwned #", "a\nb", "\\", "${HOME}", "*", "", "é\u2028"]


@pytest.mark.parametrize(
    "value", [*HOSTILE, "\r\n\t\x0b\x0c\x1b[2J", "a\n#$ -q evil.q", "'\\n'\n", "\x7f\x85あ\n\u2029", "é" * 99 + "\n"]
)
def test_a_value_is_one_word_on_one_line(value: str) -> None:
    written = word(value)
    assert len(written.splitlines()) == 1 and "\n" not in written
    for locale in ("C", "C.UTF-8"):
        said = subprocess.run(
            ["bash", "-c", f"printf %s {written}"], capture_output=True, timeout=300, env={"LC_ALL": locale}
        )
        assert said.stdout.decode() == value


def test_a_value_that_a_template_is_not_given_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("job/script.sh.j2")


def test_every_template_is_used_by_a_golden_file() -> None:
    used = {f"{name}.sh.j2" for name in ("script", "submitit_body", "submitit_pbs", "submitit_gridengine")}
    assert {path.name for path in (shipped("templates") / "job").iterdir()} == used


@pytest.mark.parametrize("env", [{}, {"attempt": "/x", "record_end": "x", "PATH": ""}], ids=["plain", "hostile"])
def test_a_script_that_dies_early_records_its_end(env: dict[str, str], tmp_path: Path) -> None:
    """Whatever variables the run has: those of the script have names of their own."""
    made = planned(tmp_path, SITES["local"])
    made = replace(made, run=replace(made.run, env=env))
    run = RunFolder(tmp_path)
    run.attempt(1).folder.mkdir(parents=True)
    made = Plan(made.run_id, made.run, made.site, tmp_path, "/no/such/python")
    text = scripts.script(AttemptPlan(1, made), run.attempt(1))
    assert subprocess.run(["bash"], input=text, text=True, capture_output=True, timeout=300).returncode == 127
    assert "exit code 127 before it recorded an end" in run.attempt(1).end.read_text()


def test_a_supervisor_that_is_killed_has_its_signal_for_a_cause(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nkill -KILL $$\n")
    (tmp_path / "python").chmod(0o700)
    made = replace(planned(tmp_path, SITES["local"]), folder=tmp_path, python=str(tmp_path / "python"))
    attempt = RunFolder(tmp_path).attempt(1)
    attempt.folder.mkdir(parents=True)
    subprocess.run(["bash"], input=scripts.script(AttemptPlan(1, made), attempt), text=True, timeout=300)
    end = End.read(attempt.end)
    assert end and end.cause is Cause.KILLED and not end.certain
    assert "was killed by SIGKILL before it recorded" in end.reason


@pytest.mark.parametrize(
    ("site", "told"),
    [
        ('setup: [\'test -z "$not_set"\', "X=1", "test $X = 1"]', "the supervisor of the attempt ended"),
        ('setup: ["true", \'(exit 3) # "a\'\'b"\', "touch never"]', "`(exit 3) # \"a'b\"` ended with exit code 3 on "),
        ("environment: {modules: [there, broken/1]}", "`module load broken/1` ended with exit code 1 on "),
        ("environment: {modules: [there], purge: true}", "`module purge` ended with exit code 1 on "),
    ],
)  # fmt: skip
def test_a_step_before_the_entry_that_fails_is_named(site: str, told: str, tmp_path: Path) -> None:
    """By a real shell; the function `module` reads a variable that is not set, and knows one module."""
    made = planned(tmp_path, SITES["local"] + site + "\n")
    run = RunFolder(tmp_path)
    run.attempt(1).folder.mkdir(parents=True)
    made = Plan(made.run_id, made.run, made.site, tmp_path, "/no/such/python")
    text = scripts.script(AttemptPlan(1, made), run.attempt(1))
    module = 'module() { : "$LOADEDMODULES_NOT_SET"; [[ "$1 $2" == "load there" ]]; }; export -f module\n'
    said = subprocess.run(["bash"], input=module + text, text=True, capture_output=True, timeout=300)
    end = json.loads(run.attempt(1).end.read_text())
    assert end["cause"] == ("unknown" if "supervisor" in told else "configuration")
    assert end["reason"].startswith(told) and said.returncode == end["exit_code"], (end, said.stderr)
    assert not (run.attempt(1).folder / "never").exists()


@pytest.mark.parametrize("began", [False, True])
def test_a_step_that_fails_before_a_later_attempt_is_handed_to_the_entry(began: bool, tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    (tmp_path / "python").chmod(0o700)
    made = planned(tmp_path, SITES["slurm"].partition("environment")[0] + "setup: [(exit 3)]\n", KEEPS)
    made = replace(made, folder=tmp_path, python=str(tmp_path / "python"))
    attempt = RunFolder(tmp_path).attempt(1)
    attempt.folder.mkdir(parents=True)
    if began:
        attempt.end.write_text("{}")
    subprocess.run(["bash"], input=scripts.script(AttemptPlan(1, made), attempt), text=True, timeout=300)
    assert (tmp_path / "words").exists() == began
    if began:
        assert (tmp_path / "words").read_text().splitlines()[-3:] == [str(attempt.folder), "`(exit 3)`", "3"]
    else:
        end = End.read(attempt.end)
        assert end and end.cause is Cause.CONFIGURATION and end.reason.endswith("see jobs.err")


@pytest.mark.parametrize("name", ["pbs", "gridengine"])
def test_a_job_whose_folder_is_not_on_the_node_says_so_in_the_home_folder(name: str, tmp_path: Path) -> None:
    text = script(planned(tmp_path, SITES[name]))
    env = {**os.environ, "HOME": str(tmp_path)}
    said = subprocess.run(["bash"], input=text, text=True, capture_output=True, timeout=300, env=env)
    assert said.returncode == 1
    assert "/shared/runs/digits-1/attempts/1 is not there" in (tmp_path / "torusrun-errors.log").read_text()


@pytest.mark.parametrize("more", ["", "environment: {purge: true}\nsetup: ['ulimit -n 65536']\n"])
def test_a_job_reads_the_site_back_as_it_was(more: str, tmp_path: Path) -> None:
    made = planned(tmp_path, SITES["local"] + more)
    assert read_value(Site, json.loads(json.dumps(as_written(made.site))), "plan.json") == made.site
