"""A definition as a Dockerfile, for a machine without Apptainer. spython reads the one and writes the other.

spython goes line by line, and would make a RUN of each line of %post. So it gets a mark in place of such a section, and
the section follows in one piece, as a here-document of BuildKit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.lint import Stage, stages

SILENT = -9  # below all levels of spython's messages
MARK = "torusrun-section-{}"
LEFT_OUT = {"test": "Docker tests no image", "help": "an image of Docker has no help"}
SIMPLE = re.compile(r"(export )?[A-Za-z_][A-Za-z0-9_]*=\S*|#.*|")
RUNSCRIPT = "/.torusrun-runscript"


def dockerfile(definition: str, path: str) -> tuple[str, tuple[str, ...]]:
    """(the Dockerfile of the definition in the file `path`, notes for the user).

    Raises UserError for what a Dockerfile cannot say.
    """
    from spython.logger import bot
    from spython.main.parse.parsers.singularity import SingularityParser
    from spython.main.parse.writers.docker import DockerWriter

    read = stages(definition)
    texts: list[str] = []
    bot.level = SILENT  # it prints on the standard error that it found at its import
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
    """True for a line of %environment that ENV can express: a quoted value may hold spaces, but no command."""
    plain = re.sub(r"=(\"[^\"`]*\"|'[^'\"$`]*')$", "=x", line.strip())
    return SIMPLE.fullmatch(plain) is not None and not re.search(r"\$\(|`", line)
