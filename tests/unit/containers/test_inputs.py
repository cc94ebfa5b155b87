"""What a build takes in: what makes a key, and the sums of files and folders."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.image_file import Base, File, ImageFile, Python
from torusrun.orchestrator.images.definitions.inputs import Inputs, base_checksum, checksum_of_tree, collect


def test_the_key_follows_everything_that_goes_in(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    inputs = Inputs("text", (("files/0", tmp_path / "a"),), base_identity="sha256:1")
    keys = {inputs.key, replace(inputs, definition="other").key, replace(inputs, base_identity="sha256:2").key}
    keys |= {replace(inputs, files=(("files/1", tmp_path / "a"),)).key}
    (tmp_path / "a").write_text("2")
    assert len(keys | {inputs.key}) == 5


def test_the_key_is_the_same_wherever_the_files_lie(tmp_path: Path) -> None:
    image_file = ImageFile("mine", Base(docker="debian"), files=(File("data", "/data"),))
    keys = set()
    for place in ("one", "two $(id)\n%post"):
        (tmp_path / place / "data" / "inner").mkdir(parents=True)
        (tmp_path / place / "data" / "inner" / "file").write_text("same")
        keys.add(collect(image_file, tmp_path / place).key)
    assert len(keys) == 1


def test_a_folders_sum_sees_names_modes_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    sums = [checksum_of_tree(tmp_path)]
    for change in (
        lambda: (tmp_path / "a").chmod(0o755),
        lambda: (tmp_path / "c").mkdir(),
        lambda: (tmp_path / "a").write_text("2"),
        lambda: (tmp_path / "a").rename(tmp_path / "d"),
        lambda: (tmp_path / "b").symlink_to("d"),
    ):
        change()
        sums.append(checksum_of_tree(tmp_path))
    assert len(set(sums)) == 6
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "e.pyc").touch()
    assert checksum_of_tree(tmp_path) == sums[-1]


def test_a_link_counts_as_what_is_copied_for_it(tmp_path: Path) -> None:
    outside, data = tmp_path / "outside", tmp_path / "data"
    data.mkdir()
    outside.write_text("1")
    (data / "absolute").symlink_to(outside)
    inputs = Inputs("text", (("files/0", data),))
    before = inputs.key
    inputs.lay_out(tmp_path / "work")
    copied = tmp_path / "work" / "files" / "0" / "absolute"
    assert copied.read_text() == "1" and not copied.is_symlink()
    outside.write_text("2")
    assert inputs.key != before
    (data / "up").symlink_to("../data")
    with pytest.raises(UserError, match="data/up: this link leads to a folder that holds it"):
        checksum_of_tree(data)
    (data / "up").unlink()
    (data / "gone").symlink_to("nowhere")
    with pytest.raises(UserError, match="nowhere: cannot be read: No such file"):
        checksum_of_tree(data)


@pytest.mark.parametrize("to", [".", "..", "itself"])
@pytest.mark.parametrize("name", [".git", "__pycache__", "old.pyc"])
def test_a_link_that_is_not_copied_is_not_refused(name: str, to: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("1")
    inputs = Inputs("text", (("files/0", data),))
    before = inputs.key
    (data / name).symlink_to(name if to == "itself" else to)
    assert inputs.key == before
    inputs.lay_out(tmp_path / "work")
    assert [path.name for path in (tmp_path / "work/files/0").iterdir()] == ["file"]


def test_a_changed_base_folder_is_another_base(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text("1")
    before = base_checksum(tmp_path)
    assert base_checksum(tmp_path) == before
    (tmp_path / "etc" / "os-release").write_text("12")
    assert base_checksum(tmp_path) != before


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data")
    with pytest.raises(UserError, match="data: cannot be read: this is not a regular file"):
        checksum_of_tree(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop: cannot be read"):
        checksum_of_tree(tmp_path / "loop")


def test_what_an_image_file_takes_in_must_be_there(tmp_path: Path) -> None:
    for image_file, says in (
        (ImageFile("a", Base(folder="none")), "the image file's base does not exist"),
        (ImageFile("a", Base(sif=".")), "this is a folder, not a file"),
        (ImageFile("a", Base(docker="debian"), files=(File("none", "/a"),)), "the image file's file does not exist"),
    ):
        with pytest.raises(UserError, match=says):
            collect(image_file, tmp_path)


def test_training_inside_is_laid_out_beside_the_definition(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    image_file = ImageFile("a", Base(folder="base"), python=Python(("torch==2.13.0",)), training="inside")
    definition = replace(collect(image_file, tmp_path), definition="text").lay_out(tmp_path / "work")
    assert Path(definition).read_text() == "text"
    assert (tmp_path / "work" / "files" / "training" / "__main__.py").is_file()
    assert (tmp_path / "work" / "base").resolve() == (tmp_path / "base").resolve()
