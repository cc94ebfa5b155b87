"""A dry run compared with the attempt that it predicts, on this machine."""

import json
import os
from pathlib import Path

from torusrun.orchestrator.cli.dry_run import dry_run
from torusrun.orchestrator.run.attempts.submit import first
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.follow import follow

# Records a rank's environment, working directory, and the command lines of its wrapper and of the launcher.
LOOK = """import json, os
def words(pid):
    return open(f"/proc/{pid}/cmdline", "rb").read().decode().split(chr(0))[:-1]
wrapper = os.getppid()
launcher = int(open(f"/proc/{wrapper}/stat").read().rpartition(")")[2].split()[1])
print(json.dumps({"environment": dict(os.environ), "directory": os.getcwd(), "launcher": words(launcher)}))
"""
SITE = "scheduler: local\nlauncher: spawn\nnode: {ranks: 2, hcas: [mlx5_0], interface: lo}\nstop_before: 1s\n"
RUN = 'name: seen\nsite: site.yaml\ntime: 1m\ncommand: [python3, look.py]\nenv: {GREETING: "it\'s, $HOME"}\n'
ONCE_MORE = {".lock", "code.diff", "checkpoints/", "metrics.jsonl"}  # not in every run, or without content
OF_TROUBLE = {f"attempts/1/ranks/{name}" for name in ("NNNN.told.json", "NNNN.seen.json", "probe")}
OF_COMMANDS = {"attempts/1/metrics.jsonl", "attempts/1/ranks/heartbeat"}  # which this one does not write
UNTIL_THE_END = {"attempts/1/.end.json.reserve"}
LATER = {"attempts/1/ranks/NNNN.load.json"}  # in an attempt of a second or more, as in test_local.py


def test_an_attempt_has_what_the_dry_run_showed(home: Path) -> None:
    folder = home / "project"
    folder.mkdir()
    for name, content in (("look.py", LOOK), ("site.yaml", f"{SITE}runs: {home}/runs\n"), ("run.yaml", RUN)):
        (folder / name).write_text(content)
    planned = plan(folder / "run.yaml")
    shown = dry_run(planned)
    assert not planned.folder.exists()
    run = first(planned, folder)
    *_, last = follow(run)
    assert last.state.value == "COMPLETED", last.reason
    attempt = run.attempt(1)
    assert attempt.script.read_text() == shown.script
    assert json.loads(attempt.launch.read_text()) == json.loads(json.dumps(shown.order.as_json()))
    assert json.loads(attempt.placement.read_text()) == shown.placement.as_json()
    seen = json.loads(attempt.rank_log(0).read_text())
    assert seen["launcher"] == shown.launcher
    assert seen["directory"] == shown.main.program.directory
    meeting = {name: value for name, value in shown.main.environment.items() if value.startswith("<")}
    assert set(meeting) == {"MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
    told = {name: seen["environment"].get(name) for name in shown.main.environment}
    assert {**told, **meeting} == shown.main.environment
    assert set(meeting) <= set(seen["environment"])
    assert json.loads(run.code_record.read_text())["files"] == shown.code.files  # type: ignore[union-attr]
    foretold = {name for names in shown.files for name in names.split()}
    sometimes = ONCE_MORE | OF_TROUBLE | OF_COMMANDS | UNTIL_THE_END | LATER
    assert _files(run.folder) - LATER - OF_TROUBLE == foretold - sometimes


def _files(folder: Path) -> set[str]:
    """The files of a run in the words of layout.py: a rank's number is NNNN, and one word stands for the code."""
    found = set()
    for place, _, names in os.walk(folder):
        for name in names:
            path = str((Path(place) / name).relative_to(folder))
            found.add("code/" if path.startswith("code/") else path.replace("0000", "NNNN").replace("0001", "NNNN"))
    return found - ONCE_MORE | {"attempts/"}
