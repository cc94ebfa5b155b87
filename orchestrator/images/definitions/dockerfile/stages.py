"""The stages of a Dockerfile: which are needed, on what each is based, and what its variables are before its FROM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.dockerfile.instructions import Instruction
from torusrun.orchestrator.images.definitions.dockerfile.words import expand, split
from torusrun.orchestrator.images.sif import own_platform
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError
from torusrun.training.recipe.near import did_you_mean

REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")


@dataclass(frozen=True)
class BuildStage:
    """A stage with all instructions that make it, those of the stages on which it is based first."""

    number: int
    name: str  # '' without AS
    image: str  # the reference of its base
    base: Instruction  # the FROM that names the image
    scratch: bool = field(default=False, kw_only=True)  # an empty stage, which other stages copy from
    instructions: tuple[Instruction, ...]

    @property
    def label(self) -> str:
        """Its name in the definition."""
        return f"stage-{self.number}"


@dataclass(frozen=True)
class Dockerfile:
    """The needed stages in order, the last one is the image; `arguments` are those before the first FROM."""

    stages: tuple[BuildStage, ...]
    arguments: Mapping[str, str]
    copied: Mapping[str, str]  # image: the label of its stage, for COPY --from=IMAGE


def arrange(
    instructions: list[Instruction], path: Path, given: Mapping[str, str], target: str | None = None
) -> Dockerfile:
    """The stages that the stage `target`, by default the last one, needs. `given` are build arguments.

    Raises SpecError if a FROM cannot be read, UserError for an argument or a target that the Dockerfile does not have.
    """
    words = (word for one in instructions if one.word == "ARG" for word in split(one.text, one.escape))
    declared = {word.partition("=")[0] for word in words}
    if unknown := [name for name in given if name not in declared]:
        raise UserError(f"{path}: it has no ARG {unknown[0]}{did_you_mean(unknown[0], sorted(declared))}")
    before: dict[str, str] = {}
    stages: list[BuildStage] = []
    for one in instructions:
        if one.word == "FROM":
            stages.append(_stage(one, len(stages), before, stages))
        elif stages:
            stages[-1] = replace(stages[-1], instructions=(*stages[-1].instructions, one))
        elif one.word == "ARG":
            before.update(defaults(one, {**before}, given))
        else:
            raise one.wrong("the first instruction must be FROM, and only ARG may come before it")
    if not stages:
        raise SpecError([Problem(Mark(str(path)), "it has no FROM, so it cannot be built as a Dockerfile")])
    wanted = _find(target, stages) if target else stages[-1]
    if wanted is None:
        named = [stage.name for stage in stages if stage.name]
        raise UserError(f"{path}: it has no stage {target!r}{did_you_mean(str(target), named)}")
    if wanted.scratch:
        why = "an empty image cannot run a training; begin with an image that has an operating system"
        raise wanted.base.wrong(why)
    return _needed(wanted, stages, before)


def defaults(one: Instruction, known: Mapping[str, str | None], given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name, value) of every variable that an ARG sets."""
    for word in split(one.text, one.escape):
        name, equals, value = word.partition("=")
        if name in given:
            yield name, given[name]
        elif equals and (plain := expand(value, known, one.escape).plain) is not None:
            yield name, plain


def source(one: Instruction, stages: Mapping[str, str]) -> str:
    """The label of the stage from which a COPY takes files, the name of an image, or '' for files of the user."""
    named = one.flag("from")
    return stages.get(named.lower(), named)


def labels(stages: tuple[BuildStage, ...]) -> dict[str, str]:
    """The labels of stages by all their names."""
    names = {str(stage.number): stage.label for stage in stages}
    return {**names, **{stage.name.lower(): stage.label for stage in stages if stage.name}}


def _stage(one: Instruction, number: int, before: Mapping[str, str], stages: list[BuildStage]) -> BuildStage:
    words = one.text.split()
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        raise one.wrong("it must be `FROM IMAGE` or `FROM IMAGE AS NAME`")
    if (platform := one.flag("platform")) and "$" not in platform and platform != own_platform():
        raise one.wrong(f"--platform={platform}: an image is built for the processor of this machine; leave it out")
    name = words[2] if len(words) == 3 else ""
    try:
        image = expand(words[0], before).plain
    except UserError as error:
        raise one.wrong(str(error)) from None
    if not image:
        raise one.wrong(f"{words[0]} has no value; give the ARG before it a default, or name it in 'arguments'")
    if image.lower() == "scratch":
        return BuildStage(number, name, image, one, (), scratch=True)
    if parent := _find(image, stages):
        return replace(parent, number=number, name=name)
    if not REFERENCE.fullmatch(image):
        raise one.wrong(f"{image!r} is not a reference of an image, as in debian:bookworm")
    return BuildStage(number, name, image, one, ())


def _find(name: str, stages: list[BuildStage]) -> BuildStage | None:
    """The newest stage with this name or number."""
    return next((s for s in reversed(stages) if name.lower() == s.name.lower() or name == str(s.number)), None)


def _needed(wanted: BuildStage, stages: list[BuildStage], before: Mapping[str, str]) -> Dockerfile:
    numbers = {wanted.number}
    images: dict[str, str] = {}
    for stage in reversed(stages):  # a stage copies from earlier ones alone
        for one in stage.instructions if stage.number in numbers else ():
            if one.word not in ("COPY", "ADD") or not (named := one.flag("from")):
                continue
            if found := _find(named, stages[: stage.number]):
                numbers.add(found.number)
            elif REFERENCE.fullmatch(named):
                images[named] = f"image-{len(images)}"
            else:
                raise one.wrong(f"--from={named}: there is no such stage, and it is not a reference of an image")
    needed = (stages[number] for number in sorted(numbers))
    # An empty stage only keeps files for others. It keeps them in the image that is there in any case.
    filled = (replace(stage, image=wanted.image) if stage.scratch else stage for stage in needed)
    return Dockerfile(tuple(filled), before, images)
