"""A definition as text: its stages as the runtimes read them, its mistakes, its inputs, and the same as a Dockerfile.

A user's own definition is built unchanged, in its own folder. All of its inputs are part of the key.

spython reads a definition and writes the Dockerfile. It goes line by line, and would make a RUN of each line of %post.
So it gets a mark in place of such a section, and the section follows in one piece, as a here-document of BuildKit.
"""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.build_secrets import LOGIN_MEND, has_login
from torusrun.orchestrator.images.definitions.inputs import Inputs, base_checksum, existing
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import expanded

SECTIONS = {"files", "post", "environment", "labels", "test", "runscript", "help"}
BOOTSTRAPS = {"docker", "localimage", "docker-archive", "oci-archive"}
LARGEST_SECTION_BYTES = 64 * 1024  # a longer section ends the runtime's scanner: "token too long"
LOCAL = ("localimage", "docker-archive", "oci-archive", "oci")
NETWORK_FREE = (*LOCAL, "scratch")
SILENT = -9  # below all levels of spython's messages
MARK = "torusrun-section-{}"
LEFT_OUT = {"test": "Docker tests no image", "help": "an image of Docker has no help"}
SIMPLE = re.compile(r"(export )?[A-Za-z_][A-Za-z0-9_]*=\S*|#.*|")
RUNSCRIPT = "/.torusrun-runscript"


@dataclass
class Stage:
    """One stage as the runtime reads it: header keys in lower case, and the text below each %section line."""

    header: dict[str, str] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)


def stages(definition: str) -> list[Stage]:
    """The stages of a definition, split by the rules of the runtime (Apptainer, pkg/build/types/parser/deffile.go)."""
    read: list[Stage] = []
    section = ""
    for text in definition.split("\n"):
        if re.match("(?i)bootstrap:", text):
            read.append(Stage())
            section = ""
        if not read:
            continue
        word = text.split(maxsplit=1)[0] if text.split() else ""
        if word.startswith("%"):
            section = text.strip().removeprefix("%")
            read[-1].sections.setdefault(section, "")
        elif section:
            read[-1].sections[section] += text + "\n"
        elif ":" in text:
            key, _, value = text.partition(":")
            read[-1].header[key.strip().lower()] = value.split("#")[0].strip()
    return read


def problems(definition: str) -> Iterator[str]:
    """All parts of a definition that a runtime would refuse or misread."""
    read = stages(definition)
    if not read:
        yield "it has no 'Bootstrap:' line"
    if "{{" in definition:
        yield "it holds '{{', which newer runtimes take for a build argument"
    for number, stage in enumerate(read, 1):
        where = f"stage {number}: "
        if stage.header.get("bootstrap") not in BOOTSTRAPS:
            yield f"{where}unknown bootstrap {stage.header.get('bootstrap')!r}"
        if not stage.header.get("from"):
            yield f"{where}it does not say 'From:'"
        if len(read) > 1 and not stage.header.get("stage"):
            yield f"{where}one of several stages must have a name ('Stage:')"
        for name, text in stage.sections.items():
            if name.split()[0] not in SECTIONS:
                yield f"{where}unknown section %{name}"
            if len(text.encode()) > LARGEST_SECTION_BYTES:
                yield f"{where}%{name} is longer than the {LARGEST_SECTION_BYTES} bytes that a runtime reads"


def labels(definition: str) -> dict[str, str]:
    """The labels that the image of a definition has."""
    lines = map(str.strip, stages(definition)[-1].sections.get("labels", "").split("\n"))
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return {name: value.strip() for name, _, value in pairs}


def lint(definition: str) -> None:
    """Raise UserError if a definition cannot be built."""
    if wrong := list(problems(definition)):
        raise UserError("the definition cannot be built: " + "; ".join(wrong))


def own_inputs(name: str, beside: Path, training: str, offline: bool) -> Inputs:
    """The inputs of the definition `name`, a path relative to `beside`. Raises UserError if it cannot be built."""
    path = (beside / expanded(name)).absolute()
    text = read_text(path, "definition")
    read = stages(text)
    if not read:
        raise UserError(f"{path}: this is not a definition: it has no 'Bootstrap:' line")
    if has_login(text):
        raise UserError(f"{path}: a URL {LOGIN_MEND} of an image file that names this 'definition'")
    kinds = {stage.header.get("bootstrap", "") for stage in read}
    if offline and (online := sorted(kinds - {*NETWORK_FREE})):
        raise UserError(f"{path}: an offline build cannot start from {online[0]!r}, which needs the network")
    local = [stage.header.get("from", "") for stage in read if stage.header.get("bootstrap") in LOCAL]
    return Inputs(
        text,
        base_identity=" ".join(base_checksum(existing(path.parent, base, "base")) for base in local),
        directory=path.parent,
        beside=tuple(_files(read, path)),
        labels={"torusrun.training": training},
    )


def _files(stages: list[Stage], path: Path) -> Iterator[tuple[str, Path]]:
    """(path as written, its place here) of everything that %files copies from this machine."""
    for stage in stages:
        for line in stage.sections.get("files", "").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                raise UserError(f"{path}: %files: {line.strip()!r} has an open quote") from None
            if not words:
                continue
            if "{{" in words[0]:
                raise UserError(f"{path}: %files: {words[0]!r} has a build argument; write the path itself")
            pattern = expanded(words[0])
            paths = sorted(Path("/").glob(str(Path(glob.escape(str(path.parent)), pattern))[1:]))
            if not paths:
                raise UserError(f"{path}: %files: {words[0]} does not exist")
            yield from ((f"{words[0]} {number}", entry) for number, entry in enumerate(paths))


def dockerfile(definition: str, path: str) -> tuple[str, tuple[str, ...]]:
    """(the Dockerfile of the definition in the file `path`, notes for the user).

    Raises UserError for what a Dockerfile cannot say.
    """
    from spython.logger import bot
    from spython.main.parse.parsers.singularity import SingularityParser
    from spython.main.parse.writers.docker import DockerWriter

    read = stages(definition)
    texts: list[str] = []
    bot.level = SILENT  # it prints on the standard error of the time of its import
    parser = SingularityParser(None, load=False)
    parser.lines = [line + "\n" for stage in read for line in _lines(stage, texts, path)]
    recipes = parser.parse()
    for recipe, stage in zip(recipes.values(), read, strict=True):
        recipe.fromHeader = stage.header["from"]  # spython's is in lower case
    written = DockerWriter(recipes).convert()
    for number, text in enumerate(texts):
        written = written.replace(MARK.format(number), f"<<'END{number}'\nset -e\n{text.rstrip()}\nEND{number}")
    sections = read[-1].sections
    if script := sections.get("runscript", "").rstrip():
        written += f"\nCOPY --chmod=755 <<'END' {RUNSCRIPT}\n#!/bin/sh\n{script}\nEND\nENTRYPOINT [\"{RUNSCRIPT}\"]"
    names = dict.fromkeys(name for stage in read for name in stage.sections if name in LEFT_OUT)
    return written + "\n", tuple(f"{path}: %{name} is left out: {LEFT_OUT[name]}" for name in names)


def _lines(stage: Stage, texts: list[str], path: str) -> Iterator[str]:
    """A stage for spython, the text of %post in `texts`. Raises UserError for what a Dockerfile cannot say."""
    if stage.header.get("bootstrap") != "docker" or not stage.header.get("from"):
        raise UserError(f"{path}: only an image of a registry can be the FROM of a Dockerfile (Bootstrap: docker)")
    yield "Bootstrap: docker"
    yield f"From: {stage.header['from']}"
    if name := stage.header.get("stage"):
        yield f"Stage: {name}"
    for section, text in stage.sections.items():
        kind = section.split()[0]
        if kind in ("setup", "pre", "appinstall", "startscript"):
            raise UserError(f"{path}: %{kind} has no equal in a Dockerfile; move it into %post")
        if kind == "environment" and (line := next((x for x in text.splitlines() if not _is_simple(x)), "")):
            raise UserError(f"{path}: %environment: {line.strip()!r} is no plain NAME=VALUE, and ENV takes no other")
        if kind == "post":
            texts.append(text)
            text = MARK.format(len(texts) - 1)
        if kind in ("post", "environment", "labels", "files"):
            yield f"%{section}"
            yield ""  # without it spython takes a first line such as `apt-get install debootstrap` for a header
            yield from text.splitlines()


def _is_simple(line: str) -> bool:
    """Whether ENV can express a line of %environment: a quoted value may hold spaces, but no command."""
    plain = re.sub(r"=(\"[^\"`]*\"|'[^'\"$`]*')$", "=x", line.strip())
    return SIMPLE.fullmatch(plain) is not None and not re.search(r"\$\(|`", line)
