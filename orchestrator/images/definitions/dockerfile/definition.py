"""The inputs of a build from a Dockerfile: its definition, the files that it copies, and what has no effect in it.

spython's conversion is not used. It reads a Dockerfile line by line: it merges stages, loses quotes and all but the
first of several words, runs COPY before everything, and ends with an exception for others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator.base import templates
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.templates import Text
from torusrun.orchestrator.images.command import HOST_MPI, TRAINING
from torusrun.orchestrator.images.definitions import build_secrets, definition_file
from torusrun.orchestrator.images.definitions.build_secrets import LOGIN_MEND, has_login
from torusrun.orchestrator.images.definitions.definition import WHEELHOUSE, Variant, from_registry, header, line, shell
from torusrun.orchestrator.images.definitions.dockerfile import instructions, stages
from torusrun.orchestrator.images.definitions.dockerfile.context import Context
from torusrun.orchestrator.images.definitions.dockerfile.recipe import COPIED, Recipe
from torusrun.orchestrator.images.definitions.image_file import Base, ImageFile
from torusrun.orchestrator.images.definitions.inputs import Inputs
from torusrun.orchestrator.images.definitions.requirements import BUILD_ONLY
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError

OFFLINE = ("export PIP_NO_INDEX=1", f"export PIP_FIND_LINKS={WHEELHOUSE}")


@dataclass(frozen=True)
class Section:
    """A stage of the definition, as the template writes it."""

    header: list[Text]
    name: Text | None = None
    files: tuple[tuple[Text, list[Text]], ...] = ()
    post: tuple[Text, ...] = ()
    environment: tuple[Text, ...] = ()
    labels: tuple[Text, ...] = ()
    runscript: tuple[Text, ...] = ()
    last: bool = False


def convert(image_file: ImageFile, beside: Path, variant: Variant, collected: Inputs) -> Inputs:
    """`collected`, with the definition of the Dockerfile that an image file in `beside` names, and the files it copies.

    Raises SpecError, with the line, for all that cannot be expressed.
    """
    path = (beside / expanded(str(image_file.dockerfile))).absolute()
    text = read_text(path, "Dockerfile")
    for number, written in enumerate(text.splitlines(), 1):
        if has_login(written):
            raise SpecError([Problem(Mark(str(path), number, 1), f"the line {LOGIN_MEND} of an image file")])
    read = instructions.read(text, path)
    given = dict(image_file.arguments)
    arranged = stages.arrange(read, path, given, image_file.target)
    context, files = Context(_context(image_file, path, beside), path), list(collected.files)

    def take(source: Path) -> str:
        name = f"files/{len({known.split('/')[1] for known, _ in files})}"
        whole = context.whole(source)
        inner = [source] if whole else context.files(source)
        files.extend((name if whole else f"{name}/{file.relative_to(source)}", file) for file in inner)
        return name

    recipes = [Recipe(stage, arranged, context, given, take).fill() for stage in arranged.stages]
    images = [Section(from_registry(image), Text(label)) for image, label in arranged.copied.items()]
    several = len(recipes) > 1 or bool(images)
    sections = [_section(recipe, image_file, recipe is recipes[-1], several) for recipe in recipes]
    definition = templates.render(
        "container/dockerfile.def.j2",
        stages=[*images, *sections],
        image=image_file,
        at={"training": TRAINING, "host_mpi": HOST_MPI, "build_only": BUILD_ONLY, "copied": COPIED},
        shell=shell,
        secrets=build_secrets.variables(image_file.secrets),
        encoded=Text(build_secrets.ENCODED),
        packages=[Text(entry) for entry in OFFLINE] if variant.wheelhouse else [],
    )
    definition_file.lint(definition)
    labels = {"torusrun.training": image_file.training}
    notes = tuple(dict.fromkeys(note for recipe in recipes for note in recipe.notes))
    return replace(collected, definition=definition, files=tuple(files), labels=labels, notes=notes, keeps_modes=True)


def _context(image_file: ImageFile, path: Path, beside: Path) -> Path:
    """The folder from which a Dockerfile copies. Raises UserError if it does not exist."""
    folder = absolute(image_file.context, beside) if image_file.context else path.parent
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder, from which the Dockerfile could copy ('context')")
    return folder


def _section(recipe: Recipe, image_file: ImageFile, last: bool, several: bool) -> Section:
    own = image_file.base != Base()
    origins = dict.fromkeys(origin for origin, _, _ in recipe.files)
    files = [
        (
            Text(f" from {origin}" if origin else ""),
            [Text(f"{line(name, 'path')} {to}") for stage, name, to in recipe.files if stage == origin],
        )
        for origin in origins
    ]
    labels = {**recipe.labels, **image_file.labels, "torusrun.image": image_file.name} if last else {}
    return Section(
        header(image_file) if own else from_registry(recipe.stage.image),
        Text(recipe.stage.label) if several else None,
        tuple(files),
        tuple(recipe.post),
        tuple(Text(f"export {name}={value.shell()}") for name, value in recipe.environment) if last else (),
        tuple(Text(f"{line(name, 'label')} {line(value, 'label')}") for name, value in labels.items()),
        tuple(recipe.runscript()) if last else (),
        last=last,
    )
