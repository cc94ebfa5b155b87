"""The stages of a Dockerfile: which are needed, on what each is based, and what its variables are before its FROM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.dockerfile.instructions import Instruction, expand, split
from torusrun.orchestrator.images.sif import own_platform
from torusrun.orchestrator.images.source import REFERENCE
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError
from torusrun.training.recipe.near import did_you_mean


@dataclass(frozen=True)
class BuildStage:
    """A stage with all instructions that make it, those of the stages on which it is based first."""

    number: int
    name: str  # '' without AS
    image: str  # the reference of its base
    instructions: tuple[Instruction, ...]

    @property
    def label(self) -> str:
        """Its name in the definition."""
        return f"stage-{self.number}"


@dataclass(frozen=True)
class Dockerfile:
    """The needed stages in order, of which the last is the image; `arguments` are the ARGs before the first FROM."""

    stages: tuple[BuildStage, ...]
    arguments: Mapping[str, str]
    copied: Mapping[str, str]  # image: the label of its stage, for COPY --from=IMAGE

    def origin(self, step: Instruction) -> str:
        """The label of the stage from which a COPY takes files, the name of an image, or '' for files of the user."""
        named = step.flag("from")
        numbers = {str(stage.number): stage.label for stage in self.stages}
        names = {stage.name.lower(): stage.label for stage in self.stages if stage.name}
        return {**numbers, **names}.get(named.lower(), named)


def arrange(
    instructions: list[Instruction], path: Path, given: Mapping[str, str], target: str | None = None
) -> Dockerfile:
    """The stages that the stage `target`, by default the last one, needs. `given` are build arguments.

    Raises SpecError if a FROM cannot be read, UserError for an argument or a target that the Dockerfile does not have.
    """
    words = (word for step in instructions if step.word == "ARG" for word in split(step.text))
    declared = {word.partition("=")[0] for word in words}
    if unknown := [name for name in given if name not in declared]:
        raise UserError(f"{path}: it has no ARG {unknown[0]}{did_you_mean(unknown[0], sorted(declared))}")
    before: dict[str, str] = {}
    stages: list[BuildStage] = []
    for step in instructions:
        if step.word == "FROM":
            stages.append(_stage(step, len(stages), before, stages))
        elif stages:
            stages[-1] = replace(stages[-1], instructions=(*stages[-1].instructions, step))
        elif step.word == "ARG":
            before.update(defaults(step, {**before}, given))
        else:
            raise step.wrong("the first instruction must be FROM, and only ARG may come before it")
    if not stages:
        raise SpecError([Problem(Mark(str(path)), "it has no FROM, so it cannot be built as a Dockerfile")])
    wanted = _find(target, stages) if target else stages[-1]
    if wanted is None:
        named = [stage.name for stage in stages if stage.name]
        raise UserError(f"{path}: it has no stage {target!r}{did_you_mean(str(target), named)}")
    return _needed(wanted, stages, before)


def defaults(step: Instruction, known: Mapping[str, str | None], given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name, value) of every variable that an ARG sets."""
    for word in split(step.text):
        name, equals, value = word.partition("=")
        if name in given:
            yield name, given[name]
        elif equals and (plain := expand(value, known).plain) is not None:
            yield name, plain


def _stage(step: Instruction, number: int, before: Mapping[str, str], stages: list[BuildStage]) -> BuildStage:
    words = step.text.split()
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        raise step.wrong("it must be `FROM IMAGE` or `FROM IMAGE AS NAME`")
    if (platform := step.flag("platform")) and "$" not in platform and platform != own_platform():
        raise step.wrong(f"--platform={platform}: an image is built for the processor of this machine; leave it out")
    name = words[2] if len(words) == 3 else ""
    try:
        image = expand(words[0], before).plain
    except UserError as error:
        raise step.wrong(str(error)) from None
    if not image:
        raise step.wrong(f"{words[0]} has no value; give the ARG before it a default, or name it in 'arguments'")
    if image.lower() == "scratch":
        raise step.wrong("an empty image has no program; begin with an image that has an operating system")
    if parent := _find(image, stages):
        return replace(parent, number=number, name=name)
    if not REFERENCE.fullmatch(image):
        raise step.wrong(f"{image!r} is not a reference of an image, as in debian:bookworm")
    return BuildStage(number, name, image, ())


def _find(name: str, stages: list[BuildStage]) -> BuildStage | None:
    """The newest stage with this name or number."""
    return next((s for s in reversed(stages) if name.lower() == s.name.lower() or name == str(s.number)), None)


def _needed(wanted: BuildStage, stages: list[BuildStage], before: Mapping[str, str]) -> Dockerfile:
    numbers = {wanted.number}
    images: dict[str, str] = {}
    for stage in reversed(stages):  # a stage copies from earlier stages alone
        for step in stage.instructions if stage.number in numbers else ():
            if step.word not in ("COPY", "ADD") or not (named := step.flag("from")):
                continue
            if earlier := _find(named, stages[: stage.number]):
                numbers.add(earlier.number)
            elif REFERENCE.fullmatch(named):
                images[named] = f"image-{len(images)}"
            else:
                raise step.wrong(f"--from={named}: there is no such stage, and it is not a reference of an image")
    return Dockerfile(tuple(stages[number] for number in sorted(numbers)), before, images)
