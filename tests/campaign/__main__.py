"""python -m tests.campaign --seed N: faults at random steps, and a table of what was told of them.

The exit code is 0 only where every cause was told rightly, every run came back to the same bits, and nothing is left.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.campaign import spec, table
from tests.campaign.faults import KINDS
from tests.campaign.places import WHY_NOT, places
from tests.campaign.schedule import Planned, schedule
from tests.campaign.trial import Row, carry_out
from tests.e2e.places import Place


def main() -> int:
    asked = _asked()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # unwinds: labs stop, faults are undone
    with ExitStack() as stack:
        found = places(asked.places, stack)
        kinds = {name: [k for k in asked.kinds if KINDS[k].possible(place)] for name, place in found.items()}
        planned = schedule(asked.seed, asked.faults, kinds)
        rows = _campaign(found, [p for p in planned if not asked.only or p.number in asked.only])
    if bad := [row for row in rows if not row.good]:
        print("\nWhat was wrong", *map(table.wrong, bad), sep="\n\n")
    print(f"\nSeed {asked.seed}, {len(rows)} faults\n\n{table.summary(rows)}")
    if asked.json:
        table.write_json(asked.json, asked.seed, rows)
    return 1 if bad else 0


def _campaign(found: dict[str, Place], planned: list[Planned]) -> list[Row]:
    print(table.HEAD, flush=True)
    undisturbed: dict[str, Path] = {}
    rows = []
    for fault in planned:
        place = found[fault.place]
        if fault.place not in undisturbed:
            undisturbed[fault.place] = spec.undisturbed(place)
        rows.append(carry_out(place, fault, undisturbed[fault.place]))
        print(table.line(rows[-1]), flush=True)
    return rows


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=90)
    parser.add_argument("--places", type=_names(list(WHY_NOT)), help="default: all that are possible here")
    parser.add_argument("--kinds", type=_names(list(KINDS)), default=list(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--only", type=lambda text: [int(n) for n in text.split(",")], help="numbers of faults")
    parser.add_argument("--json", type=Path, help="write the rows, with the evidence of those that are not good")
    return parser.parse_args()


def _names(known: list[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        if strange := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{strange[0]!r} is none of {', '.join(known)}")
        return chosen

    return names


if __name__ == "__main__":
    sys.exit(main())
