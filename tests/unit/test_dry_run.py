"""What a dry run shows: the same as what submit then does, on every scheduler, with nothing written."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.test_architecture import modules_after
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.cli.dry_run import DryRun, as_json, dry_run, text
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.job.image.contained import contained
from torusrun.orchestrator.run.attempts.submit import first
from torusrun.orchestrator.run.code import freeze
from torusrun.orchestrator.run.plan.plan import Plan, plan

DIGITS = str(Path(__file__).resolve().parents[2] / "examples" / "digits.yaml")
COMMAND = "name: mine\nsite: site.yaml\nnodes: 2\ncommand: [python, train.py, 'two words']\nenv: {GREETING: \"it's\"}\n"
SITES = {
    "slurm": "scheduler: slurm\nlauncher: srun\n",
    "pbs": "scheduler: pbs\nlauncher: mpiexec.hydra\n",
    "gridengine": 'scheduler: gridengine\nlauncher: mpiexec.hydra\nask: ["-pe mpi {ranks}"]\n',
    "local": "scheduler: local\nlauncher: spawn\n",
}
NODE = "node: {ranks: 2, hcas: [mlx5_0, mlx5_1], interface: lo}\n"
HEADINGS = ["Submit command", "Launcher", "Program of every rank", "Environment of rank 0", "Code, ", "Files "]
HEADINGS.append("Job script")


@pytest.fixture
def project(home: Path, monkeypatch: Patch) -> Path:
    """A folder with a run of a command, in which a test stands."""
    folder = home / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "run.yaml").write_text(COMMAND)
    monkeypatch.chdir(folder)
    return folder


def planned(project: Path, scheduler: str, more: str = "", run: str = COMMAND) -> Plan:
    (project / "site.yaml").write_text(SITES[scheduler] + NODE + f"runs: {project.parent}/runs\n" + more)
    (project / "run.yaml").write_text(run if scheduler != "local" else run.replace("nodes: 2\n", ""))
    return plan("run.yaml")


def program(folder: Path, name: str, lines: str) -> Path:
    """A program that tests may call by its name."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
    (folder / name).chmod(0o755)
    return folder / name


@pytest.mark.parametrize("scheduler", SITES)
def test_the_sections_of_a_dry_run_come_in_order_and_nothing_is_written(project: Path, scheduler: str) -> None:
    made = planned(project, scheduler)
    before = sorted(project.parent.rglob("*"))
    said = text(dry_run(made))
    assert sorted(project.parent.rglob("*")) == before
    parts = said.split("\n\n")
    found = [next(i for i, part in enumerate(parts) if part.startswith(heading)) for heading in HEADINGS]
    assert found == sorted(found)
    assert "  GREETING='it'\"'\"'s'\n" in said and "python train.py 'two words'\n" in said
    assert "  2 files" not in said and "  3 files, " in said


@pytest.mark.parametrize(
    ("scheduler", "name", "answer"), [("slurm", "sbatch", "7"), ("pbs", "qsub", "7.here"), ("gridengine", "qsub", "7")]
)
def test_the_submit_command_and_the_script_are_those_of_submit(
    project: Path, monkeypatch: Patch, scheduler: str, name: str, answer: str
) -> None:
    """The submit command notes how it was called, so that the dry run can be held against it."""
    noted = project.parent / "noted"
    program(project.parent / "bin", name, f"printf '%s\\n' {name} \"$@\" > {noted}\necho {answer}")
    monkeypatch.setenv("PATH", f"{project.parent}/bin:{os.environ['PATH']}")
    made = planned(project, scheduler, 'submit_args: ["-A", "a b"]\n')
    shown = dry_run(made)
    run = first(made, project)
    assert run.attempt(1).script.read_bytes() == shown.script.encode()
    assert noted.read_text().splitlines() == shown.submit
    assert f"\n{shown.script}" in text(shown) and text(shown).endswith(shown.script)


@pytest.mark.parametrize("scheduler", ["pbs", "gridengine"])
def test_an_account_that_the_submit_command_names_is_in_no_directive(
    project: Path, capsys: Capsys, scheduler: str
) -> None:
    planned(project, scheduler, 'account: "gaa1"\n')
    assert " -P gaa1\n" in prints(capsys, "submit", "run.yaml", "--dry-run")
    planned(project, scheduler, 'account: "gaa1"\nsubmit_args: [-A, "{account}"]\n')
    said = prints(capsys, "submit", "run.yaml", "--dry-run")
    assert " -A gaa1 " in said and "-P" not in said.split()


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "gridengine"])
def test_hosts_and_addresses_that_are_not_known_are_symbols(project: Path, scheduler: str) -> None:
    shown = dry_run(planned(project, scheduler))
    assert shown.placement.hosts == ["<host 1>", "<host 2>"]
    assert [shown.main.environment[f"MASTER_{each}"] for each in ("ADDR", "PORT")] == [
        "<address of host 1>",
        "<free port>",
    ]
    assert (shown.main.environment["WORLD_SIZE"], shown.main.environment["UCX_NET_DEVICES"]) == ("4", "mlx5_0:1")
    assert "4 ranks on 2 hosts, <host 1> to <host 2>, 2 on each" in text(shown)


def test_a_machine_without_the_clusters_programs_says_what_it_assumes(project: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", str(project))
    made = planned(project, "slurm")
    (project / "site.yaml").write_text((project / "site.yaml").read_text().replace("srun", "mpirun"))
    shown = dry_run(plan("run.yaml"))
    assert made.site.launcher == "srun" and shown.launcher[0] == "mpirun"
    notes = "\n".join(shown.notes)
    assert "sbatch: not found on this machine" in notes and "the launcher's line is for Open MPI 4" in notes
    assert f"Notes\n  {shown.notes[0]}" in text(shown)


def test_a_training_has_no_meeting_point_and_shows_no_token(project: Path) -> None:
    shown = dry_run(planned(project, "slurm", run="name: mine\nsite: site.yaml\nnodes: 2\ntrain: {}\n"))
    assert "MASTER_ADDR" not in shown.main.environment and shown.code is None and shown.main.container is None
    assert shown.main.program.argv[-2:] == ("torusrun.training", str(shown.attempt.config))
    assert "attempts/1/config.json" in shown.files and "code.json" not in shown.files


@pytest.mark.parametrize("stage", [False, True])
def test_the_line_of_the_container_is_the_one_that_a_rank_starts(project: Path, stage: bool) -> None:
    """Without staging it is word for word what the wrapper computes; staged, only the place of the image differs.

    The runtime is on the nodes alone, which refuses nothing.
    """
    command = "/opt/of-the-nodes/bin/apptainer"
    (project / "x.sif").write_bytes(b"an image")
    container = f"container: {{runtime: {command}, bind: ['/tmp:/data:ro']}}\n" + ("stage: $NODE\n" if stage else "")
    shown = dry_run(planned(project, "slurm", container, COMMAND + "image: ./x.sif\n"))
    assert shown.main.container and shown.main.container[:3] == [command, "--quiet", "exec"]
    assert "/tmp:/data:ro" in shown.main.container
    assert any(f"the job is assumed to find {command}" in note for note in shown.notes)
    (role,) = shown.order.roles
    assert role.container
    shown.attempt.ranks.mkdir(parents=True)
    words, given = list(shown.main.program.argv), shown.main.environment
    argv, environment = contained(role.container, words, given, {}, shown.attempt, 0)
    differ = [word for word in shown.main.container if word not in argv]
    assert all(word.startswith("$NODE/torusrun-") for word in differ) and len(differ) == 2 * stage
    assert stage or argv == shown.main.container
    assert environment["APPTAINERENV_RANK"] == "0"
    assert "image.json" in shown.files and "Command that starts it in the container" in text(shown)


REFUSED = {
    "an image that is not there": ("image: ./none.sif\n", "run.yaml:5:8: 'image': there is no "),
    "an image that is not built": ("image: pytorch-cpu\n", "the image 'pytorch-cpu' is not built for this site"),
    "code beyond the limit": ("", "a run copies at most 5 bytes"),
}


@pytest.mark.parametrize("more", REFUSED)
def test_what_submit_refuses_a_dry_run_refuses_in_the_same_words(
    project: Path, capsys: Capsys, monkeypatch: Patch, more: str
) -> None:
    monkeypatch.setattr(freeze, "LIMIT_BYTES", 5)
    planned(project, "local", run=COMMAND)
    with open(project / "run.yaml", "a") as file:
        file.write(REFUSED[more][0])
    assert main(["submit", "run.yaml", "--dry-run"]) == 2
    shown = capsys.readouterr()
    assert shown.err == refuses(capsys, "submit", "run.yaml") and REFUSED[more][1] in shown.err and not shown.out


@pytest.mark.parametrize("wrong", ["a file", "open to all", "below one that is open to all"])
def test_a_folder_of_runs_that_submit_refuses_a_dry_run_refuses_too(project: Path, capsys: Capsys, wrong: str) -> None:
    planned(project, "local")
    runs = project.parent / "runs"
    if wrong == "a file":
        runs.write_text("")
    else:
        runs.mkdir()
        runs.chmod(0o777)
    if wrong.startswith("below"):
        site = project / "site.yaml"
        site.write_text(site.read_text().replace("/runs\n", "/runs/mine\n"))
    before = sorted(project.parent.rglob("*"))
    assert main(["submit", "run.yaml", "--dry-run"]) == 3
    shown = capsys.readouterr()
    assert sorted(project.parent.rglob("*")) == before and not shown.out
    assert main(["submit", "run.yaml"]) == 3
    assert shown.err == capsys.readouterr().err


def test_a_dry_run_as_json(project: Path, capsys: Capsys) -> None:
    shown: DryRun = dry_run(planned(project, "slurm"))
    assert json.loads(json.dumps(as_json(shown)))["code"]["files"] == 3
    said = json.loads(prints(capsys, "submit", "run.yaml", "--dry-run", "--json"))
    assert said["schema"] == 1 and said["submit"][0] == "sbatch" and said["script"].startswith("#!")
    assert said["environment"]["RANK"] == "0" and said["program"]["argv"] == ["python", "train.py", "two words"]


def test_a_dry_run_imports_neither_torch_nor_submitit(home: Path) -> None:
    loaded = modules_after("submit", DIGITS, "--dry-run")
    assert "jinja2" in loaded and not loaded & {"torch", "numpy", "submitit", "rich", "pydantic"}
