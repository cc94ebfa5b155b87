"""Requirements files: with what they include, under names that mean something in the image."""

from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.image_file import Python
from torusrun.orchestrator.images.definitions.requirements import brought, gather


def test_included_files_and_wheels_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a-1.0-py3-none-any.whl").touch()
    (tmp_path / "r.txt").write_text(
        "# -r not-this.txt\n-r sub/more.txt\n--constraint=sub/limits.txt\n-c https://a.org/c.txt\n"
        "./wheels/a-1.0-py3-none-any.whl ; python_version > '3'\ntorch==2.13.0 \\\n    --hash=sha256:00\n"
    )
    (tmp_path / "sub" / "more.txt").write_text(
        "-r ../r.txt\nb @ file:../wheels/a-1.0-py3-none-any.whl\nc @ git+https://$T@a/b\n".replace("file:", "file://")
    )
    (tmp_path / "sub" / "limits.txt").write_text("numpy<3\n")
    found = gather(tmp_path / "r.txt")
    assert [name for name, _ in found.texts] == [f"requirements/{n}.txt" for n in range(3)]
    assert found.texts[0][1] == (
        "# -r not-this.txt\n-r 1.txt\n--constraint= 2.txt\n-c https://a.org/c.txt\n"
        "file:///mnt/archives/0/a-1.0-py3-none-any.whl ; python_version > '3'\n"
        "torch==2.13.0 \\\n    --hash=sha256:00\n"
    )
    assert found.texts[1][1].startswith("-r 0.txt\nb @ file:///mnt/archives/0/a-1.0-py3-none-any.whl\n")
    assert found.hashed and found.from_git and len(found.archives) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-r none.txt", r"r.txt:2:1: .*none.txt: there is no such file"),
        ("./none-1-py3-none-any.whl", "there is no such file"),
        ("-e .", "pip wheel"),
        ("./package", "pip wheel"),
        (". ; python_version > '3'", "pip wheel"),
        ("a @ file:///", "pip wheel"),
        ("-e git+https://g.org/a/b.git", "without -e"),
        ("git+git@g.org:a/b.git", "pip cannot read this"),
        ("a @ file:///croot/a_17/work/a", "or write NAME==VERSION, as `pip list --format=freeze`"),
        ("numpy=1.26.3=py311h08b1b3b_0", "conda's form; write numpy==1.26.3"),
        ('"uvicorn[standard]"', "pip cannot read this"),
        ("a==1 \\\n  --no-build-isolation", r":2:1: .*`pip install --no-build-isolation` for this package in 'post'"),
        ("--upgrade", "pip takes no --upgrade in a file"),
        ("a==>1", "pip cannot read this"),
        ("--find-links wheels", "--wheelhouse"),
        ("--extra-index-url https://me:t0ken@a.org/", "holds a login"),
        ("a @ git+https://t0ken@a.org/b", "holds a login"),
        ("a @ git+https://git:t0ken@a.org/b", "holds a login"),
    ],
)
def test_a_line_that_the_build_cannot_follow_is_named(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "r.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(UserError, match=says) as caught:
        gather(tmp_path / "r.txt")
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lines_that_pip_takes_stay_as_they_are(tmp_path: Path, encoding: str) -> None:
    text = (
        "--extra-index-url https://a.org/whl/cu121\n-f https://b.org/f.html\n--pre\nnumpy>=1.24,<2  # pinned\n"
        "torch==2.3.1+cu121 ; platform_system == 'Linux'\na @ git+https://git@g.org/a/b@v1.3.0\n"
        "git+ssh://git@g.org/a/b.git@0123\nhttps://a.org/m-1.0-py3-none-any.whl\nb[c] @ https://a.org/b.zip#sha256=00\n"
        "d==1 \\\n    --hash=sha256:00\n--no-binary :all:\n"
    )
    (tmp_path / "r.txt").write_bytes(text.encode(encoding))
    assert gather(tmp_path / "r.txt").texts[0][1] == text


def test_all_mistakes_of_a_file_are_reported(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("-e .\nnumpy\n./package\n")
    with pytest.raises(UserError, match=r"(?s)r.txt:1:1: .*r.txt:3:1: "):
        gather(tmp_path / "r.txt")


def test_packages_and_wheels_of_the_image_file_are_added_to_requirements(tmp_path: Path) -> None:
    (tmp_path / "a-1.0-py3-none-any.whl").touch()
    (tmp_path / "r.txt").write_text("torch==2.13.0\n")
    found = brought(Python(packages=("numpy==2", "a-1.0-py3-none-any.whl"), requirements="r.txt"), tmp_path)
    assert found.words == ("numpy==2", "/mnt/archives/0/a-1.0-py3-none-any.whl", "-r", "/mnt/requirements/0.txt")
    assert found.torch and not found.from_git
    (tmp_path / "r.txt").write_text("torch==2.13.0 --hash=sha256:00\n")
    with pytest.raises(UserError, match="it has hashes, and 'python.packages' of the image file has none"):
        brought(Python(packages=("numpy==2",), requirements="r.txt"), tmp_path)
    with pytest.raises(UserError, match="wheel does not exist"):
        brought(Python(packages=("b-1.0-py3-none-any.whl",)), tmp_path)
