"""Verbs of run files whose site has a login node: what is asked there, and which runs a word can name there."""

import json
import os
import pwd
import sys
from pathlib import Path

import pytest

from tests.unit.far import HERE
from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli import api
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.remote import remote_runs
from torusrun.orchestrator.remote.host import LoginHost
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.bad_nodes import memory
from torusrun.orchestrator.run.code import freeze
from torusrun.orchestrator.run.folder.records import End

SITE = f"""host: {HERE.address}
connect: fabric
python: {sys.executable}
scheduler: local
launcher: spawn
node: {{ranks: 1, interface: lo}}
umask: 022
env: {{KEY: very-secret}}
"""
OTHER = LoginHost("nobody@elsewhere")


@pytest.fixture
def run_file(home: Path, far: Path) -> Path:
    """A run file for the other side, with code, in a folder whose name no shell would take."""
    folder = home / 'it\'s "my" folder'
    folder.mkdir()
    (folder / "site.yaml").write_text(SITE)
    (folder / "program.sh").write_text("echo ran\n")
    (folder / "my run.yaml").write_text("name: asked\nsite: ./site.yaml\ncommand: [sh, program.sh]\n")
    return folder / "my run.yaml"


def test_a_dry_run_is_made_over_there_and_names_the_files_of_here(
    run_file: Path, far: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    assert main(["submit", str(run_file), "--dry-run", "--set", 'env.A=it\'s "so"\u00e9']) == 0
    said = capsys.readouterr()
    assert f"Files in the run folder, {far}/torusrun/runs/asked-" in said.out
    assert f"Code, copied from {run_file.parent}\n" in said.out and "A=" in said.out
    assert "sent-" not in said.out + said.err
    assert not (far / "torusrun").exists() and not remote_runs.runs(), "nothing is submitted"
    assert not list((far / ".cache/torusrun").glob("sent-*")), "the files of the request are removed"
    monkeypatch.setattr(freeze, "LIMIT_BYTES", 1)
    assert "a run copies at most 1 byte" in refuses(capsys, "submit", str(run_file), "--dry-run", "--quiet")


def test_where_is_answered_over_there_without_the_code(
    run_file: Path, far: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(freeze, "LIMIT_BYTES", 1)
    (place,) = json.loads(prints(capsys, "where", str(run_file), "--json", "--set", "time=2h"))["places"]
    assert (place["site"], place["outcome"]) == (str(run_file.with_name("site.yaml")), "now")
    assert not (far / "torusrun").exists() and not remote_runs.runs(), "nothing is submitted"
    never = ["where", str(run_file), "--json", "--set", "image=/nowhere/image.sif"]
    assert main(never) == 2
    (place,) = json.loads(capsys.readouterr().out)["places"]
    assert place["outcome"] == "never" and "/nowhere/image.sif" in place["why"], place


@pytest.mark.needs("ssh-keygen")
def test_the_lines_for_ssh_have_the_user_of_the_login_node(
    home: Path, far: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    remote_runs.keep(Known("far-1", HERE, "site", 1000.0))
    monkeypatch.setenv("LOGNAME", "me-on-the-laptop")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    said = prints(capsys, "shell", "far-1", "--rank", "3", "--proxy")
    assert "ProxyCommand torusrun shell far-1 --rank 3 --proxy\n" in said
    assert f"User {pwd.getpwuid(os.getuid()).pw_name}\n" in said and f"IdentityFile {home}/" in said


def test_a_site_is_made_and_examined_on_its_login_node(home: Path, far: Path, capsys: Capsys) -> None:
    assert main(["init", "mine", "--host", HERE.address, "--scheduler", "local", "--yes"]) in (0, 3)
    said = capsys.readouterr().out
    file = home / ".config/torusrun/sites/mine.yaml"
    assert f"\nhost: {HERE.address}\n" in file.read_text() and f"written: {file}" in said
    assert f"{far}/torusrun/runs" in said, "its checks are of the other machine"
    assert not list(far.rglob("mine.yaml")), "nothing is kept there"
    assert main(["doctor", "--site", "mine", "--json"]) in (0, 3)
    assert {"runs folder", "python"} <= {check["name"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert main(["init", "other", "--host", "a b", "--yes"]) == 2 and "--host: 'a b'" in capsys.readouterr().err


def test_a_run_without_a_file_is_queried_on_the_login_node(
    run_file: Path, far: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(run_file.parent)
    typed = ["run", "--site", "./site.yaml", "--time", "90s"]
    said = prints(capsys, *typed, "--dry-run", "--", "sh", "program.sh", "a b")
    assert f"Code, copied from {run_file.parent}\n" in said and "sh program.sh 'a b'" in said
    assert main([*typed, "--wait", "--", "sh", "program.sh"]) == 0
    assert (next((far / "torusrun/runs").iterdir()) / "code" / "program.sh").exists()


def test_a_mistake_that_is_found_over_there_is_reported_with_the_path_of_here(run_file: Path, capsys: Capsys) -> None:
    image = ["--set", "image=/nowhere/image.sif"]
    for verb in (["submit", str(run_file), "--dry-run", *image], ["submit", str(run_file), *image]):
        assert main(verb) in (2, 3)
        said = capsys.readouterr()
        assert "/nowhere/image.sif" in said.err and "sent-" not in said.err and not said.out


def test_a_submission_without_an_answer_over_there_names_the_run(run_file: Path, far: Path, capsys: Capsys) -> None:
    said = (Path(__file__).parent / "recorded/slurm/sbatch_silent.txt").read_text().partition("[stderr]\n")[2]
    (far / "bin").mkdir()
    (far / "bin/sbatch").write_text(f"#!/bin/sh\necho '{said}' >&2; exit 1\n")
    (far / "bin/sbatch").chmod(0o755)
    (far / ".profile").write_text("PATH=$HOME/bin:$PATH\n")
    (run_file.parent / "site.yaml").write_text(SITE.replace("local", "slurm").replace("spawn", "srun"))
    assert main(["submit", str(run_file)]) == 3
    written, (run,) = capsys.readouterr(), remote_runs.runs()
    assert written.out == f"{run.run}\n" and (far / "torusrun/runs" / run.run).is_dir()
    assert "timed out" in written.err and written.err.count(f"`torusrun status {run.run}`") == 1


def test_runs_that_another_one_waits_for_are_on_the_same_login_node(home: Path) -> None:
    make(write_specs(home), DONE)
    for name, host in (("far-1", HERE), ("else-1", OTHER)):
        remote_runs.keep(Known(name, host, "site", 1000.0))
    assert remote_runs.on(HERE, "far") == "far-1" and remote_runs.on(HERE, "made-there-by-hand") == "made-there-by-hand"
    for word in ("else", "last"):
        with pytest.raises(UserError, match=f"'{word}' is no run of {HERE.address}"):
            remote_runs.on(HERE, word)


def test_runs_on_a_login_node_that_a_pattern_selects_are_shown_first(home: Path, far: Path, capsys: Capsys) -> None:
    for name in ("far-1", "far-2"):
        remote_runs.keep(Known(name, HERE, "site", 1000.0))
    assert "this would cancel 2 runs: far-1, far-2; add --yes" in refuses(capsys, "cancel", "far-*")
    here = make(write_specs(home), End(State.COMPLETED, ""))
    assert main(["rm", "far-1"]) == 2 and "add --yes to confirm" in capsys.readouterr().err
    assert main(["rm", "*", "--yes"]) == 2, "they are in two places"
    assert f"these runs are on {HERE.address}, this machine" in capsys.readouterr().err and here.folder.exists()


def test_python_has_the_same_functions(run_file: Path, home: Path, far: Path, capsys: Capsys) -> None:
    run = api.submit(run_file, settings=['--env=A=it\'s "so"', 'command=[sh, -c, "echo $A; test -e ../../../enough"]'])
    assert run.wait(120).state is State.FAILED and run.status().state is State.FAILED
    assert run == api.open_run("last") and run.metrics() == []
    (far / "torusrun/enough").touch()
    assert run.resume(nodes=1) is None and run.wait(120).state is State.COMPLETED
    there = run.account()
    assert [(one.attempt, one.state) for one in there.attempts] == [(1, State.FAILED), (2, State.COMPLETED)]
    assert 0 < there.total_s == pytest.approx(sum(there.seconds.values()))
    log = run.collect(home / "out") / "attempts/1/logs/rank-0000.log"
    assert log.read_text() == 'it\'s "so"\n'
    only = run.collect(home / "some", only="code/site.yaml,rank-0000.log")
    files = {str(path.relative_to(only)) for path in only.rglob("*") if path.is_file()}
    assert files == {"code/site.yaml", "attempts/1/logs/rank-0000.log", "attempts/2/logs/rank-0000.log"}
    assert main(["collect", run.id, str(home / "one"), "--only", "attempts/2/logs/rank-0000.log"]) == 0
    assert (home / "one/attempts/2/logs/rank-0000.log").read_bytes() == log.read_bytes()
    assert main(["collect", run.id, str(home / "two"), "--only", "attempts/3"]) == 2
    assert "has no file attempts/3" in capsys.readouterr().err and not list(home.glob(".torusrun-*"))
    assert not list((far / "torusrun/runs").glob(".torusrun-*")), "no copy is left over there"
    for folder in (far / "torusrun/runs" / run.id, home / "out"):
        secret = [path for path in folder.rglob("*") if path.is_file() and "very-secret" in path.read_text()]
        assert folder / "code/site.yaml" in secret and {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    page = run.report(home / "page.html").read_text()
    assert page.startswith("<!doctype html>") and "COMPLETED" in page and "very-secret" not in page
    for call, why in (
        (run.resume, "is COMPLETED"),
        (run.cancel, "COMPLETED"),
        (run.checkpoint, "copies its folder here"),
        (lambda: run.export(home / "curves"), "has recorded no steps"),
    ):
        with pytest.raises(UserError, match=why):
            call()
    with pytest.raises(UserError, match="--dry-run`, which runs there"):
        api.dry_run(run_file)
    with pytest.raises(UserError, match="leave out --after"):
        api.submit(run_file, held="last", after=["last"])


def test_a_run_is_submitted_again_on_the_login_node(run_file: Path, far: Path, capsys: Capsys) -> None:
    run = api.submit(run_file)
    run.wait(120)
    (run_file.parent / "program.sh").write_text("echo edited since\n")
    again = api.open_run(prints(capsys, "reproduce", run.id).strip())
    assert again.wait(120).state is State.COMPLETED and again == api.open_run("last") and again.id.startswith("asked-")
    assert (far / "torusrun/runs" / again.id / "code/program.sh").read_text() == "echo ran\n"
    assert again.provenance()["reproduces"] == run.id
    assert f"{run.id}: nothing can be compared" in prints(capsys, "show", again.id)
    assert main(["reproduce", run.id, "--compare", again.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == [run.id, again.id]


def test_a_sweep_is_submitted_followed_and_resumed_on_the_login_node(run_file: Path, far: Path, capsys: Capsys) -> None:
    (run_file.parent / "program.sh").write_text('test "$N" = 1 || test -e ../../../../enough\n')
    assert main(["submit", str(run_file), "--sweep", "env.N=1,2", "--dry-run"]) == 0
    assert "2 members" in capsys.readouterr().out and not remote_runs.runs()
    assert main(["submit", str(run_file), "--sweep", "env.N=1,2", "--wait"]) == 1
    sweep = capsys.readouterr().out.split()[0]
    assert [run.run for run in remote_runs.runs()] == [f"{sweep}.0", f"{sweep}.1"]
    folder = far / "torusrun/runs" / sweep
    assert (folder / f"{sweep}.1/code/program.sh").exists()
    assert "2 members: 1 FAILED, 1 COMPLETED" in prints(capsys, "status")
    rows = json.loads(prints(capsys, "status", sweep, "--json"))["members"]
    assert [(row["settings"], row["state"]) for row in rows] == [
        ({"env.N": "1"}, "COMPLETED"),
        ({"env.N": "2"}, "FAILED"),
    ]
    assert f"{sweep!r} is a sweep: name one of its members" in refuses(capsys, "logs", sweep)
    (far / "torusrun/enough").touch()
    assert f"1 member of {sweep} resumed: {sweep}.1\n" in prints(capsys, "resume", sweep[:-1], "--wait")
    assert main(["collect", sweep, str(run_file.parent / "members")]) == 0
    assert {path.name for path in (run_file.parent / "members").iterdir()} == {f"{sweep}.0", f"{sweep}.1"}
    assert not [*far.glob(".cache/torusrun/sent-*")], "the run has the copy of its code"
    assert "none of which is waiting or running" in refuses(capsys, "cancel", sweep)
    there = api.open_sweep("last")
    assert [view.state for view in there.wait()] == [State.COMPLETED] * 2
    assert there.settings() == [{"env.N": "1"}, {"env.N": "2"}]
    with pytest.raises(UserError, match="nothing to resume"):
        there.resume()


def test_a_sweep_whose_members_have_other_code_is_refused(run_file: Path, capsys: Capsys) -> None:
    assert main(["submit", str(run_file), "--sweep", "code=.,none"]) == 2
    assert "all members of a sweep have the same code" in capsys.readouterr().err and not remote_runs.runs()


def test_verbs_that_go_through_no_login_node_say_so(run_file: Path, capsys: Capsys) -> None:
    site = ["--site", str(run_file.parent / "site.yaml")]
    for words in (["image", "ls", *site], ["image", "build", "x", *site], ["calibrate", str(run_file)]):
        run_file.write_text("name: asked\nsite: ./site.yaml\ntrain: {}\n")
        assert main(words) == 2
        assert f"through {HERE.address}, and `torusrun {words[0]}" in capsys.readouterr().err


def test_an_image_is_checked_on_the_login_node(run_file: Path, capsys: Capsys) -> None:
    assert "the run has no image" in prints(capsys, "plan", str(run_file), "--check")
    assert main(["plan", str(run_file), "--check", "--set", "image=/nowhere/image.sif"]) in (2, 3)
    assert "/nowhere/image.sif" in capsys.readouterr().err


def test_the_memory_of_bad_nodes_is_on_the_login_node(run_file: Path, far: Path, capsys: Capsys) -> None:
    site = run_file.parent / "site.yaml"
    site.write_text(SITE + "forget_bad_nodes: 2h\n")
    assert main(["nodes", "add", "n[3-4]", "--site", str(site), "--reason", 'it\'s "slow"']) == 0
    assert (far / ".local/state/torusrun/bad_nodes.jsonl").exists() and not memory.events()
    assert main(["nodes", "forgive", "n4", "--site", str(site)]) == 0
    assert capsys.readouterr().out == "left out of the next requests: n3, n4\nforgiven: n4 (site)\n"
    (host,) = json.loads(prints(capsys, "nodes", "--site", str(site), "--json"))["nodes"]
    assert (host["host"], host["reason"], host["site"]) == ("n3", 'it\'s "slow"', "site")
    assert round(host["until_s"] - host["last_s"]) == 7200, "the rules are those of the site here"
    assert "n4 was not blamed" in refuses(capsys, "nodes", "forgive", "n4", "--site", str(site))
    assert main(["submit", str(run_file)]) == 0
    assert "torusrun: bad, but still requested: n3" in capsys.readouterr().err
