"""Reads a definition as the runtimes do, and reports its mistakes before a build starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from torusrun.orchestrator.base.errors import UserError

SECTIONS = {"files", "post", "environment", "labels", "test", "runscript", "help"}
BOOTSTRAPS = {"docker", "oras", "debootstrap", "localimage", "docker-archive", "oci-archive"}
LARGEST_SECTION_BYTES = 64 * 1024  # a longer section ends the runtime's scanner: "token too long"


@dataclass
class Stage:
    """One stage as the runtime reads it: header keys in lower case, and the text below each %section line."""

    header: dict[str, str] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)


def stages(definition: str) -> list[Stage]:
    """The stages of a definition, split by the rules of the runtime (Apptainer, pkg/build/types/parser/deffile.go)."""
    found: list[Stage] = []
    section = ""
    for text in definition.split("\n"):
        if re.match("(?i)bootstrap:", text):
            found.append(Stage())
            section = ""
        if not found:
            continue
        word = text.split(maxsplit=1)[0] if text.split() else ""
        if word.startswith("%"):
            section = text.strip().removeprefix("%")
            found[-1].sections.setdefault(section, "")
        elif section:
            found[-1].sections[section] += text + "\n"
        elif ":" in text:
            key, _, value = text.partition(":")
            found[-1].header[key.strip().lower()] = value.split("#")[0].strip()
    return found


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
        if stage.header.get("bootstrap") != "debootstrap" and not stage.header.get("from"):
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
    lines = stages(definition)[-1].sections.get("labels", "").split("\n")
    pairs = [line.strip().partition(" ") for line in lines if line.strip() and not line.strip().startswith("#")]
    return {name: value.strip() for name, _, value in pairs}


def lint(definition: str) -> None:
    """Raise UserError if a definition cannot be built."""
    if found := list(problems(definition)):
        raise UserError("the definition cannot be built: " + "; ".join(found))
