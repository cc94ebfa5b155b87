"""
IMAGE is the name or path of an image file, or a Dockerfile, or a run file with an image, or an image of another form
(an archive, a folder, a registry's reference), which is converted to a SIF. For a site with Pyxis the result is a
squashfs, and a SIF can be converted, too. All but build, render and convert take a built image.

examples:
  torusrun image build pytorch-cpu
  torusrun image build containers/pytorch-v100.yaml --site slurm --on job
  torusrun image build docker/Dockerfile --context .
  torusrun image build docker-archive:mine.tar
  torusrun image build pytorch-cpu --wheelhouse wheels --offline
  torusrun image ls
  torusrun image inspect pytorch-cpu
  torusrun image verify pytorch-cpu
  torusrun image render sony-2018
  torusrun image convert Dockerfile --to converted
  torusrun image convert mine.def --to Dockerfile
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import DONE, SITE_FAILED, UserError
from torusrun.orchestrator.base.terminal.remarks import progress, result
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from torusrun.orchestrator.base.shown.table import Table
    from torusrun.orchestrator.images.builds.cache import Cache, CachedImage
    from torusrun.orchestrator.keys.site import Site


WHAT = {
    "build": "build an image, unless the cache has it",
    "ls": "list the built images",
    "inspect": "show an image as JSON, with its packages and the path of their lock",
    "verify": "compare an image with its SHA-256",
    "rm": "remove it",
    "render": "print the definition of an image file or a Dockerfile",
    "convert": "write the definition of a Dockerfile with the files it copies, or the Dockerfile of a definition",
}
ONLY_OF = {  # the words that an option is for; others refuse it
    "on": ("build",),
    "wheelhouse": ("build",),
    "offline": ("build",),
    "locked": ("build",),
    "context": ("build", "render", "convert"),
    "to": ("convert",),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=WHAT, help="; ".join(f"{word}: {text}" for word, text in WHAT.items()))
    parser.add_argument(
        "image", metavar="IMAGE", nargs="?", help="a built image by its name, path or key, or see below"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    shared_arguments.site(parser)
    parser.add_argument(
        "--on", choices=("login", "job"), help="build: here (login) or in a job; default: the site's build_on"
    )
    parser.add_argument("--wheelhouse", metavar="DIR", help="build: take Python packages only from this folder")
    parser.add_argument("--offline", action="store_true", help="build: use no network")
    locked = "build: install the versions of this lock, a copy of the 'lock' of `inspect`; default: IMAGE.lock"
    parser.add_argument("--locked", metavar="LOCK", nargs="?", const="", help=locked)
    shared_arguments.context(parser)
    parser.add_argument("--to", metavar="PATH", help="convert: a new folder for a definition, or a new Dockerfile")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.keys.load import load_site
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.run.image import building

    for option, words in ONLY_OF.items():
        if getattr(args, option) not in (None, False) and args.what not in words:
            raise UserError(f"`torusrun image {args.what}` takes no --{option}; it is for {' and '.join(words)}")
    if args.image is None and args.what != "ls":
        raise UserError(f"`torusrun image {args.what}` needs an image; `torusrun image ls` lists them")
    if args.what == "build":
        return _build(args)
    site = load_site(args.site)
    shared_arguments.here(site, "image")
    if args.what == "render":
        _print_noted(building.definition(args.image, site, args.context), end="")
        return DONE
    if args.what == "convert":
        if args.to is None:
            raise UserError("`torusrun image convert` needs --to, a new folder for a definition, or a new Dockerfile")
        _print_noted(building.converted(args.image, site, absolute(args.to), args.context))
        return DONE
    cache = building.cache(site)
    if args.what == "ls":
        return _list(args, cache)
    entry = cache.find(args.image, building.form(site))
    if args.what == "inspect":
        print(json.dumps(_inspected(cache, entry), indent=1))
    elif args.what == "verify":
        if wrong := cache.verify(entry):
            print(wrong)
            return SITE_FAILED
        result(str(entry.path), f"{entry.path}: unchanged since it was built")
    else:
        cache.remove(entry)
        result(str(entry.path), f"{entry.path}: removed")
    return DONE


def _build(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.images.source import has_text, typed
    from torusrun.orchestrator.keys.load import is_run, load_site
    from torusrun.orchestrator.run.plan.plan import plan
    from torusrun.orchestrator.run.plan.role_plans import of_images

    word = typed(args.image)
    if has_text(word) and is_run(word):
        planned = plan(word, site=args.site)
        images, site = list(of_images(planned)), planned.site
        if not images:
            raise UserError(f"{word}: it has no 'image', so there is nothing to build")
    else:
        images, site = [word], load_site(args.site)
    shared_arguments.here(site, "image build")
    for image in images:
        _build_one(args, image, site)
    return DONE


def _build_one(args: argparse.Namespace, source: str, site: Site) -> None:
    from torusrun.orchestrator.images import pyxis
    from torusrun.orchestrator.images.builds import convert
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.run.image import building, run_image

    by_pyxis = pyxis.used(site.container.runtime)
    of_builds = {"--on job": args.on == "job", "--locked": args.locked is not None, "--wheelhouse": args.wheelhouse}
    refused = next((option for option, given in of_builds.items() if given), "")
    if by_pyxis and (
        made := run_image.squashed_directly(source, site, progress, offline=args.offline, refused=refused)
    ):
        print(made.path)
        return
    wheelhouse = absolute(args.wheelhouse) if args.wheelhouse else None
    lock = building.lock_of(source, args.locked) if args.locked is not None else None
    prepared = building.prepare(
        source, site, offline=args.offline, wheelhouse=wheelhouse, lock=lock, context=args.context
    )
    for advice in prepared.advice:
        progress(f"note: {advice}")
    if (args.on or site.container.build_on) == "job" and not building.cache(site).sound(prepared.key):
        building.build_in_job(prepared, site, site.interpreter, progress)
    entry = building.build(prepared, site, progress)
    print(convert.of_sif(entry, building.cache(site), progress).path if by_pyxis else entry.path)


def _inspected(cache: Cache, entry: CachedImage) -> dict[str, Any]:
    """The facts of an image; no lock for an image without Python, or an imported image."""
    from torusrun.orchestrator.images.definitions import package_lock

    lock = cache.packages(entry.key)
    known = {"lock": str(lock), "packages": package_lock.read_lock(lock).as_json()} if lock.exists() else {}
    return {**entry.as_json(), "path": str(entry.path), **known}


def _print_noted(made: tuple[str | Path, tuple[str, ...]], end: str = "\n") -> None:
    """Print a result, after the notes about it."""
    for note in made[1]:
        progress(f"note: {note}")
    print(made[0], end=end)


def _list(args: argparse.Namespace, cache: Cache) -> int:
    from torusrun.orchestrator.base.terminal.output import width

    entries = cache.entries()
    rows = [{**entry.as_json(), "path": str(entry.path)} for entry in entries]
    lines = _table(entries).lines(width(sys.stdout))
    none = f"no images in {cache.folder}; `torusrun image build NAME` makes one"
    return shared_arguments.show(args, {"images": rows}, "\n".join(lines) if entries else none)


def _table(entries: Sequence[CachedImage]) -> Table[CachedImage]:
    from torusrun.orchestrator.base.shown.table import Column, Table

    columns: list[Column[CachedImage]] = [
        Column("KEY", lambda entry: entry.key[:12], right=False),
        Column("NAME", lambda entry: entry.name, right=False),
        Column("VARIANT", lambda entry: entry.variant, right=False, left_out=2),
        Column("MIB", lambda entry: entry.size_bytes / 2**20, "{:.0f}".format),
        Column("BUILT", lambda entry: time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.built_s)), left_out=1),
        Column("BY", lambda entry: entry.built_by, right=False),
    ]
    return Table(columns, entries)
