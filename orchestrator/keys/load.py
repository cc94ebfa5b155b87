"""Reads spec files: a run by its path, a site by its name or path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.as_asked import as_asked
from torusrun.orchestrator.keys.main_role import with_main
from torusrun.orchestrator.keys.nodes import KeyValue, clipped, compose, keys
from torusrun.orchestrator.keys.paths import absolute, checked, config_home, decoded, exists, expanded, read_bytes
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError
from torusrun.orchestrator.keys.read import Marks, read, read_tree
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site, SiteMeasurements
from torusrun.orchestrator.keys.typed_run import TypedRun
from torusrun.training.recipe.near import did_you_mean

SHIPPED = Path(__file__).parent / "sites"
LARGEST_BYTES = 1_000_000


@dataclass(frozen=True)
class Loaded:
    """A run and its site, with the text of the run's file and the place of every key.

    Relative paths of the run begin at `folder`. `files` are the files of the run and its site.
    """

    run: RunSpec
    site: Site
    text: str
    source: str
    marks: Marks
    site_source: str
    site_marks: Marks
    folder: Path
    files: tuple[str, ...]

    def problem(self, key: str, message: str) -> Problem:
        """A problem with `key` of the run, or with the whole run if the key is not in the file."""
        return Problem(self.marks.get(key, Mark(self.source)), message)

    def site_problem(self, key: str, message: str) -> Problem:
        return Problem(self.site_marks.get(key, Mark(self.site_source)), message)


RunSource = str | Path | TypedRun  # of a run: the path of its file, or its options


def load(path: RunSource, *, site: str | None = None, settings: Sequence[str | KeyValue] = ()) -> Loaded:
    """Read the run at `path` and its site; `site` and `settings` override the file.

    A path of a site in the file is relative to the file; `site` is relative to the working directory.
    """
    typed = path if isinstance(path, TypedRun) else None
    source, folder = str(typed or checked(str(path))), folder_of(path)
    text = typed.text() if typed else read_text(Path(source), "run")
    root = typed.tree() if typed else compose(text, source)
    run, marks = read_tree(RunSpec, root, source, [*settings, *([f"--site={site}"] if site else [])])
    run, problems = with_main(run, marks)
    if problems:
        raise SpecError(problems)
    site_path = find_site(run.site, Path() if site else folder, marks["site"])
    loaded_site, site_marks = read(Site, read_text(site_path, "site"), str(site_path))
    run, loaded_site, beyond = as_asked(run, as_measured(loaded_site, site_path))
    if beyond:
        raise SpecError([Problem(marks.get(key, Mark(source)), message) for key, message in beyond])
    files = (*(() if typed else (source,)), str(site_path))
    return Loaded(run, loaded_site, text, source, marks, str(site_path), site_marks, absolute(folder), files)


def is_sweep(path: RunSource, site: str | None = None, settings: Sequence[str] = ()) -> bool:
    """Whether the run file at `path` makes several runs."""
    return load(path, site=site, settings=settings).run.sweep is not None


def folder_of(path: RunSource) -> Path:
    """The folder at which relative paths of a run begin."""
    return path.folder if isinstance(path, TypedRun) else checked(path).parent


def load_site(name: str) -> Site:
    """The site with this name or path from the command line."""
    path = site_file(name)
    return as_measured(read(Site, read_text(path, "site"), str(path))[0], path)


def site_file(name: str) -> Path:
    """The file of the site with this name or path from the command line."""
    return find_site(name, Path(), Mark(f"--site {clipped(name)}"))


def as_measured(site: Site, site_file: Path) -> Site:
    """The site with the measurements of `torusrun calibrate`, if there are any."""
    measurements = measured_at(site_file)
    return measurements.at(site) if measurements else site


def measured_at(site_file: Path) -> SiteMeasurements | None:
    """The measurements of the site in `site_file`, or None."""
    place = measured_place(site_file)
    return read(SiteMeasurements, read_text(place, "measurement"), str(place))[0] if exists(place) else None


def measured_place(site_file: Path) -> Path:
    """The file of a site's measurements: next to its file, or with the user's own sites if it is shipped."""
    return (site_folders()[0] if site_file.parent == SHIPPED else site_file.parent) / f"{site_file.stem}.measured"


def is_run(name: str) -> bool:
    """Whether the file `name` is a run, not an image file: only a run names a site."""
    path = checked(name)
    if not path.is_file():
        return False
    root = compose(read_text(path, "run"), name)
    return root is not None and "site" in keys(root)


def read_text(path: Path, what: str) -> str:
    """The text of a spec's file. Raises UserError with the reason if it cannot be read."""
    try:
        return decoded(read_bytes(path, LARGEST_BYTES))
    except FileNotFoundError:
        if path.is_symlink():
            raise UserError(f"{path}: this is a link to a file that does not exist") from None
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.yaml")]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such file{near}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: this is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read as a {what}'s YAML file: {error.strerror}") from None


def site_folders() -> list[Path]:
    """The folders of named sites: the user's own, then torusrun's. Raises UserError without a home folder."""
    return [config_home() / "torusrun" / "sites", SHIPPED]


def site_names() -> list[str]:
    return sorted({path.stem for folder in site_folders() for path in folder.glob("*.yaml")})


def find_site(name: str, beside: Path, mark: Mark) -> Path:
    """The file of a site. A name with a slash or ending in .yaml is a path, relative to `beside`.

    Raises SpecError at `mark` if no file is the site's.
    """
    try:
        return _site(name, beside)
    except UserError as error:
        raise SpecError([Problem(mark, str(error))]) from None


def _site(name: str, beside: Path) -> Path:
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = beside / expanded(name)
        if exists(path):
            return path
        raise UserError(f"the site's file {path} does not exist")
    folders = site_folders()
    for folder in folders:
        if exists(path := folder / f"{name}.yaml") or path.is_symlink():
            return path
    known = site_names()
    hint = did_you_mean(name, known) or f"; or write {folders[0] / name}.yaml"
    raise UserError(f"there is no site {name!r} (known: {', '.join(known)}){hint}")
