"""Specs from files: the run by its path, the site by its name or path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.spec.measured import Measured, place_of
from orchestrator.spec.nodes import compose, keys
from orchestrator.spec.problems import Mark, Problem, SpecError, did_you_mean
from orchestrator.spec.read import Marks, read
from orchestrator.spec.run import RunSpec
from orchestrator.spec.site import Site

SHIPPED = Path(__file__).parent / "sites"
LARGEST_BYTES = 1_000_000


@dataclass(frozen=True)
class Loaded:
    """A run and its site as read, with the text of the run's file and where every key stands."""

    run: RunSpec
    site: Site
    text: str
    source: str
    marks: Marks
    site_source: str
    site_marks: Marks

    def problem(self, key: str, message: str) -> Problem:
        """A problem with `key` of the run, or with the run as a whole where it does not stand."""
        return Problem(self.marks.get(key, Mark(self.source)), message)

    def site_problem(self, key: str, message: str) -> Problem:
        """A problem with `key` of the site."""
        return Problem(self.site_marks.get(key, Mark(self.site_source)), message)


def load(path: str | Path, *, site: str | None = None, settings: Sequence[str] = ()) -> Loaded:
    """Read the run at `path` and its site; `site` and `settings` override what the file says."""
    text = read_text(Path(path), "run")
    run, marks = read(RunSpec, text, str(path), [*settings, *([f"site={site}"] if site else [])])
    site_path = find_site(run.site, Path(path).parent, marks["site"])
    loaded_site, site_marks = read(Site, read_text(site_path, "site"), str(site_path))
    return Loaded(run, as_measured(loaded_site, site_path), text, str(path), marks, str(site_path), site_marks)


def load_site(name: str) -> Site:
    """The site with this name or path, as named on the command line."""
    path = find_site(name, Path(), Mark(f"--site {name}"))
    return as_measured(read(Site, read_text(path, "site"), str(path))[0], path)


def as_measured(site: Site, site_file: Path) -> Site:
    """The site with what `torusrun calibrate` has measured there, if it has."""
    found = measured_at(site_file)
    return found.at(site) if found else site


def measured_at(site_file: Path) -> Measured | None:
    """What has been measured at the site in `site_file`."""
    place = measured_place(site_file)
    return read(Measured, read_text(place, "measurement"), str(place))[0] if place.exists() else None


def measured_place(site_file: Path) -> Path:
    """Where that is kept."""
    return place_of(site_file, site_folders()[0], SHIPPED)


def is_run(name: str) -> bool:
    """Whether the file `name` is a run, not a recipe: a run names its site."""
    if not Path(name).is_file():
        return False
    root = compose(read_text(Path(name), "run"), name)
    return root is not None and "site" in keys(root)


def read_text(path: Path, what: str) -> str:
    """The text of a spec's file. Raises UserError saying why it cannot be had."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UserError(f"{path}: this is too large to be a {what} ({path.stat().st_size} bytes)")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.yaml")]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such file{near}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; name the {what}'s YAML file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: this is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def site_folders() -> list[Path]:
    """Where sites are looked up by name: the user's own first, then those shipped."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [config / "torusrun" / "sites", SHIPPED]


def find_site(name: str, beside: Path, mark: Mark) -> Path:
    """The file of a site. A name with a slash or ending in .yaml is a path, relative to the run's file."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = beside / Path(name).expanduser()
        if path.is_file():
            return path
        raise SpecError([Problem(mark, f"the site's file {path} does not exist")])
    for folder in site_folders():
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = sorted({p.stem for folder in site_folders() for p in folder.glob("*.yaml")})
    hint = did_you_mean(name, known) or f"; or write {site_folders()[0] / name}.yaml"
    raise SpecError([Problem(mark, f"there is no site {name!r} (known: {', '.join(known)}){hint}")])
