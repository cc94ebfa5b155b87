"""A Dockerfile becomes a definition; what cannot be expressed is reported with its line."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.unit.golden_text import assert_golden
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images.definitions import definition_file, image_file
from torusrun.orchestrator.images.definitions.definition import Variant
from torusrun.orchestrator.images.definitions.dockerfile import instructions
from torusrun.orchestrator.images.definitions.inputs import Inputs
from torusrun.orchestrator.images.definitions.prepare import prepare, sources
from torusrun.orchestrator.images.source import parse
from torusrun.orchestrator.keys.load import load

HERE = Path(__file__).parent / "dockerfile"
SITE = "scheduler: local\nlauncher: spawn\nnode: {ranks: 1}\nruns: runs\ncontainer: {cache: images}\n"
TINY = "FROM debian:bookworm-slim\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("torusrun.orchestrator.images.sif.os.uname", lambda: type("", (), {"machine": "x86_64"}))
    home = tmp_path / "training"
    (home / "src").mkdir(parents=True)
    for name in ("requirements.txt", "train.py", "data.tar.gz", "src/model.py", "src/notes.md"):
        (home / name).write_text(name)
    (home / ".dockerignore").write_text("*.md\n**/*.md\n.dockerignore\n!train.py\n")
    (home / "Dockerfile").write_text((HERE / "Dockerfile").read_text())
    return home


def definition(folder: Path, text: str, *lines: str) -> str:
    (folder / "Dockerfile").write_text(text)
    (folder / "image.yaml").write_text("\n".join(["name: mine", "dockerfile: Dockerfile", *lines, ""]))
    return prepare(folder / "image.yaml", Variant()).inputs.definition


def run_post(inputs: Inputs, work: Path) -> subprocess.CompletedProcess[str]:
    """Runs the commands of the last %post here, with the copied files below `work`."""
    inputs.lay_out(work)
    sections = definition_file.stages(inputs.definition)[-1].sections
    for line in filter(str.strip, sections.get("files", "").splitlines()):
        name, to = line.replace("/.torusrun-copied", f"{work}/copied").split()
        Path(to).parent.mkdir(parents=True)
        (shutil.copytree if (work / name).is_dir() else shutil.copy2)(work / name, to)
    post = sections["post"].replace("mkdir -p /opt/torusrun /opt/host-mpi", "true")
    post = post.replace("/.torusrun-copied", f"{work}/copied")
    return subprocess.run(["sh", "-c", post], capture_output=True, text=True, timeout=300)


def inputs_of(folder: Path, text: str) -> Inputs:
    definition(folder, text)
    return prepare(folder / "image.yaml", Variant()).inputs


def test_a_run_continues_inside_a_word(folder: Path) -> None:
    text = 'RUN printf %s, https://e.org/long/\\\npath "a \\\n  b" \\ \n  c\n'
    done = run_post(inputs_of(folder, TINY + text), folder / "work")
    assert done.stdout == "https://e.org/long/path,a   b,c,", done.stderr


def test_a_workdir_that_cannot_be_made_ends_the_build(folder: Path) -> None:
    done = run_post(inputs_of(folder, f"{TINY}WORKDIR {folder}/train.py\nRUN echo went on\n"), folder / "work")
    assert done.returncode != 0 and "went on" not in done.stdout


def test_copied_files_keep_their_names(folder: Path) -> None:
    (folder / "a b.txt").write_text("1")
    (folder / "a-b.txt").write_text("2")
    (folder / "src" / "é'$(x).txt").write_text("3")
    to = folder / "to"
    done = run_post(inputs_of(folder, f'{TINY}COPY ["*b.txt", "src/é*", "src", "{to}/"]\n'), folder / "work")
    assert done.returncode == 0, done.stderr
    texts = {path.name: path.read_text() for path in to.iterdir() if path.name != "model.py"}
    assert texts == {"a b.txt": "1", "a-b.txt": "2", "é'$(x).txt": "3"}


@pytest.mark.parametrize("copied", ["train.py", "src", "."])
@pytest.mark.parametrize("ignored", [True, False])
def test_the_key_follows_the_modes_of_files(folder: Path, copied: str, ignored: bool) -> None:
    if not ignored:
        (folder / ".dockerignore").unlink()
    before = inputs_of(folder, f"{TINY}COPY {copied} /to/\n").key
    (folder / "src" / "model.py").chmod(0o755)
    (folder / "train.py").chmod(0o755)
    assert inputs_of(folder, f"{TINY}COPY {copied} /to/\n").key != before


def test_clones_have_one_key(folder: Path) -> None:
    before = inputs_of(folder, f"{TINY}COPY . /to\n").key
    clone = shutil.copytree(folder, folder.parent / "clone of it")
    assert inputs_of(clone, f"{TINY}COPY . /to\n").key == before


@pytest.mark.parametrize("ignored", ["", "nothing\n"], ids=["whole folder", "with rules"])
@pytest.mark.parametrize(
    ("link", "to", "copied"),
    [
        ("src/key", "../../outside/a.txt", "src"),
        ("src/key", "../../outside/a.txt", "src/key"),
        ("src/keys", "../../outside", "src"),
        ("src/keys", "../../outside", "src/keys"),
        ("src/keys", "../../outside", "src/keys/a.txt"),
        ("src/keys", "../../outside", "src/keys/*.txt"),
        ("src/deep/keys", "/etc", "."),
    ],
)
def test_nothing_behind_a_link_out_of_the_context_is_copied(
    folder: Path, link: str, to: str, copied: str, ignored: str
) -> None:
    """A checkout of somebody else could lead to the keys of whoever builds its image."""
    (folder.parent / "outside").mkdir()
    (folder.parent / "outside" / "a.txt").touch()
    (folder / ".dockerignore").write_text(ignored)
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(to)
    with pytest.raises(UserError, match=r"this link leads to .*, out of .*; put a copy into that folder, or leave"):
        inputs_of(folder, f"{TINY}COPY {copied} /to/\n")
    (folder / ".dockerignore").write_text(f"{link}\n")
    if copied in ("src", "."):
        assert inputs_of(folder, f"{TINY}COPY {copied} /to/\n").files


def test_links_to_folders_are_copied(folder: Path) -> None:
    (folder / "outside").mkdir()
    (folder / "outside" / "a.txt").touch()
    (folder / "src" / "data").symlink_to("../outside")
    names = [name for name, _ in inputs_of(folder, f"{TINY}COPY src /to\n").files]
    assert names == ["files/0/model.py", "files/0/data/a.txt"]
    (folder / "src" / "up").symlink_to("..")
    with pytest.raises(UserError, match="src/up: this link leads to a folder that holds it; remove the link"):
        inputs_of(folder, f"{TINY}COPY src /to\n")
    (folder / ".dockerignore").write_text("src/up\n")
    assert len(inputs_of(folder, f"{TINY}COPY src /to\n").files) == 3


@pytest.mark.parametrize("ignored", ["", "nothing\n"], ids=["whole folder", "with .dockerignore"])
def test_links_that_lead_into_each_other_are_one_error(folder: Path, ignored: str) -> None:
    """os.walk follows two such links until the system refuses the 40th."""
    (folder / "src" / "one").mkdir()
    (folder / "src" / "two").mkdir()
    (folder / "src" / "one" / "to").symlink_to("../two")
    (folder / "src" / "two" / "back").symlink_to("../one")
    (folder / ".dockerignore").write_text(ignored)
    with pytest.raises(UserError, match="src/one/to/back: this link leads to .* holds it, through another link; rem"):
        inputs_of(folder, f"{TINY}COPY src /to\n").check()
    (folder / "src" / "two" / "back").unlink()
    inputs_of(folder, f"{TINY}COPY src /to\n").check()
    (folder / "src" / "a").symlink_to("b")
    (folder / "src" / "b").symlink_to("a")
    with pytest.raises(UserError, match="src/a: this link leads to b, which leads back to it; remove one"):
        inputs_of(folder, f"{TINY}COPY src /to\n").check()


@pytest.mark.parametrize("ignored", ["", "nothing\n", "**/old.txt\n"], ids=["whole folder", "with rules", "ignored"])
def test_a_link_that_is_not_copied_is_not_refused(folder: Path, ignored: str) -> None:
    (folder / ".dockerignore").write_text(ignored)
    before = [name for name, _ in inputs_of(folder, f"{TINY}COPY src /to\n").files]
    for name, to in (("old.pyc", "old.pyc"), (".git", "."), ("__pycache__", "__pycache__")):
        (folder / "src" / name).symlink_to(to)
    if ignored.endswith("txt\n"):
        (folder / "src" / "old.txt").symlink_to("old.txt")
    found = inputs_of(folder, f"{TINY}COPY src /to\n")
    found.check()
    assert [name for name, _ in found.files] == before


def test_ignored_folders_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "large" / "inner").mkdir(parents=True)
    (folder / "large" / "inner" / "kept").touch()
    read: list[str] = []
    real = os.scandir
    monkeypatch.setattr("os.scandir", lambda path: read.append(Path(path).name) or real(path))  # type: ignore[func-returns-value]
    (folder / "large" / "loop").symlink_to("..")
    for rules, seen in (
        ("large\n", False),
        ("*\n!src\n", False),
        ("large\nlarge/loop\n!large/inner/kept\n", True),
        ("large/inner\nlarge/loop\n!large/in*/k*\n", True),
    ):
        (folder / ".dockerignore").write_text(rules)
        read.clear()
        files = inputs_of(folder, f"{TINY}COPY . /to\n").files
        assert ("inner" in read) is seen is any(path.name == "kept" for _, path in files)


def test_a_wrong_pattern_in_dockerignore_has_its_line(folder: Path) -> None:
    (folder / ".dockerignore").write_text("a\n[z-a]\n")
    with pytest.raises(UserError, match=r"\.dockerignore:2:1: '\[z-a\]': "):
        definition(folder, f"{TINY}COPY src /to\n")


@pytest.mark.parametrize("value", ["a\\n%post", "{{ a }}", "Bootstrap: x"])
def test_an_argument_in_a_default_never_starts_a_section(folder: Path, value: str) -> None:
    text = TINY + "ARG A=1\nENV X=${HOME:-$A}\n"
    with pytest.raises(UserError, match=r"Dockerfile:3:1: ENV: .* cannot be the default of \$HOME"):
        definition(folder, text, f'arguments: {{A: "{value}"}}')


def test_an_offline_build_copies_from_no_registry(folder: Path) -> None:
    (folder / "root").mkdir()
    definition(folder, "FROM a\nCOPY --from=b:1 /x /y\n", "base: {folder: root}")
    with pytest.raises(UserError, match="image.yaml: an offline build cannot copy from b:1, which needs the network"):
        prepare(folder / "image.yaml", Variant(offline=True))


def test_a_base_is_read_once_for_all_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "base.sif").touch()
    definition(folder, TINY, "base: {sif: base.sif}")
    read: list[Path] = []
    monkeypatch.setattr(
        "torusrun.orchestrator.images.definitions.inputs.sha256_of", lambda path: read.append(path) or "0"
    )  # type: ignore[func-returns-value]
    sources(folder / "image.yaml", False)
    assert read == [folder / "base.sif"]


def test_an_arg_can_name_several(folder: Path) -> None:
    text = definition(folder, TINY + "ARG A=1 B=2\n", "arguments: {B: '3'}")
    assert "export A=1\n" in text and "export B=3\n" in text


def test_the_definition_of_a_whole_dockerfile(folder: Path) -> None:
    found = prepare(folder / "Dockerfile", Variant())
    assert_golden(HERE / "image.def", found.inputs.definition)
    assert [name for name, _ in found.inputs.files] == [
        "files/0", "files/1", "files/2/Dockerfile", "files/2/data.tar.gz", "files/2/requirements.txt",
        "files/2/train.py", "files/2/src/model.py", "files/3",
    ]  # fmt: skip
    assert found.inputs.notes == (
        f"{folder}/Dockerfile:53: USER: it has no effect: the build runs as root, and the ranks as you",
    )
    for stage in definition_file.stages(found.inputs.definition):
        for section in {"post", "environment", "runscript"} & set(stage.sections):
            done = subprocess.run(["sh", "-n"], input=stage.sections[section], text=True, timeout=300)
            assert done.returncode == 0, f"%{section} is not shell"


# What their definitions are made of: the bases, the environment of the image, and the notes.
WELL_KNOWN = {
    "resnet": (["nvcr.io/nvidia/pytorch:21.03-py3"], "", []),
    "accelerate": (["python:3.11-slim"] * 2, 'export PATH=/opt/venv/bin:"${PATH}"', [":25: USER: it has no effect"]),
    "unet": (["pytorch/pytorch:1.7.1-cuda11.0-cudnn8-runtime"], "", []),
}


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_dockerfiles_of_the_form_of_well_known_ones(folder: Path, name: str) -> None:
    """dockerfile/README.md says of which."""
    bases, environment, notes = WELL_KNOWN[name]
    written = (HERE / f"{name}.Dockerfile").read_text()
    found = inputs_of(folder, written)
    stages = definition_file.stages(found.definition)
    assert [stage.header["from"] for stage in stages] == bases
    assert stages[-1].sections.get("environment", "").strip() == environment
    assert [note for note, said in zip(notes, found.notes, strict=True) if note in said] == notes
    for stage in stages:
        done = subprocess.run(["sh", "-n"], input=stage.sections["post"], text=True, timeout=300)
        assert done.returncode == 0, "%post is not shell"
    runs = [line for stage in stages for line in re.findall(r": '?Dockerfile:(\d+): RUN", stage.sections["post"])]
    lines = [str(n) for n, line in enumerate(written.splitlines(), 1) if line.startswith("RUN")]
    assert runs == lines, "each RUN is there once, in its order"


@pytest.mark.parametrize(("name", "copied"), [("resnet", "/work/train"), ("unet", "/work/unet")])
def test_their_commands_run_beside_what_they_copy(folder: Path, name: str, copied: str) -> None:
    """With `echo` for programs that change the machine, and a folder here for /work."""
    (folder / "start.sh").write_text("true\n")
    text = (HERE / f"{name}.Dockerfile").read_text().replace("/work", f"{folder.parent}/work")
    text = text.replace("requirements.txt /\n", f"requirements.txt {folder.parent}/\n")
    text = re.sub(r"(pip|apt-get) ", r"echo \1 ", text)
    done = run_post(inputs_of(folder, text), folder.parent / "build")
    assert done.returncode == 0 and "pip install" in done.stdout, done.stderr
    made = Path(f"{folder.parent}{copied}")
    assert {"Dockerfile", "train.py", "start.sh"} <= {path.name for path in made.iterdir()}
    assert os.access(made / "start.sh", os.X_OK) == (name == "unet")


def test_the_runscript_takes_arguments_in_place_of_cmd(folder: Path) -> None:
    text = definition(folder, TINY + 'ENTRYPOINT ["printf", "%s  ,"]\nCMD ["a  b", "c"]\n')
    script = definition_file.stages(text)[-1].sections["runscript"]
    for given, printed in (([], "a  b  ,c  ,"), (["d"], "d  ,")):
        done = subprocess.run(["sh", "-c", script, "sh", *given], capture_output=True, text=True, timeout=300)
        assert done.stdout == printed


def test_the_key_follows_the_dockerfile_its_files_and_its_arguments(folder: Path) -> None:
    text = TINY + "ARG A=1\nCOPY src /src\n"
    keys = []
    for change in (
        lambda: definition(folder, text),
        lambda: definition(folder, text, "arguments: {A: '2'}"),
        lambda: (folder / "src" / "model.py").write_text("other"),
        lambda: definition(folder, text + "RUN true\n"),
    ):
        change()
        keys.append(prepare(folder / "image.yaml", Variant()).inputs.key)
    (folder / "src" / "notes.md").write_text("left out by .dockerignore")
    keys.append(prepare(folder / "image.yaml", Variant()).inputs.key)
    assert len(set(keys)) == 4 and keys[-1] == keys[-2]
    assert sources(folder / "image.yaml", False) == [keys[-1]] * 2


def test_a_base_stands_for_the_image_of_every_from(folder: Path) -> None:
    (folder / "root").mkdir()
    text = definition(folder, "FROM a AS b\nFROM c\nCOPY --from=b /x /y\n", "base: {folder: root}")
    headers = [stage.header for stage in definition_file.stages(text)]
    assert [(h["bootstrap"], h["from"]) for h in headers] == [("localimage", "base")] * 2


def test_only_needed_stages_are_built_and_a_target_can_be_named(folder: Path) -> None:
    text = "FROM a AS one\nRUN one\nFROM one AS two\nRUN two\nFROM b\nRUN three\n"
    assert definition(folder, text).count("Bootstrap:") == 1
    chosen = definition(folder, text, "target: two")
    assert "From: a\n" in chosen and chosen.index("one\n") < chosen.index("two\n") and "three" not in chosen


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("RUN true\n", 1, "the first instruction must be FROM"),
        ("# only a comment\n", 0, "it has no FROM"),
        (TINY + "RUM true\n", 2, "'RUM' is not an instruction of a Dockerfile; did you mean 'RUN'?"),
        ("ARG IMAGE\nFROM $IMAGE\n", 2, "$IMAGE has no value"),
        ("FROM scratch\n", 1, "begin with an image that has an operating system"),
        ("# syntax=docker/dockerfile:1\n# escape=`\n" + TINY, 2, "as on Windows: end lines that go on with '\\'"),
        (TINY + "COPY --exclude=*.pyc . /a\n", 2, "write the pattern into .dockerignore"),
        ("FROM a b\n", 1, "it must be `FROM IMAGE` or `FROM IMAGE AS NAME`"),
        ("FROM --platform=linux/riscv64 a\n", 1, "for the processor of this machine"),
        (TINY + "ADD https://example.org/a.txt /a\n", 2, "write `RUN curl -fsSL https://example.org/a.txt -o FILE`"),
        (TINY + "ADD git@github.com:a/b.git /a\n", 2, "write `RUN git clone"),
        (TINY + "COPY missing.txt /a\n", 2, "missing.txt: "),
        (TINY + "COPY src/notes.md /a\n", 2, ".dockerignore leaves it out"),
        (TINY + "COPY ../secret /a\n", 2, "it is outside"),
        (TINY + "COPY --from=nowhere! /a /a\n", 2, "there is no such stage"),
        (TINY + "COPY --parents src /a\n", 2, "--parents: no runtime has this"),
        (TINY + "COPY train.py requirements.txt /a\n", 2, "the destination must be a folder, which ends with '/'"),
        (TINY + "COPY $WHERE /a\n", 2, "a variable in it is not set by ENV or ARG"),
        (TINY + "RUN true\n\nCOPY <<EOF /a\n$HOME\nEOF\n", 4, "variables in the here-document EOF are not expanded"),
        (TINY + "RUN <<EOF\ntrue\n", 2, "its here-document has no end"),
        (TINY + "RUN <<EOF\n#!/usr/bin/env python\nEOF\n", 2, "a here-document with '#!' cannot be run"),
        (TINY + "RUN --mount=type=secret,id=t true\n", 2, "name the login in 'secrets' of an image file"),
        (TINY + "RUN --mount=type=bind,target=/x true\n", 2, "COPY the files before this line"),
        (TINY + "RUN --mount=type=bind,from=a,target=/x true\n", 2, "COPY --from=a the files before this line"),
        (TINY + "RUN --security=insecure true\n", 2, "--security=insecure: no runtime has this"),
        (TINY + "ENV A=${B:?none}\n", 2, "is not a variable as ${NAME}"),
        (TINY + "ENV A='open\n", 2, "a ' is not closed"),
        (TINY + "ENV 1A=2\n", 2, "'1A' cannot be the name of a variable"),
        (TINY + "RUN pip install https://me:word@host/a.whl\n", 2, "the login in 'secrets' of an image file"),
        (TINY + "LABEL\n", 2, "it names no label"),
        (TINY + "SHELL bash\n", 2, 'write it as SHELL ["/bin/bash", "-c"]'),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_reported_with_its_line(folder: Path, text: str, line: int, says: str) -> None:
    with pytest.raises(UserError) as error:
        definition(folder, text)
    place = f"{folder}/Dockerfile" + (f":{line}:1: " if line else ": ")
    assert str(error.value).startswith(place) and says in str(error.value), str(error.value)


@pytest.mark.parametrize("ignore", [".dockerignore", "docker/Dockerfile.dockerignore"])
def test_the_context_may_be_another_folder(folder: Path, ignore: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "docker").mkdir()
    (folder / ".dockerignore").unlink()
    (folder / "docker" / "Dockerfile").write_text(f"{TINY}COPY . /app\nCOPY train.py /x\n")
    (folder / "image.yaml").write_text("name: mine\ndockerfile: docker/Dockerfile\ncontext: .\n")
    (folder / ignore).write_text("*\n!train.py\n!src\n")
    expected = ["files/0/train.py", "files/0/src/model.py", "files/0/src/notes.md", "files/1"]
    assert [name for name, _ in prepare(folder / "image.yaml", Variant()).inputs.files] == expected
    given = prepare(folder / "docker" / "Dockerfile", Variant(), context=folder)
    assert [name for name, _ in given.inputs.files] == expected and not given.inputs.notes
    (folder / "docker" / "Dockerfile").write_text(f"{TINY}COPY train.py /x\n")
    with pytest.raises(UserError, match=r":2:1: .*docker has no such file; 'context' of an image file, or --context"):
        prepare(folder / "docker" / "Dockerfile", Variant())
    assert main(["image", "render", f"{folder}/docker/Dockerfile", "--context", str(folder)]) == 0
    assert main(["image", "render", "pytorch-cpu", "--context", str(folder)]) == 2
    assert "--context: " in capsys.readouterr().err
    assert main(["image", "render", f"{folder}/docker/Dockerfile", "--context", f"{folder}/gone"]) == 2
    assert "gone: there is no such folder" in capsys.readouterr().err


def test_packages_below_the_home_of_root_are_noted(folder: Path) -> None:
    notes = inputs_of(folder, f"{TINY}RUN apt-get update && pip3 install -q --user einops\n").notes
    assert len(notes) == 1 and ":2: RUN: --user installs below the home of root" in notes[0]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["arguments: {OTHER: '1'}"], "it has no ARG OTHER"),
        (["target: tow"], "it has no stage 'tow'; did you mean 'two'?"),
        (["system: [git]"], "'system' has no effect together with 'dockerfile'"),
        (["base: {docker: a, sif: b}"], "'base' takes exactly one of"),
    ],
)
def test_what_an_image_file_says_beside_a_dockerfile(folder: Path, lines: list[str], says: str) -> None:
    with pytest.raises(UserError, match="image.yaml|Dockerfile") as error:
        definition(folder, "FROM a AS two\n", *lines)
    assert says in str(error.value)


def test_a_here_document_begins_a_word_outside_quotes(folder: Path) -> None:
    text = definition(folder, TINY + "RUN echo \"see <<EOF\" && python3 -c 'print(1 <<n)' && echo $((a<<b))\n")
    assert "see <<EOF" in text and "(1 <<n)" in text and "$((a<<b))" in text
    with pytest.raises(UserError, match="a ' is not closed"):
        definition(folder, TINY + "RUN echo it's <<EOF\nEOF\n")


@pytest.mark.parametrize("hostile", ["%post", "Bootstrap: x", "{{ a }}", "a\\\n  %files", "'%test", "$(", "\\"])
def test_a_run_never_starts_a_section_or_a_stage(folder: Path, hostile: str) -> None:
    text = definition(folder, TINY + f"RUN <<'EOF'\necho\n{hostile}\n\nEOF\nENV A=\"{hostile.replace('$(', '')}x\"\n")
    assert len(definition_file.stages(text)) == 1
    assert set(definition_file.stages(text)[0].sections) == {"post", "environment", "labels", "runscript"}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("plain", "plain"),
        ("'$A'", "$A"),
        ('"$A b"', "1 b"),
        (r"\$A\ x", "$A x"),
        ("${B:-d $A}", "d 1"),
        ("${A:+set}${B:+unset}", "set"),
        ("${HOME_OF_BASE:-/x}$HOME_OF_BASE", "/base/base"),
        ('"a\\"b`c"', 'a"b`c'),
        ("$(x)`y`", "$(x)`y`"),
        ("${NONE:-a}", "a"),
    ],
)
def test_words_expand_as_in_docker(word: str, value: str) -> None:
    """Variables of the base are expanded by the shell of the build."""
    found = instructions.expand(word, {"A": "1", "B": ""})
    script = f"printf %s {found.shell()}"
    environment = {"HOME_OF_BASE": "/base"}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == value


def test_mutated_dockerfiles_end_in_a_definition_or_in_an_error_of_the_user(folder: Path, chance: Random) -> None:
    whole = (HERE / "Dockerfile").read_text()
    built = 0
    inserted = [*"\n\\\"'${}%<#,\x00é[]", "FROM ", "{{", "\nENV A\n"]
    for _ in range(100):
        text = list(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 30)] = chance.choice(inserted)
        try:
            definition_file.lint(definition(folder, "".join(text)))
            built += 1
        except UserError:
            continue
    assert built > 5, "some mutations must leave a Dockerfile"


def test_a_run_names_a_dockerfile(folder: Path) -> None:
    (folder / "site.yaml").write_text(SITE)
    (folder / "run.yaml").write_text("name: x\nsite: ./site.yaml\nnodes: 1\ncommand: ['true']\nimage: ./Dockerfile\n")
    assert load(folder / "run.yaml").run.image == "./Dockerfile"
    assert parse(str(folder / "Dockerfile")).kind == "image file"
    (folder / "train.docker").write_text(TINY)
    for name in ("Dockerfile", "train.docker"):
        assert image_file.load(image_file.find(f"./{name}", folder)).dockerfile == name


def test_convert_writes_the_definition_with_its_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    Path("site.yaml").write_text(SITE)
    assert main(["image", "convert", "Dockerfile", "--to", "out", "--site", "./site.yaml"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "out" / "image.def")
    read = definition_file.stages(Path("out/image.def").read_text())[-1].sections["files"].split()
    assert all(Path("out", name).exists() for name in read if name.startswith("files/"))
    assert main(["image", "render", "Dockerfile", "--site", "./site.yaml"]) == 0
    assert capsys.readouterr().out == Path("out/image.def").read_text()
    assert main(["image", "convert", "Dockerfile", "--to", "out", "--site", "./site.yaml"]) == 2
    Path("src", "again").symlink_to("again")
    assert main(["image", "convert", "Dockerfile", "--to", "new", "--site", "./site.yaml"]) == 2
    assert "src/again: this link leads to again, which leads back to it" in capsys.readouterr().err
    assert not Path("new").exists()
    Path("src", "again").unlink()
    assert main(["schema", "run"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["image"]["anyOf"]
