"""
examples:
  torusrun image ls
  torusrun image inspect pytorch-cpu
  torusrun image verify pytorch-cpu
  torusrun image inspect pytorch-cpu --sbom spdx
  torusrun image export pytorch-cpu --to pytorch-cpu.tar
  torusrun image render sony-2018
  torusrun image resolve pytorch-hopper
  torusrun image convert Dockerfile --to converted
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import DONE, SITE_FAILED, SiteError, UserError
from torusrun.orchestrator.base.terminal.remarks import busy, progress, result
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from torusrun.orchestrator.images.builds.cache import Cache, CachedImage
    from torusrun.orchestrator.images.builds.caches import Caches
    from torusrun.orchestrator.spec.site import Site


def prints_json(args: argparse.Namespace) -> bool:
    """Whether these words print JSON of their own."""
    return args.what in ("ls", "inspect", "resolve")


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = ("ls", "inspect", "verify", "rm", "sign", "export", "render", "convert", "resolve")
    what = (
        "what to do; render prints the definition of an image file or Dockerfile, convert writes a Dockerfile's; "
        "resolve looks up the packages and sizes of an image file"
    )
    parser.add_argument("what", choices=verbs, help=what)
    parser.add_argument(
        "image",
        metavar="IMAGE",
        nargs="?",
        help="an image's name, path, or the start of its key; render, convert, resolve: an image file or a Dockerfile",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--lock", action="store_true", help="inspect: only the lock, for `torusrun build --locked`")
    parser.add_argument("--sbom", choices=("spdx", "cyclonedx"), help="inspect: the packages as a bill of materials")
    parser.add_argument(
        "--to", metavar="PATH", help="export: a new folder, or a file that ends in .tar; convert: a new folder"
    )
    shared_arguments.site(parser)
    shared_arguments.context(parser)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.planning.image import building
    from torusrun.orchestrator.spec.load import load_site

    site = load_site(args.site)
    shared_arguments.here(site, "image")
    caches = building.caches(site)
    if args.what == "ls":
        return _list(caches, args.json)
    if args.image is None:
        raise UserError(f"`torusrun image {args.what}` needs an image; `torusrun image ls` lists them")
    if args.what == "render":
        _noted(building.definition(args.image, site, args.context), end="")
        return DONE
    if args.what == "convert":
        _noted(_converted(args.image, site, args.to, args.context))
        return DONE
    if args.what == "resolve":
        _resolve(args.image, site, args.json)
        return DONE
    entry = caches.find(args.image)
    cache = caches.of(entry)
    if args.what == "inspect":
        print(json.dumps(_inspected(cache, entry, args), indent=1))
    elif args.what == "verify":
        if wrong := cache.verify(entry):
            print(wrong)
            return SITE_FAILED
        result(str(entry.path), f"{entry.path}: unchanged since it was built")
    elif args.what == "rm":
        caches.writable(entry, "remove").remove(entry)
        result(str(entry.path), f"{entry.path}: removed")
    elif args.what == "export":
        print(_exported(cache, entry, args.to))
    else:
        _sign(caches.writable(entry, "sign"), entry, site.container.runtime)
    return DONE


def _inspected(cache: Cache, entry: CachedImage, args: argparse.Namespace) -> dict[str, Any]:
    from torusrun.orchestrator.images.definitions import package_lock
    from torusrun.orchestrator.planning.image import sbom

    there = cache.packages(entry.key).exists()
    if not (args.lock or args.sbom):
        packages = package_lock.read(cache.packages(entry.key)).as_json() if there else None
        return {**entry.as_json(), "path": str(entry.path), "packages": packages}
    if not there:
        raise SiteError(
            f"{entry.path}: it has no lock: it has no Python, or was imported, or an older torusrun built it"
        )
    lock = package_lock.read(cache.packages(entry.key))
    return lock.as_json() if args.lock else sbom.FORMATS[args.sbom](entry, lock)


def _exported(cache: Cache, entry: CachedImage, to: str | None) -> Path:
    from torusrun.orchestrator.planning.image.export import export
    from torusrun.orchestrator.spec.paths import absolute

    if to is None:
        raise UserError("`torusrun image export` needs --to, a new folder or a file that ends in .tar")
    with busy(f"copying {entry.path}"):
        return export(cache, entry, absolute(to))


def _converted(source: str, site: Site, to: str | None, context: Path | None) -> tuple[Path, tuple[str, ...]]:
    from torusrun.orchestrator.planning.image import building
    from torusrun.orchestrator.spec.paths import absolute

    if to is None:
        raise UserError("`torusrun image convert` needs --to, a new folder for the definition and the files it copies")
    return building.converted(source, site, absolute(to), context)


def _noted(made: tuple[str | Path, tuple[str, ...]], end: str = "\n") -> None:
    """Print a result, after the notes about it."""
    for note in made[1]:
        progress(f"note: {note}")
    print(made[0], end=end)


def _resolve(source: str, site: Site, as_json: bool) -> None:
    from torusrun.orchestrator.base.terminal.output import width
    from torusrun.orchestrator.planning.image.resolved import resolve
    from torusrun.orchestrator.report.image_parts import lines

    with busy("looking up packages"):
        found = resolve(source, site)
    print(json.dumps(found.as_json(), indent=1) if as_json else "\n".join(lines(found, width(sys.stdout))))


def _list(caches: Caches, as_json: bool) -> int:
    entries = caches.entries()
    if as_json:
        rows = [{**entry.as_json(), "path": str(entry.path)} for entry in entries]
        print(json.dumps({"schema": 1, "images": rows}, indent=1))
    else:
        _print_table(entries) if entries else print(
            f"no images in {caches.own.folder}; `torusrun build NAME` makes one"
        )
    return DONE


def _print_table(entries: Sequence[CachedImage]) -> None:
    from torusrun.orchestrator.base.terminal.output import width
    from torusrun.orchestrator.report.table import Column, Table

    columns: list[Column[CachedImage]] = [
        Column("KEY", lambda entry: entry.key[:12], right=False),
        Column("NAME", lambda entry: entry.name, right=False),
        Column("VARIANT", lambda entry: entry.variant, right=False, left_out=2),
        Column("MIB", lambda entry: entry.size_bytes / 2**20, "{:.0f}".format),
        Column("BUILT", lambda entry: time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.built_s)), left_out=1),
        Column("BY", lambda entry: entry.built_by, right=False),
    ]
    print("\n".join(Table(columns, entries).lines(width(sys.stdout))))


def _sign(cache: Cache, entry: CachedImage, command: str | None) -> None:
    """Sign with the user's own key, which the runtime asks for. This changes the file and its checksum."""
    from torusrun.orchestrator.base import process
    from torusrun.orchestrator.images import runtime
    from torusrun.orchestrator.images.builds.cache import SIF

    if entry.path.suffix != SIF:
        raise UserError(f"{entry.path}: only a SIF can be signed, and this is a squashfs")
    if wrong := cache.verify(entry):
        raise SiteError(f"{wrong}; only an unchanged image can be signed")
    program = runtime.required(command).command
    if process.interact([program, "sign", str(entry.path)]) != 0:
        raise SiteError(f"{entry.path}: signing failed; if you have no key yet, make one with `{program} key newpair`")
    cache.keep_checksum(entry)
    result(str(entry.path), f"{entry.path}: signed")
