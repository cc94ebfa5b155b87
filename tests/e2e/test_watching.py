"""The user's views of a run while ranks write: the full-screen view, and logs of ranks in the order of time."""

from __future__ import annotations

import os
import re

from tests.e2e.places import Local, until
from tests.unit.terminals import Terminal, bare

# Each line is written after the time of the line before it is recorded, so their order is certain.
TAKES_TURNS = """
seen() { until tail -n 1 logs/rank-000$1.log.times 2>/dev/null | grep -q " $2$"; do sleep 0.1; done; }
released() { until test -e released; do sleep 0.2; done; }
case $RANK in
  0) echo first; seen 1 7; echo third; released ;;
  1) seen 0 6; echo second; released; echo last ;;
esac
"""
ENTRY = "import sys; from torusrun.orchestrator.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_a_run_is_watched_and_its_ranks_logs_are_merged_by_time(local: Local) -> None:
    run = local.submit_script(TAKES_TURNS)
    with Terminal(ENTRY, "watch", HOME=local.env["HOME"], XDG_STATE_HOME="", XDG_CONFIG_HOME="") as terminal:
        terminal.until_shown("log of rank 0", "  first", "  third")
        terminal.until(f"{run.name} RUNNING")
        terminal.until("CPU")  # of the node, after its wrapper's report
        times = run / "attempts/1/logs/rank-0000.log.times"
        until(lambda: times.read_text().endswith(" 12\n"), "the time of the third line, before a later one is written")
        local.release(run)
        assert terminal.ended() == 0 and terminal.restored
        assert "COMPLETED: all 4 ranks ended well" in bare(terminal.written)
    logs = local.torusrun("logs", run.name, "--all", "--times").stdout.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", line) for line in logs), "the times of all lines are known"
    ranks = [line.split(" ", 1)[1] for line in logs if " job | " not in line]
    assert ranks == ["0 | first", "1 | second", "0 | third", "1 | last"]
    assert (run / "attempts/1/logs/rank-0001.log").read_bytes() == b"second\nlast\n"
    sizes = {stream: os.path.getsize(run / f"attempts/1/job.{stream}") for stream in ("out", "err")}
    for stream, size in sizes.items():
        (*_, newest) = (run / f"attempts/1/job.{stream}.times").read_text().splitlines()
        assert int(newest.split()[1]) <= size
