"""All sites that --site can name, and the contents of their files."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.private import plain
from torusrun.orchestrator.base.shown.table import Column, Long, Table
from torusrun.orchestrator.keys.load import SHIPPED, read_text, site_folders
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site


@dataclass(frozen=True)
class ListedSite:
    """A site. `wrong` is why its file cannot be read, or '' if it can; then scheduler and queue are known."""

    name: str
    scheduler: str
    queue: str
    file: str
    ships: bool
    wrong: str = ""


COLUMNS: tuple[Column[ListedSite], ...] = (
    Column("SITE", lambda site: site.name, key="name", right=False),
    Column("SCHEDULER", lambda site: plain(site.scheduler) or None, right=False),
    Column("QUEUE", lambda site: plain(site.queue) or None, right=False, left_out=1),
    Column("FILE", lambda site: Long("ships with torusrun" if site.ships else plain(site.file), below=True)),
    *(Column(None, attrgetter(key), key=key) for key in ("scheduler", "queue", "file", "ships", "wrong")),
    Column(None, lambda site: not site.wrong, key="readable"),
)


def listed() -> Table[ListedSite]:
    """The user's sites, then the shipped sites without a namesake among the user's."""
    sites: dict[str, ListedSite] = {}
    for folder in site_folders():
        for path in sorted(folder.glob("*.yaml")):
            sites.setdefault(path.stem, _listed(path))
    return Table(COLUMNS, [*sites.values()], _notes)


def _notes(site: ListedSite) -> list[str]:
    return [plain(f"cannot be read: {site.wrong}")] if site.wrong else []


def _wrong(error: UserError, path: Path) -> str:
    """The first line of an error, without the file's name, which is shown beside it."""
    line = str(error).splitlines()[0].removeprefix(f"{path}:").removeprefix(" cannot be read as a site's YAML file:")
    return line.strip() if line.startswith(" ") else f"line {line}"


def _listed(path: Path) -> ListedSite:
    ships = path.parent == SHIPPED
    try:
        site, _ = read(Site, read_text(path, "site"), str(path))
    except UserError as error:
        return ListedSite(path.stem, "", "", str(path), ships, _wrong(error, path))
    return ListedSite(path.stem, site.scheduler, site.queue or "", str(path), ships)
