"""
examples:
  torusrun image ls
  torusrun image inspect pytorch-cpu
  torusrun image verify pytorch-cpu
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from orchestrator.commands import asked
from orchestrator.errors import DONE, SITE_FAILED, SiteError, UserError

if TYPE_CHECKING:
    from orchestrator.containers.cache import Cache, CachedImage


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("ls", "inspect", "verify", "rm", "sign"), help="what to do")
    parser.add_argument("image", metavar="IMAGE", nargs="?", help="an image's name, path, or the start of its key")
    parser.add_argument("--json", action="store_true", help="as JSON")
    asked.site(parser)


def run(args: argparse.Namespace) -> int:
    from orchestrator.images import building
    from orchestrator.spec.load import load_site

    site = load_site(args.site)
    cache = building.cache(site)
    if args.what == "ls":
        return _list(cache, args.json)
    if args.image is None:
        raise UserError(f"`torusrun image {args.what}` needs an image; `torusrun image ls` lists them")
    entry = cache.find(args.image)
    if args.what == "inspect":
        print(json.dumps({**entry.as_json(), "path": str(entry.path)}, indent=1))
    elif args.what == "verify":
        if wrong := cache.verify(entry):
            print(wrong)
            return SITE_FAILED
        print(f"{entry.path}: unchanged since it was built")
    elif args.what == "rm":
        cache.remove(entry)
        print(f"{entry.path}: removed")
    else:
        _sign(cache, entry, site.container.runtime)
    return DONE


def _list(cache: Cache, as_json: bool) -> int:
    entries = cache.entries()
    if as_json:
        rows = [{**entry.as_json(), "path": str(entry.path)} for entry in entries]
        print(json.dumps({"schema": 1, "images": rows}, indent=1))
    else:
        print("\n".join(map(_line, entries)) or f"no images in {cache.folder}; `torusrun build NAME` makes one")
    return DONE


def _line(entry: CachedImage) -> str:
    built = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.built_s))
    return f"{entry.key[:12]}  {entry.name:20}  {entry.size_bytes / 2**20:7.0f} MiB  built {built} by {entry.built_by}"


def _sign(cache: Cache, entry: CachedImage, command: str | None) -> None:
    """Sign with the user's own key, for which the runtime asks. That changes the file and so its checksum."""
    from orchestrator import process
    from orchestrator.containers import runtime

    if wrong := cache.verify(entry):
        raise SiteError(f"{wrong}; only an unchanged image can be signed")
    program = runtime.required(command).command
    if process.interact([program, "sign", str(entry.path)]) != 0:
        raise SiteError(f"{entry.path}: signing failed; if you have no key yet, make one with `{program} key newpair`")
    cache.keep_checksum(entry)
    print(f"{entry.path}: signed")
