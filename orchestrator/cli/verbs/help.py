"""
examples:
  torusrun help
  torusrun help submit
  torusrun help --man | man -l -
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.cli.verb_list import VERBS, no_verb, parser_of, top_parser


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", metavar="VERB", nargs="?", help="the verb; default: the list of verbs")
    parser.add_argument("--man", action="store_true", help="print the man page of torusrun, with every verb")


def run(args: argparse.Namespace) -> int:
    if args.verb and args.verb not in VERBS:
        raise UserError(no_verb(args.verb))
    if args.man:
        from torusrun.orchestrator.cli.man_page import man_page

        print(man_page([args.verb] if args.verb else list(VERBS)), end="")
        return DONE
    (parser_of(args.verb) if args.verb else top_parser()).print_help()
    return DONE
