"""Software that a job activates without a container: the lines of each kind, and a real venv that is looked at."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.keys.load import load
from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import in_short, login
from torusrun.orchestrator.schedulers.script import activating
from torusrun.orchestrator.sites.checks import images

SITE = "scheduler: local\nlauncher: spawn\nnode: {ranks: 1}\nruns: runs\n"
RUN = "name: x\nsite: ./site.yaml\nnodes: 1\ncode: none\ncommand: [python, -V]\n"


@pytest.mark.parametrize(
    ("software", "lines"),
    [
        (Software(), []),
        (Software(venv="/opt/my venv"), ["source '/opt/my venv/bin/activate'"]),
        (
            Software(module_paths=("/sw/m",), modules=("a/1", "b;c")),
            ["module use /sw/m", "module load a/1", "module load 'b;c'"],
        ),
        (Software(conda="train"), ['eval "$(conda shell.bash hook)"', "conda activate train"]),
        (Software(conda="/e", root="/opt/conda"), ["source /opt/conda/etc/profile.d/conda.sh", "conda activate /e"]),
        (
            Software(conda="train", root="/opt/bin/micromamba"),
            ['eval "$(/opt/bin/micromamba shell hook --shell bash)"', "micromamba activate train"],
        ),
        (Software(spack="/s/env", root="/s"), ["source /s/share/spack/setup-env.sh", "spack env activate /s/env"]),
        (Software(modules=("spack",), spack="train"), ["module load spack", "spack env activate train"]),
    ],
)  # fmt: skip
def test_the_lines_of_each_kind(software: Software, lines: list[str]) -> None:
    assert activating(software) == lines


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(SITE)
    words = [sys.executable, "-m", "venv", "--without-pip", "own"]
    subprocess.run(words, check=True, timeout=300)
    Path("run.yaml").write_text(f"{RUN}environment: {{venv: {tmp_path}/own}}\n")
    return tmp_path


def test_check_reports_what_the_environment_of_a_run_has(project: Path, capsys: Capsys) -> None:
    printed = prints(capsys, "plan", "run.yaml", "--check")
    assert f"ok       environment        {project}/own/bin/python: Python 3." in printed
    assert "warning  PyTorch            torch cannot be imported: " in printed and "MPI" in printed


def test_a_missing_environment_is_one_failure_and_an_image_has_its_software_inside(
    project: Path, capsys: Capsys
) -> None:
    assert main(["plan", "run.yaml", "--check", "--set", "environment.venv=/no/such"]) == 2
    assert "`source /no/such/bin/activate`: " in capsys.readouterr().out
    (project / "x.sif").touch()
    assert main(["plan", "run.yaml", "--set", "image=./x.sif"]) == 2
    assert "'environment' has no effect in an image; remove it, or 'image'" in capsys.readouterr().err


def test_a_torch_that_does_not_fit_the_nodes_fails(project: Path) -> None:
    site = load(Path("run.yaml")).site
    gpus = replace(site, node=replace(site.node, gpus=1, architecture="sm_90"))
    module = next((project / "own" / "lib").glob("python3*")) / "site-packages" / "torch.py"
    software, outcomes = Software(venv=str(project / "own")), []
    for cuda, flags in (("None", ""), ("'12.8'", "sm_70"), ("'12.8'", "sm_70 sm_90")):
        kernels = f"class _C:\n    _cuda_getArchFlags = staticmethod(lambda: {flags!r})\n"
        module.write_text(f"__version__ = '2.9'\nclass version:\n    cuda = {cuda}\n{kernels}")
        found = [check for check in images.software_checks(gpus, software) if check.name == "PyTorch"]
        outcomes.append((found[0].outcome, found[0].said))
    assert outcomes == [
        ("failed", "torch 2.9, without CUDA, and the site's nodes have GPUs"),
        ("failed", "torch 2.9, CUDA 12.8, without kernels for sm_90"),
        ("ok", "torch 2.9, CUDA 12.8"),
    ]


def test_the_script_activates_the_site_s_software_first(project: Path, capsys: Capsys) -> None:
    Path("site.yaml").write_text(f"{SITE}environment: {{venv: {project}/own}}\n")
    script = prints(capsys, "submit", "run.yaml", "--dry-run", "--quiet", "--set", "environment={conda: late}")
    own, late = f"source {project}/own/bin/activate", "conda activate late"
    assert 0 < script.index(f"\n{own}\n") < script.index(f"\n{late}\n")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{venv: a, conda: b}", "'environment' names venv and conda; write one of them, besides modules"),
        ("{root: /opt/conda}", "'environment.root' is where conda or spack is installed; name one of these, too"),
        (
            "{venv: .venv}",
            "'environment.venv': '.venv' is relative, and a job starts in another folder; begin it with /",
        ),
        ("{conda: ./env}", "'environment.conda': './env' is relative, and a job starts in another folder"),
        ("{spack: s, root: spack}", "'environment.root': 'spack' is relative, and a job starts in another folder"),
        ("{module_paths: [/a, m]}", "'environment.module_paths': 'm' is relative, and a job starts in another folder"),
        ("{vnv: a}", "did you mean 'venv'?"),
    ],
)
def test_what_does_not_fit(given: str, says: str, project: Path, capsys: Capsys) -> None:
    assert says in refuses(capsys, "plan", "run.yaml", "--set", f"environment={given}")


# A shell's `module` as version 3.2.13 has it (returns 0 after a failure), with what its program printed.
MODULE_3 = """module() {
  case "$2" in
    Python) LOADEDMODULES=Python/3.11 ;;
    is-loaded | gone/1) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2 ;;
  esac
}
export -f module
export LOADEDMODULES=
"""


def test_a_module_that_does_not_load_is_noticed_although_nothing_fails(tmp_path: Path, monkeypatch: Patch) -> None:
    start = tmp_path / "start.sh"
    start.write_text(MODULE_3)
    monkeypatch.setenv("BASH_ENV", str(start))
    site = Site("slurm", "srun")
    assert login(site, Software(modules=("Python", "Python"))).modules_failed == ""
    assert login(site, Software(modules=("Python", "gone/1"))).modules_failed == (
        "`module load gone/1`: ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'gone/1' "
        "torusrun: `module load gone/1` returned 0, but the module is not loaded"
    )


def test_a_machine_without_modules_says_so(monkeypatch: Patch) -> None:
    for name in ("BASH_ENV", "MODULESHOME", "LMOD_PKG", "BASH_FUNC_module%%"):
        monkeypatch.delenv(name, raising=False)
    failed = login(Site("slurm", "srun"), Software(modules=("torusrun-none/1",))).modules_failed
    assert failed.startswith("`module load torusrun-none/1`: "), "the step that failed must be named"


def test_a_long_error_keeps_its_beginning_and_end_without_colours() -> None:
    assert in_short("\x1b[1;31m==>\x1b[0m Error: No such\n environment: 'nope'\n") == (
        "==> Error: No such environment: 'nope'"
    )
    long = in_short("first " + "x" * 1000 + " last")
    assert len(long) < 420 and long.startswith("first ") and long.endswith(" last")
