"""No verb runs what lies in the working directory: a module with a library's name, or a program that PATH may mean."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.cli.main import VERBS
from torusrun.orchestrator.images.runtime import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
MODULES = {*sys.stdlib_module_names, *filter(str.isidentifier, metadata.packages_distributions()),  # nvidia/cublas
           "orchestrator", "training", "sitecustomize", "usercustomize"}  # fmt: skip
PROGRAMS = {*COMMANDS, *(program for name in schedulers.KNOWN for program in schedulers.get(name).cluster.programs),
            *(name for folder in SYSTEM if os.path.isdir(folder) for name in os.listdir(folder)),
            "git", "mpirun", "nvidia-smi", "python", "python3", "sbatch", "ssh"}  # fmt: skip
COMMAND = """name: command
site: ./site.yaml
code: none
command: ["true"]
"""
SITE = """scheduler: local
launcher: spawn
node: {{ranks: 4, interface: lo}}
runs: {folder}/runs
stop_before: 1s
poll_interval: 0.1s
"""
# What follows each verb, {run} being a run that is over. A verb without a line is called without arguments.
ARGUMENTS = {
    "init": "mine --scheduler local --yes", "doctor": "--site {home}/site.yaml",
    "image": "build {home}/image.yaml --offline", "plan": "{home}/command.yaml --check",
    "predict": "{home}/run.yaml --workload resnet50 --gpu v100-16gb", "recipes": "show sony-224s",
    "calibrate": "{home}/run.yaml --from {run}", "run": "--site {home}/site.yaml --code none --wait -- true",
    "submit": "{home}/command.yaml --wait", "hold": "{home}/command.yaml --time 2s --idle 1s",
    "shell": "{run} -- true", "forward": "{run} 6006", "status": "--all --long", "watch": "{run}",
    "logs": "{run} --all", "explain": "{run}", "show": "{run}", "reproduce": "{run} --compare {run}",
    "examples": "digits", "report": "{run} -o {home}/report.html", "cancel": "{run}", "resume": "{run}",
    "rm": "{run} --yes", "collect": "{run} {home}/collected", "gc": "--yes", "export": "{run} {home}/exported",
    "schema": "run", "completion": "bash", "where": "{home}/command.yaml --site slurm",
}  # fmt: skip
# After all that can be looked at.
REFUSED = dict.fromkeys(("image", "calibrate", "shell", "forward", "cancel", "resume", "where"), 2)


@pytest.fixture(scope="module")
def decoys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder full of modules and programs, each of which writes its name into the file `ran` beside the folder."""
    folder = tmp_path_factory.mktemp("decoys") / "here"
    folder.mkdir()
    ran = folder.with_name("ran")
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write('{name}.py ')\n")
    program = folder.with_name("program")
    program.write_text(f'#!/bin/sh\necho "${{0##*/}}" >> {ran}\n')
    program.chmod(0o755)
    for name in PROGRAMS:
        (folder / name).symlink_to(program)
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_runs_files_of_the_working_directory(verb: str, decoys: Path, home: Path) -> None:
    program = decoys.with_name("torusrun")
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom torusrun.orchestrator.cli.main import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    run = make(write_specs(home), DONE)
    (home / "site.yaml").write_text(SITE.format(folder=home))
    (home / "command.yaml").write_text(COMMAND)
    (home / "image.yaml").write_text("name: tiny\nbase: ./none.sif\n")
    words = ARGUMENTS.get(verb, "").format(home=home, run=run.run_id).split()
    # An empty and a relative entry, as `export PATH=$UNSET:/bin` leaves them, mean the working directory.
    environment = {**os.environ, "PATH": os.pathsep.join(["", ".", *SYSTEM]), "PYTHONPATH": str(ROOT / "src")}
    said = subprocess.run(
        [program, verb, *words], cwd=decoys, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    ran = decoys.with_name("ran")
    names = ran.read_text().split() if ran.exists() else []
    ran.unlink(missing_ok=True)
    assert not names, "these were run from the working directory"
    assert said.returncode == REFUSED.get(verb, 0) and "usage:" not in said.stderr, said.stderr
