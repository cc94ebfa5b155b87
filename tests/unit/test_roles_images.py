"""The images and the Pythons of roles: their keys, their records, and what their ranks start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_roles import refused
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.cli.dry_run import dry_run
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.job.image.made_ready import verify
from torusrun.orchestrator.job.start.launch_order import in_front
from torusrun.orchestrator.job.start.prepare import copied_to_nodes
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image import recorded
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.plan.role_plans import of_images

RUNTIME = "/opt/of-the-nodes/bin/apptainer"
HEAD = "name: x\nsite: site.yaml\nimage: ./run.sif\ncode: none\n"
ROLES = """
roles:
  same: {command: [a]}
  other: {command: [b], image: ./other.sif}
  host: {command: [c], image: none, environment: {venv: /opt/venv}}
"""


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two images and a site, whose nodes alone have the runtime."""
    monkeypatch.chdir(home)
    site = f"scheduler: slurm\nlauncher: srun\nruns: {home}/runs\ncontainer: {{runtime: {RUNTIME}}}\n"
    (home / "site.yaml").write_text(site)
    for name in ("run", "other"):
        (home / f"{name}.sif").write_text(name)
    return home


def planned(text: str) -> Plan:
    Path("run.yaml").write_text(text)
    return plan("run.yaml")


def images(made: Plan) -> dict[str, str | None]:
    """The image that each role starts in, by its name."""
    return {
        role.name: Path(role.container.image).name if role.container else None for role in dry_run(made).order.roles
    }


def test_each_role_starts_in_its_own_image_or_in_that_of_the_run(project: Path) -> None:
    made = planned(HEAD + "command: [x]\n" + ROLES)
    assert images(made) == {"main": "run.sif", "same": "run.sif", "other": "other.sif", "host": None}
    assert [Path(name).name for name in of_images(made)] == ["run.sif", "other.sif"]


def test_the_image_of_the_main_role_is_not_that_of_its_services(project: Path) -> None:
    roles = ROLES + "  chief: {command: [x], main: true, image: ./other.sif}\n"
    made = planned(HEAD + roles)
    assert images(made) == {"chief": "other.sif", "same": "run.sif", "other": "other.sif", "host": None}
    alone = planned(HEAD + roles.replace("main: true, image: ./other.sif", "main: true, image: none"))
    assert images(alone) == {"chief": None, "same": "run.sif", "other": "other.sif", "host": None}


def test_every_image_is_recorded_by_its_name_and_must_stay_the_same(project: Path) -> None:
    made = planned(HEAD + "command: [x]\n" + ROLES)
    (run := RunFolder(project / "a-run")).folder.mkdir()
    recorded.keep(run, create.images_of(made), made.run.image)
    own, other = str(project / "run.sif"), str(project / "other.sif")
    assert recorded.kept(run) == recorded.all_kept(run, own)[own]
    kept = recorded.all_kept(run, own)
    assert {name: image.path for name, image in kept.items()} == {own: own, other: other}
    assert kept == create.images_of(made, run)
    (project / "other.sif").write_text("changed")
    with pytest.raises(SiteError, match=r"other\.sif: this is not the image that the run was submitted with"):
        verify(kept)


@pytest.mark.parametrize(("runtime", "copied"), [(RUNTIME, True), ("pyxis", False)])
def test_an_image_that_no_host_copies_is_verified_before_the_ranks_start(
    project: Path, runtime: str, copied: bool
) -> None:
    site = f"scheduler: slurm\nlauncher: srun\nruns: {project}/runs\nstage: $NODE\ncontainer: {{runtime: {runtime}}}\n"
    (project / "site.yaml").write_text(site)
    (project / "run.sqsh").write_text("an image")
    made = planned(f"name: x\nsite: site.yaml\ncode: none\ncommand: [x]\nimage: ./run.{'sif' if copied else 'sqsh'}\n")
    order = dry_run(made).order
    assert copied_to_nodes(made.site) is bool(order.stage and order.stage.entries) is copied


def test_a_service_alone_may_be_in_an_image(project: Path) -> None:
    made = planned("name: x\nsite: site.yaml\ncode: none\ncommand: [x]\nroles: {b: {command: [y], image: ./run.sif}}\n")
    order = dry_run(made).order
    assert [bool(role.container) for role in order.roles] == [False, True]
    container = order.roles[1].container
    assert container and isinstance(container.runtime, Runtime) and container.image.endswith("run.sif")
    assert create.no_code(made) == []
    with_code = planned("name: x\nsite: site.yaml\ncommand: [x]\nroles: {b: {command: [y], image: ./run.sif}}\n")
    assert "run.sif" in create.no_code(with_code)


def test_a_python_of_a_role_is_first_on_its_path(project: Path) -> None:
    made = planned(HEAD + "command: [x]\n" + ROLES)
    host = dry_run(made).order.role("host")
    assert in_front(host.python, "/usr/bin") == {"VIRTUAL_ENV": "/opt/venv", "PATH": "/opt/venv/bin:/usr/bin"}
    assert in_front({"CONDA_PREFIX": "/c"}, "") == {"CONDA_PREFIX": "/c", "PATH": "/c/bin"}
    assert in_front({}, "/usr/bin") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{b: {command: [y], image: ./gone.sif}}", "run.yaml:4:34: 'roles.b.image': there is no "),
        ("{b: {command: [y], image: 'docker://'}}", "'roles.b.image': "),
        ("{b: {command: [y], environment: {venv: v}}}", "'roles.b.environment.venv': 'v' is relative"),
        ("{b: {command: [y], environment: {venv: /v, conda: /c}}}", "names venv and conda; write one of them"),
        ("{b: {command: [y], image: x.sif, environment: {venv: /v}}}", "write 'roles.b.image: none'"),
        ("{b: {command: [y], environment: {modules: [x]}}}", "modules"),
    ],
)
def test_an_image_or_an_environment_that_does_not_fit_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.sif").touch()
    assert words in refused(tmp_path, f"roles: {text}\ncommand: [x]\n")


def test_pyxis_starts_all_roles_in_one_image(project: Path) -> None:
    site = project / "site.yaml"
    site.write_text(f"scheduler: slurm\nlauncher: srun\nruns: {project}/runs\ncontainer: {{runtime: pyxis}}\n")
    (project / "run.sqsh").touch()
    run = "name: x\nsite: site.yaml\nimage: ./run.sqsh\ncommand: [x]\nroles:\n  same: {command: [a]}\n"
    assert planned(run).run.roles["same"].image is None
    with pytest.raises(UserError, match=r"run\.yaml:7:.*Pyxis starts all ranks in one image") as error:
        planned(run + "  b: {command: [a], image: none}\n")
    assert "roles.same" not in str(error.value)
