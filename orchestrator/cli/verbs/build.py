"""
IMAGE is the name or path of an image file, or a Dockerfile, or a run file with an image, or an image of another form
(an archive, a folder, a registry's reference), which is converted to a SIF. For a site with Pyxis the result is a
squashfs, and a SIF can be converted, too.

examples:
  torusrun build pytorch-cpu
  torusrun build containers/pytorch-v100.yaml --site slurm --on job
  torusrun build docker/Dockerfile --context .
  torusrun build docker-archive:mine.tar
  torusrun build pytorch-cpu --wheelhouse wheels --offline
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import draws, progress, redrawn
from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", metavar="IMAGE", help="an image file, a Dockerfile, an image or a run file")
    shared_arguments.site(parser)
    shared_arguments.context(parser)
    parser.add_argument(
        "--on", choices=("login", "job"), help="build here (login) or in a job; default: the site's build_on"
    )
    parser.add_argument("--wheelhouse", metavar="DIR", help="take Python packages only from this folder")
    parser.add_argument("--offline", action="store_true", help="use no network while building")
    parser.add_argument(
        "--locked",
        metavar="LOCK",
        nargs="?",
        const="",
        help="install the versions of this lock, made by `torusrun image inspect IMAGE --lock`; default: IMAGE.lock",
    )


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.images import pyxis
    from torusrun.orchestrator.images.source import has_text, typed
    from torusrun.orchestrator.planning.image import building, squashed
    from torusrun.orchestrator.planning.plan import plan
    from torusrun.orchestrator.spec.load import is_run, load_site
    from torusrun.orchestrator.spec.paths import absolute

    word = typed(args.image)
    if has_text(word) and is_run(word):
        planned = plan(word, site=args.site)
        source, site = planned.run.image, planned.site
        if source is None:
            raise UserError(f"{word}: it has no 'image', so there is nothing to build")
    else:
        source, site = word, load_site(args.site)
    shared_arguments.here(site, "build")
    by_pyxis = pyxis.used(site.container.runtime)
    of_builds = {"--on job": args.on == "job", "--locked": args.locked is not None, "--wheelhouse": args.wheelhouse}
    refused = next((option for option, given in of_builds.items() if given), "")
    if by_pyxis and (made := squashed.directly(source, site, progress, offline=args.offline, refused=refused)):
        print(made.path)
        return DONE
    wheelhouse = absolute(args.wheelhouse) if args.wheelhouse else None
    lock = building.lock_of(source, args.locked) if args.locked is not None else None
    prepared = building.prepare(
        source, site, offline=args.offline, wheelhouse=wheelhouse, lock=lock, context=args.context
    )
    for advice in prepared.advice:
        progress(f"note: {advice}")
    if (args.on or site.container.build_on) == "job" and not building.caches(site).sound(prepared.key):
        from torusrun.orchestrator.planning.image.build_job import build_in_job

        build_in_job(prepared, site, site.interpreter, progress)
    entry = building.build(prepared, site, progress, redrawn if draws() else None)
    print(squashed.of(entry, site, progress).path if by_pyxis else entry.path)
    return DONE
