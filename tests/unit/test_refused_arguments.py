"""Arguments that verbs refuse: one error that says what to give, and nothing is submitted or written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator.base.errors import SITE_FAILED, USER_MISTAKE
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.run_folder import RunFolder

REFUSED = {
    "submit RUN --in last --dry-run": "--in submits nothing to a scheduler: leave out --dry-run",
    "submit RUN --in last --after last": "leave out --after",
    "submit RUN --in last": "there is no held allocation; `torusrun hold RUN.yaml` makes one",
    "submit RUN --after gone": "there is no run 'gone'",
    "submit RUN --after gone --dry-run": "there is no run 'gone'",
    "submit RUN --ask": "--ask needs --dry-run",
    "submit RUN --dry-run --ask": "local cannot check this job without submitting it",
    "submit RUN --set grid=3x1": "grid",
    "submit RUN --set nosuch=1": "nosuch",
    "hold RUN --time soon": "--time",
    "hold RUN --idle=-5m": "--idle",
    "resume last": "is COMPLETED",
    "resume last --in last": "there is no held allocation",
    "cancel last": "is over already: COMPLETED",
    "reproduce last --compare gone": "there is no run 'gone'",
    "shell last": "is COMPLETED",
    "shell last --rank 7": "rank",
    "forward last 6006": "is COMPLETED",
    "forward last 70000": "PORT must be 1 to 65535, not 70000",
    "forward last 6006 --listen here:x": "--listen here:x: write a port",
    "logs last --rank 7": "has no rank 7: its ranks are 0 to 3",
    "logs last --rank=-1": "has no rank -1: its ranks are 0 to 3",
    "logs last --attempt 3": "has no attempt 3 (it has: 1)",
    "logs last --attempt every": "is neither the number of an attempt nor 'all'",
    "explain last --attempt 7": "has no attempt 7 (it has: 1)",
    "recipes show sony-22s": "did you mean 'sony-224s'?",
    "recipes show": "which recipe? Write its name",
    "recipes sony-224s": "'sony-224s' is not 'show': write `torusrun recipes`, or `torusrun recipes show NAME`",
    "data get": "which data set? Write `torusrun data get NAME` (known: cifar10, mnist)",
    "data get cifar": "there is no data set 'cifar' (known: cifar10, mnist); did you mean",
    "data ls mnist": "`torusrun data get NAME` prepares a data set",
    "data get mnist --from /nowhere.tgz": "mnist cannot be prepared in",
    "logs last --grep (": "this is not a regular expression",
    "calibrate RUN --from last": "is not a measuring run; submit one with --set program=measure",
    "collect last HOME": "exists already",
    "collect last kept --only x --checkpoints all": "leave out --checkpoints",
    "image build RUN": "it has no 'image', so there is nothing to build",
    "plan RUN --hosts nosuch": "--hosts nosuch: cannot be read: No such file or directory",
    "status --since yesterdayish": "--since",
    "doctor --job soon": "--job: 'soon'",
    "init ../mine --scheduler local --yes": "../mine",
    "run --gpus= -- true": "--gpus: its value is empty; write one, or leave it out",
    "run --nodes EMPTY -- true": "--nodes: its value is empty",
    "submit RUN --after=": "--after: its value is empty",
    "status --site=": "--site: its value is empty",
    "status --site sit": "there is no site 'sit'; did you mean 'site'? (sites: ",
    "status --state runing": "there is no state 'runing'; did you mean 'running'",
    "status --state ,": "name at least one state",
    "nodes add n1": "of which site? Write `torusrun nodes add HOST --site NAME`",
    "nodes add n1;rm --site ./site.yaml": "HOST: 'n1;rm' is not a name of a host",
    "nodes add n1 --site ./site.yaml --for 2days": "--for: '2days' is not a duration",
    "nodes add n1 --site nosuch": "there is no site 'nosuch'",
    "nodes --site nosuch": "there is no site 'nosuch'",
    "nodes forgive": "forgive takes hosts, or --all",
    "nodes forgive n2 --all": "forgive takes hosts, or --all",
    "nodes forgive n2": "n2 was not blamed; `torusrun nodes` lists",
    "nodes ls n1": "ls takes no hosts",
    "nodes forgive n1 --json": "--json is only for `torusrun nodes ls`",
    "rm EMPTY": "argument 1: its value is empty",
    "show gone": "there is no run 'gone'; `torusrun status` lists your runs",
    "show made*": "'made*': this takes one run and no pattern; `torusrun status 'made*'` lists them",
    "show": "show needs RUN (a run's id, the start of its id, its folder, or 'last'; last~1 is the one before); `",
    "submit": "submit needs RUN.yaml (the run file); `torusrun submit --help` shows its options",
    "status --set nodes=2": "status has no option --set",
    "list": "there is no verb 'list'; did you mean 'status'? It is to show the state of your runs",
    "delete last": "did you mean 'rm'?",
    "help submit": "there is no verb 'help': write `torusrun VERB --help`",
    "stop last": "did you mean 'cancel'?",
    "tail last": "did you mean 'logs'?",
    "zzz": "there is no verb 'zzz' (verbs: run, submit,",
    "show last~1": "last~1: you have 1 run; `torusrun status` lists your runs",
    "show gone~0": "gone~0: 'gone' begins the ids of 0 runs",
    "submit RUN --set keep_going=true": "keep_going must be keys and values, as in keep_going: {attempts: 3}, not the",
    "submit RUN --set env=A=1": "'env' must be keys and values, as in env: {NAME: value}, not the value 'A=1'",
    "show last last": "show: 'last' is one argument too many",
    "show last --jsn": "show has no option --jsn; did you mean '--json'?",
    "shw last": "there is no verb 'shw'; did you mean 'show'?",
    "reproduce gone": "there is no run 'gone'",
    "reproduce made*": "this takes one run and no pattern",
    "reproduce last --compare last --wait": "exclude each other: leave one out",
    "forward gone 80": "there is no run 'gone'",
    "forward last": "forward needs PORT (",
    "forward last http": "is COMPLETED",
    "forward last 80 --listen 70000": "write a port, or an IPv4 address and a port",
    "export gone out": "there is no run 'gone'",
    "export gone* out": "no run's name matches 'gone*'",
    "export last": "export needs FOLDER (",
    "export last run.yaml": "metrics.csv: cannot be written: Not a directory",
    "export last /sys/out": "metrics.csv: cannot be written",
    "export last out --as xml": "--as: it must be one of csv, tensorboard, not 'xml'",
    "gc --older-than yesterday": "--older-than: 'yesterday' is not a time",
    "gc --older-than -3d": "--older-than: its value is missing",
    "gc --site gone": "there is no site 'gone'",
    "gc --site ./gone.yaml": "the site's file gone.yaml does not exist",
    "gc everything": "gc: 'everything' is one argument too many",
    "sweep last": "there is no verb 'sweep'; did you mean 'status'?",
    "status last --best accuracy": "--best sorts the members of one sweep",
    "run": "write the command after '--'",
    "run --env WORLD_SIZE=3 -- true": "'WORLD_SIZE' is set by torusrun for each rank",
    "run --image gone -- true": "there is no image file 'gone'",
    "run --code /gone -- true": "/gone",
    "run --save run.yaml -- true": "this file exists already",
    "run --save /sys/x.yaml -- true": "/sys/x.yaml: cannot be written",
    "run --set sweep.at_once=0 --sweep env.X=1,2 -- true": "must be at least 1, not 0",
    "submit RUN --sweep train.epochs": "write it as KEY=A,B,C",
    "submit RUN --sweep train.epochs=": "write it as KEY=A,B,C",
    "submit RUN --sweep train.epochs=[]": "not an empty list",
    "submit RUN --sweep train.epochs=1,x": "'train.epochs' must be a whole number, not 'x'",
    "submit RUN --sweep train.epochs=1,1": "members 0 and 1 are the same",
    "submit RUN --sweep train.epochs=1 --sweep train.epochs=2": "--sweep train.epochs: it is given twice",
    "submit RUN --set sweep.at_once=2": "it has no values",
    "examples digit": "did you mean 'digits'?",
    "examples digits --save run.yaml": "exists already",
    "examples digits --save /sys/x.yaml": "/sys/x.yaml",
    "report gone*": "no run's name matches 'gone*'",
    "report last -o run.yaml": "exists already; name another file with -o, or overwrite it with --force",
    "report last -o runs --force": "this is a folder; name a file",
    "report last -o /sys/x.html": "/sys/x.html",
    "rm made*": "add --yes to confirm it",
    "rm": "which runs?",
    "rm --state done": "there is no state 'done'",
    "rm --older-than x": "--before, --older-than: 'x' is not a time",
    "completion tcsh": "it must be one of bash, zsh, fish, not 'tcsh'",
}
FILE_SYSTEM = {"report last -o /sys/x.html"}
SEVERAL_LINES = {  # a line for each problem, or a remark before it
    "submit RUN --sweep train.epochs=1,x", "submit RUN --set grid=3x1", "data get mnist --from /nowhere.tgz"
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """A run in a home of its own. What is refused changes nothing, so that all tests may share it."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.delenv("XDG_STATE_HOME", raising=False)
        yield make(write_specs(home), DONE)


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_done_gets_one_clear_error(
    words: str, made: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = made.folder.parents[1], made.ledger.read_bytes()
    files = {path: path.read_bytes() for path in home.glob("*.yaml")}
    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(home)
    given = words.replace("RUN", "run.yaml").replace("HOME", str(home)).replace("MADE", made.run_id).split()
    code = main(["" if word == "EMPTY" else word for word in given])
    said = capsys.readouterr()
    assert code == (SITE_FAILED if words in FILE_SYSTEM else USER_MISTAKE) and REFUSED[words] in said.err, said
    errors = said.err.splitlines()
    assert errors[0].startswith("torusrun: ") and (len(errors) == 1 or words in SEVERAL_LINES) and not said.out, said
    assert list((home / "runs").iterdir()) == [made.folder] and made.ledger.read_bytes() == ledger
    assert {path: path.read_bytes() for path in home.glob("*.yaml")} == files
