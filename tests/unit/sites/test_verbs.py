"""init, doctor and sites on this machine, and what they refuse."""

import json
from pathlib import Path

import pytest

from tests.unit.sites.recorded_clusters import RECORDED
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.keys.load import load_site
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import login
from torusrun.orchestrator.schedulers.interface import ClusterQueries
from torusrun.orchestrator.schedulers.local.scheduler import Local
from torusrun.orchestrator.sites.checks import machine, scheduler
from torusrun.orchestrator.sites.checks.check import Check

HERE = ["--scheduler", "local", "--yes"]


def site(text: str) -> Site:
    return read(Site, text, "site.yaml")[0]


def named(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_init_writes_a_site_that_is_found_by_its_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "mine", *HERE]) == 0
    said = capsys.readouterr().out
    path = home / ".config" / "torusrun" / "sites" / "mine.yaml"
    assert path.read_text() in said and f"written: {path}" in said and "mine: " in said
    assert load_site("mine").scheduler == "local"
    assert not [entry for entry in path.parent.iterdir() if entry != path], "nothing half-written is left"


def test_init_writes_a_folder_that_is_the_same_from_everywhere(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine", *HERE, "--runs", "my/runs"]) == 0
    assert load_site("mine").runs == str(tmp_path / "my" / "runs")


def test_init_replaces_a_site_only_on_request(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".config" / "torusrun" / "sites" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("mine alone\n")
    assert main(["init", "mine", *HERE]) == 2
    assert "--force" in capsys.readouterr().err and path.read_text() == "mine alone\n"
    assert main(["init", "mine", *HERE, "--force"]) == 0
    assert load_site("mine").launcher == "spawn"


@pytest.mark.parametrize("name", ["a/b", "../x", "-x", "x.yaml", "a b", ""])
def test_init_refuses_what_names_no_site(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", *HERE, "--", name]) == 2
    assert "Traceback" not in capsys.readouterr().err and not (home / ".config").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--scheduler", "slrum"], "did you mean 'slurm'?"),
        (["--scheduler", "local", "--cluster", "abci"], "this cluster is not known; did you mean 'abci-"),
        (
            ["--scheduler", "local", "--cluster", "abci-v"],
            "its scheduler is gridengine, and the scheduler here is local",
        ),
        (["--scheduler", "local", "--queue", "gpu"], "--queue gpu: there is no queue to choose here; leave it out"),
        (["--scheduler", "local", "--pe", "mpi"], "--pe mpi: there is no parallel environment to choose here"),
    ],
)
def test_init_names_the_option_that_is_wrong(
    option: list[str], message: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "mine", *option, "--yes"]) == 2
    assert message in capsys.readouterr().err and not (home / ".config").exists()


@pytest.mark.parametrize(
    ("programs", "recorded", "says"),
    [
        (["sinfo", "scontrol"], "slurm/cluster/not_configured.txt", "slurm: asking `sinfo --version`: "),
        (["sinfo", "scontrol"], "slurm/squeue_controller_down.txt", "Unable to contact slurm controller"),
        (["pbsnodes", "qstat"], "openpbs/10_server_down.txt", "pbs: asking `qstat -Q -f`: "),
        (["qconf", "qhost"], "gridengine/qstat_down.txt", "gridengine: asking `qconf -sq '*'`: "),
    ],
)
def test_init_writes_no_site_of_a_cluster_whose_scheduler_is_down(
    programs: list[str],
    recorded: str,
    says: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for program in programs:
        script = tmp_path / "bin" / program
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n/bin/cat {RECORDED / recorded} >&2\nexit 1\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert main(["init", "--yes"]) == 3
    said = capsys.readouterr().err
    assert says in said and "use only this machine with --scheduler local" in said
    assert not (home / ".config").exists()


def test_doctor_fails_where_the_scheduler_does_not_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["doctor", "--site", "abci-v", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in told["checks"]}
    assert (told["schema"], told["site"]) == (1, "abci-v") and Path(told["file"]).name == "abci-v.yaml"
    assert checks["scheduler"]["outcome"] == "failed" and checks["scheduler"]["mend"]


def test_doctor_of_a_site_that_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--site", "loacl"]) == 2
    assert "did you mean 'local'" in capsys.readouterr().err


def test_a_runs_folder_that_cannot_be_written(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (check,) = machine.folder_checks(
        site(f"scheduler: local\nlauncher: spawn\nruns: {tmp_path}/file/runs\n"), job=False
    )
    assert check.outcome == "failed" and "runs: FOLDER" in check.mend


def test_a_runs_folder_is_left_as_it_was(home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    for runs in ("mine", "new/runs"):
        made = site(f"scheduler: local\nlauncher: spawn\nruns: {shared}/{runs}\n")
        assert named(list(machine.folder_checks(made, job=False)), "runs folder").outcome == "ok"
    assert [*shared.rglob("*")] == [shared / "mine"], "what a check makes, it removes"


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_a_python_without_torusrun(python: str, home: Path) -> None:
    made = site(f"scheduler: local\nlauncher: spawn\npython: {python}\n")
    check = named(list(machine.program_checks(made, login(made), job=False)), "python")
    assert check.outcome == "failed" and "python: PATH" in check.mend


def test_a_launcher_that_is_not_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for launcher, outcome in (("srun", "failed"), ("mpirun", "warning")):
        made = site(f"scheduler: slurm\nlauncher: {launcher}\n")
        check = machine._launcher(made, login(made))
        assert (check.outcome, "modules" in check.mend) == (outcome, True)


def test_a_site_that_cannot_ask_for_nodes(home: Path) -> None:
    check = scheduler._request(site("scheduler: gridengine\nlauncher: mpirun\nnode: {ranks: 4}\n"))
    assert check.outcome == "failed" and "-pe NAME {ranks}" in check.said
    check = scheduler._request(load_site("abci-v"))
    assert check.outcome == "failed" and "account" in check.said


def test_sites_lists_mine_first_and_what_is_wrong(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / ".config" / "torusrun" / "sites"
    folder.mkdir(parents=True)
    (folder / "slurm.yaml").write_text("scheduler: slurm\nlauncher: srun\nqueue: gpu\n")
    (folder / "broken.yaml").write_text("scheduler: slurm\nlauncher: rsh\n")
    (folder / "gone.yaml").symlink_to(home / "nowhere")
    (folder / "folder.yaml").mkdir()
    assert main(["sites", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["sites"]}
    assert (found["slurm"]["queue"], found["slurm"]["ships"], found["slurm"]["readable"]) == ("gpu", False, True)
    assert not found["broken"]["readable"] and "launcher" in found["broken"]["wrong"]
    assert found["abci-h"]["ships"] and found["abci-h"]["queue"] == "rt_HF"
    assert main(["sites"]) == 0
    said = capsys.readouterr().out
    assert "cannot be read: line 2:11: 'launcher'" in said and "ships with torusrun" in said
    assert "cannot be read: this is a folder" in said
    assert "cannot be read: this is a link to a file that does not exist" in said
    assert main(["doctor", "--site", "gone"]) == 2
    assert "gone.yaml: this is a link to a file that does not exist" in capsys.readouterr().err


class Spooler(Local):
    """A scheduler of one's own, which says nothing of its cluster."""

    name = "spooler"
    cluster = ClusterQueries()


def test_a_scheduler_that_cannot_be_asked_about_its_cluster(home: Path) -> None:
    made = site("scheduler: tests.unit.sites.test_verbs:Spooler\nlauncher: spawn\n")
    checks = list(scheduler.checks(made))
    assert [(check.name, check.outcome) for check in checks] == [("scheduler", "ok"), ("request", "ok")]
