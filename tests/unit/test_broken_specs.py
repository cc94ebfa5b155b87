"""A corpus of broken specs: each gives one clear message with its place, and never a traceback."""

from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, refuses
from torusrun.orchestrator.cli.main import main

GOOD = "name: digits\nsite: local\n"

LAUGHS = "\n".join(
    ["a0: &a0 [" + "x, " * 10 + "]", *(f"a{i}: &a{i} [" + f"*a{i - 1}, " * 10 + "]" for i in range(1, 20))]
)

# (what is wrong, the file's text, where the message points, what it must say)
BROKEN = [
    ("unknown key", GOOD + "noodes: 2\n", "3:1", "unknown key 'noodes'; did you mean 'nodes'?"),
    ("unknown key lists the valid ones", GOOD + "zzz: 2\n", "3:1", "(valid here: name, site, nodes,"),
    ("unknown nested key", GOOD + "train:\n  epoch: 3\n", "4:3", "unknown key 'epoch'; did you mean 'epochs'?"),
    ("a key of another tool", GOOD + "gpus: 4\n", "3:1", "unknown key 'gpus'; write 'ranks_per_node' (ranks on a node"),
    ("missing name", "site: local\n", "1:1", "'name' is missing"),
    ("missing site", "name: digits\n", "1:1", "'site' is missing"),
    ("empty file", "", "", "'name' is missing"),
    ("only comments", "# nothing\n", "", "'name' is missing"),
    ("a list", "- a\n- b\n", "1:1", "a spec must be keys and values, not a list"),
    ("a word", "digits\n", "1:1", "a spec must be keys and values, not the value 'digits'"),
    ("a command as text", GOOD + "command: python x.py --lr 0.1\n", "3:10", "; write [python, x.py, --lr, '0.1']"),
    ("a command with quotes", GOOD + "command: python x.py 'a b'\n", "3:10", "; write [python, x.py, a b]"),
    ("a command of a shell", GOOD + "command: cd a && ./b\n", "3:10", "; write [sh, -c, cd a && ./b]"),
    ("a command of one word", GOOD + "command: ./b\n", "3:10", "; write [./b]"),
    ("a line of setup as text", GOOD + "setup: source ~/venv/bin/activate\n", "3:8", "; write [source ~/venv/bin/act"),
    ("two documents", GOOD + "---\nname: b\n", "3:1", "this is not YAML"),
    ("text for a number", GOOD + "nodes: four\n", "3:8", "'nodes' must be a whole number, not 'four'"),
    ("quoted number", GOOD + "nodes: '4'\n", "3:8", "not text in quotes ('4')"),
    ("fraction for a whole number", GOOD + "nodes: 1.5\n", "3:8", "'nodes' must be a whole number"),
    ("zero nodes", GOOD + "nodes: 0\n", "3:8", "'nodes' must be at least 1, not 0"),
    ("negative lr", GOOD + "train: {optimizer: {lr: -0.1}}\n", "3:25", "'train.optimizer.lr' must be above 0"),
    ("lr not a number", GOOD + "train: {optimizer: {lr: .nan}}\n", "3:25", "'train.optimizer.lr' must be a number"),
    ("infinite lr", GOOD + "train: {optimizer: {lr: inf}}\n", "3:25", "must be a number, not 'inf'"),
    *[(f"{key} at its old place", GOOD + f"train: {{{key}: 0.1}}\n", "3:9", f"; did you mean {new}?")
      for key, new in (("lr", "'optimizer.lr'"), ("momentum", "'norm.momentum' or 'optimizer.momentum'"),
                       ("weight_decay", "'optimizer.weight_decay'"), ("warmup_epochs", "'schedule.warmup_epochs'"))],
    ("a list for a model", GOOD + "train: {model: [a]}\n", "3:16", "train.model must be keys and values, not a list"),
    ("no model", GOOD + "train: {model: }\n", "3:15", "'train.model' has no value"),
    ("an option that is a list of text", GOOD + "train: {model: {options: {a: [b]}}}\n", "3:31", "number or a number"),
    ("an option that is a section", GOOD + "train: {model: {options: {a: {b: 1}}}}\n", "3:30", "or a list, not keys"),
    ("phases that are no list", GOOD + "train: {phases: 3}\n", "3:17", "'train.phases' must be a list, not the value"),
    ("an unknown key of a phase", GOOD + "train:\n  phases:\n  - {until: 2, bach: 4}\n", "5:16", "mean 'batch'?"),
    ("a phase without end", GOOD + "train:\n  phases:\n  - {batch: 4}\n", "5:5", "'train.phases[0].until' is missing"),
    ("three rates", GOOD + "train: {phases: [{until: 20, lr: [1, 2, 3]}]}\n", "3:34", "must have 1 to 2 values, not 3"),
    ("a negative rate", GOOD + "train: {phases: [{until: 20, lr: [1, -2]}]}\n", "3:38", "lr[1]' must be at least 0"),
    ("one number for two", GOOD + "train: {phases: [{until: 20, area: 1}]}\n", "3:36", "area' must be a list, not"),
    ("three for two", GOOD + "train: {phases: [{until: 20, area: [1, 1, 1]}]}\n", "3:36", "must have 2 values, not 3"),
    ("a last phase that ends early", GOOD + "train: {phases: [{until: 19.9999999}]}\n", "3:26", "19.9999999 is the"),
    ("steps at one epoch", GOOD + "train: {schedule: {name: step, options: {at: 3}}}\n", "3:41", "a list of epochs"),
    ("an option of no schedule", GOOD + "train: {schedule: {options: "
    "{at: [3]}}}\n", "3:29", "does not accept its arguments"),
    ("an option that is no argument", GOOD + "train: {data: {options: {a-b: 1}}}\n", "3:26", "the name of an argument"),
    ("half a name of one's own", GOOD + "train: {model: 'mine:'}\n", "3:16", "or package.module:function"),
    ("an optimizer misspelt", GOOD + "train: {optimizer: sdg}\n", "3:20", "did you mean 'sgd'?"),
    ("SGD's key with LARS", GOOD + "train: {optimizer: {name: lars, decay_vectors: true}}\n", "3:48", "see train.op"),
    ("LARS without lars", GOOD + "train: {optimizer: {name: sgd, lars: {trust: 0.01}}}\n", "3:38", "'name: lars'"),
    ("list for a number", GOOD + "nodes: [1]\n", "3:8", "'nodes' must be a whole number, not a list"),
    ("number for a section", GOOD + "train: 5\n", "3:8", "as in train: {model: resnet-digits, epochs: 2}"),
    ("bad duration unit", GOOD + "time: 10 parsecs\n", "3:7", "write 90s, 10m, 1h30m, 2d or HH:MM:SS"),
    ("bare number as duration", GOOD + "time: 600\n", "3:7", "'600' is not a duration"),
    ("MM:SS as duration", GOOD + "time: 10:00\n", "3:7", "'10:00' is not a duration"),
    ("no time at all", GOOD + "time: 0s\n", "3:7", "must be more than 0"),
    ("time below the site's margin", GOOD + "time: 5s\n", "3:7", "longer than the site's stop_before (10s)"),
    ("grid with a colon", GOOD + "grid: 2:2\n", "3:7", "write auto, 8 (8 ranks in one group), 4x2 (2 rows"),
    ("grid of zero", GOOD + "grid: 0x4\n", "3:7", "'0x4' is not a grid"),
    ("grid of four levels", GOOD + "grid: 2x2x2x2\n", "3:7", "4x2x3 (3 groups of these)"),
    ("grid of a list", GOOD + "grid: [2, 2]\n", "3:7", "'grid' must be a grid, not a list"),
    ("third level that does not fit", GOOD + "grid: 2x2x2\n", "3:7", "these fit: 1x1x4, 1x2x2, 1x4x1, 2x1x2, "),
    ("ring that does not fit", GOOD + "grid: 8\n", "3:7", "a grid of 8 has 8 ranks, the run has 4; these fit: 4"),
    ("grid that does not fit", GOOD + "grid: 3x2\n", "3:7", "these fit: 1x4, 2x2, 4x1"),
    ("batch that does not divide", GOOD + "train: {batch: 30}\n", "3:16", "does not divide by 4 ranks; try 32"),
    ("one area", GOOD + "train: {data: {area: [0.1]}}\n", "3:22", "'train.data.area' must have 2 values, not 1"),
    ("no images", GOOD + "train: {data: imagefolder}\n", "3:15", "needs a folder; write it as 'root'"),
    (
        "copies by the data set itself",
        GOOD + "train: {data: {name: tar-shards, options: {root: $IMAGES, local: /disk}}}\n",
        "3:43",
        "train.data.options.local: tar-shards has no such option; list the folder below 'stage' of the run file",
    ),
    ("an empty area", GOOD + "train: {data: {area: [0.5, 0.1]}}\n", "3:22", "write [0.1, 0.5]"),
    ("several nodes on this machine", GOOD + "nodes: 2\n", "3:8", "'nodes' must be 1 on a local site"),
    ("unknown site", "name: digits\nsite: locl\n", "2:7", "local, slurm, slurm-v100, tsubame4); did you mean 'local'"),
    ("missing site file", "name: digits\nsite: ./no.yaml\n", "2:7", "no.yaml does not exist"),
    ("unknown recipe", GOOD + "train: {recipe: nvidia-80}\n", "3:17", "did you mean 'nvidia-80s'?"),
    ("a line of setup that is a directive", GOOD + "setup: [' #$ -q evil.q']\n", "3:9", "must not begin with '#'"),
    ("unknown model", GOOD + "train: {model: vgg}\n", "3:16", "'train.model.name' must be one of resnet-digits"),
    ("key twice", GOOD + "site: slurm\n", "3:1", "'site' is given twice (first on line 2)"),
    ("value left out", "name: digits\nsite:\n", "2:6", "'site' has no value"),
    ("bad name", "name: my run\nsite: local\n", "1:7", "'my run' is not a name"),
    ("name with a command in it", "name: $(touch pwned)\nsite: local\n", "1:7", "is not a name"),
    ("bad variable", GOOD + "env: {A-B: c}\n", "3:7", "is not an environment variable's name"),
    ("queue with a line break", GOOD + 'queue: "a\\n#SBATCH -w x"\n', "3:8", "is not one line of text"),
    ("tab for indentation", GOOD + "train:\n\tseed: 1\n", "4:1", "this line begins with a tab; indent with spaces"),
    ("tab after spaces", GOOD + "train:\n  epochs: 1\n  \tseed: 1\n", "5:3", "begins with a tab; indent with spaces"),
    ("tab before a value", GOOD + "nodes:\t1\n", "3:7", "this is not YAML: there is a tab here; write a space"),
    ("bracket left open", GOOD + "env: {A: b\n", "4:1", "this is not YAML"),
    ("unknown alias", GOOD + "nodes: *x\n", "3:8", "this is not YAML: found undefined alias"),
    ("control character", GOOD + "queue: a\x07b\n", "3:9", "this is not YAML"),
    ("a key that is a list", GOOD + "[a, b]: c\n", "3:1", "a key must be a word"),
    ("a character that there is not", GOOD + 'queue: "\\UFFFFFFFF"\n', "3:", "there is no character of this number"),
    ("a character beyond the last", GOOD + 'queue: "\\U00110000"\n', "3:", "there is no character of this number"),
    ("half a character", GOOD + 'queue: "a\\ud800"\n', "3:8", "holds half a character"),
    ("half a character in a key", GOOD + 'env: {"A\\udc80": b}\n', "3:7", "holds half a character"),
    ("NUL in a variable", GOOD + 'env: {A: "b\\0c"}\n', "3:10", "no NUL character"),
    ("a variable too large", GOOD + f"env: {{A: {'b' * 30_001}}}\n", "3:10", "at most 30000 characters"),
    *[(f"a variable of bash's, {name}", GOOD + f"env: {{{name}: b}}\n", "3:7", "belongs to bash")
      for name in ("UID", "SHELLOPTS", "BASH_ENV", "BASH_VERSINFO", "IFS", "_", "ENV", "RANDOM", "PWD")],
    *[(f"a variable of ours, {name}", GOOD + f"env: {{{name}: b}}\n", "3:7", "belongs to torusrun")
      for name in ("TORUSRUN_X", "torusrun_attempt", "TorusRun_")],
    *[(f"digits that are none, {key}: {text[:9]}", GOOD + f"{key}: {text}\n", "3:", f"'{key}'")
      for key, text in (("nodes", "١٠"), ("nodes", "1_0"), ("nodes", "+5"), ("nodes", "0x10"), ("nodes", "9" * 400),
                        ("ranks_per_node", "9" * 5000), ("time", "١٠m"), ("time", "1_0m"), ("time", "9" * 400 + "m"),
                        ("time", "11111d"), ("time", "9" * 38 + "d"), ("time", "0.0000001s"), ("grid", "١x٢"),
                        ("grid", "9" * 400 + "x1"), ("nodes", "100001"), ("ranks_per_node", "1000000000000"))],
    *[(f"a number too large, {key}: {text[:9]}", GOOD + f"train: {{optimizer: {{{key}: {text}}}}}\n", "3:",
       f"'train.optimizer.{key}'")
      for key, text in (("lr", "9" * 400), ("lr", "1e400"), ("lr", "1_0.0"), ("lr", "١.٠"), ("weight_decay", "1e300"))],
    *[(f"a number too large, {key}: {text[:9]}", GOOD + f"train: {{{key}: {text}}}\n", "3:", f"'train.{key}'")
      for key, text in (("epochs", "9" * 400), ("epochs", "1000001"), ("batch", "9" * 400), ("batch", "10000000000"),
                        ("seed", "4294967296"), ("log_every_steps", "9" * 20))],
    ("ranks beyond counting", GOOD + "nodes: 100000\nranks_per_node: 1024\ntrain: {}\n", "3:8", "the most is 1000000"),
    ("many grids that fit", GOOD + "ranks_per_node: 840\ngrid: 7x1\ntrain: {batch: 840}\n", "4:7",
     "14x60, 15x56, 20x42, 21x40 (the nearest of 32)"),
    ("a long value is shown in part", GOOD + f"nodes: {'9' * 400}\n", "3:8", "... (400 characters)"),
    ("aliases of aliases", GOOD + LAUGHS, "", "this is too large for a spec: more than 100000 values"),
    ("an alias within itself", GOOD + "env: &a {A: *a}\n", "3:6", "this is too large for a spec"),
    ("a queue like an option", GOOD + "queue: -x\n", "3:8", "must not begin with '-'"),
    ("an account like an option", GOOD + "account: --uid=0\n", "3:10", "must not begin with '-'"),
    ("a site's name too long", f"name: digits\nsite: {'s' * 300}\n", "2:7", "longer than 255 bytes"),
    ("a site's path too long", f"name: digits\nsite: {'s/' * 100}{'é' * 200}\n", "2:7", "longer than 255 bytes"),
    ("a site's path far too long", f"name: digits\nsite: {'s/' * 2500}\n", "2:7", "longer than 4000 characters"),
    ("a site's path with NUL", 'name: digits\nsite: "./a\\0b"\n', "2:7", "control characters"),
    ("a site of nobody", "name: digits\nsite: ~nosuchuser/x.yaml\n", "2:7", "there is no user 'nosuchuser'"),
    ("an image of nobody", GOOD + "image: ~nosuchuser/x.sif\n", "3:8", "there is no user 'nosuchuser'"),
    *[("an image that no file can be", GOOD + f"image: {image}\n", "3:8", "'image': a part of its path is longer")
      for image in ("x" * 256, "docker-archive:/a/" + "x" * 256, "/" + "x" * 256 + "/a.sif")],
    ("nested without end", GOOD + "env: " + "[" * 5000 + "\n", "", "nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "says"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_spec_gets_one_clear_message(
    text: str, place: str, says: str, home: Path, tmp_path: Path, capsys: Capsys
) -> None:
    spec = tmp_path / "run.yaml"
    spec.write_text(text, encoding="utf-8")
    assert main(["plan", str(spec)]) == 2, "a mistake in the spec must exit with 2"
    said = capsys.readouterr()
    assert said.out == "", "nothing may be printed as a result of a broken spec"
    assert says in said.err
    assert f"{spec}:{place}" in said.err, "the message must name file, line and column"
    assert len(said.err.strip().splitlines()) <= 2, f"one mistake should make one message: {said.err}"


# (what is wrong, the lines of a site, where the message points, what it must say)
SITES = [
    ("runs of nobody", "runs: ~nosuchuser/runs\n", "4:7", "'runs': there is no user 'nosuchuser'"),
    ("a cache of nobody", "container: {cache: ~nosuchuser/x}\n", "4:20", "'container.cache': there is no user"),
    ("a folder too long", f"container: {{temporary: /{'x' * 300}}}\n", "4:24", "longer than 255 bytes"),
    ("a topology of nobody", "topology: {source: slurm, file: ~nosuchuser/x}\n", "4:33", "there is no user"),
    ("an unknown scheduler", "scheduler: slrm\n", "3:12", "no scheduler 'slrm'; did you mean 'slurm'?"),
    ("a group that could write", "umask: '007'\n", "4:8", "'umask': '007' is not a umask"),
    ("a variable of bash's", "env: {PPID: 1}\n", "4:7", "'PPID' belongs to bash"),
    ("modules beside the environment", "modules: [gcc]\n", "4:1", "did you mean 'environment.modules'?"),
    ("negative time", "measured: {models: {m: {step_us: -1}}}\n", "4:34", "must be at least 0"),
    ("a size without end", f"request: {{memory: {'9' * 400}GiB}}\n", "4:19", "is not a size"),
    ("a size too large", "request: {memory: 99999999999TB}\n", "4:19", "must be at most 1e+18 bytes"),
    ("other digits in a size", "request: {memory: ١GiB}\n", "4:19", "is not a size"),
    ("a rate without end", f"node: {{inter_node: {'9' * 400}GB/s}}\n", "4:20", "is not a bandwidth"),
    ("a rate too large", "node: {inter_node: 9999999999999TB/s}\n", "4:20", "must be at most 1e+18"),
    ("no rate", "node: {inter_node: 0GB/s}\n", "4:20", "must be at least 1 bytes per second; write it as 12.5GB/s"),
    ("a share without end", f"topology: {{source: slurm, uplink: 1/{'9' * 400}}}\n", "4:35", "is not a share"),
    ("a share too small", "topology: {source: slurm, uplink: 1e-300}\n", "4:35", "must be at least 1e-06"),
    ("ranks without end", "node: {ranks: 1000000}\n", "4:15", "'node.ranks' must be at most 1024"),
    ("a quote in a queue", "scheduler: gridengine\nqueue: 'a b\" -l evil=1 \"c'\n", "4:8", "holds '\"'"),
    ("a hash in a queue", "scheduler: gridengine\nqueue: 'a#b'\n", "4:8", "directives end there"),
    ("a backslash in an account", "scheduler: gridengine\naccount: 'a\\'\n", "4:10", "'account'"),
    ("a backslash in a queue of PBS", "scheduler: pbs\nqueue: 'a\\'\n", "4:8", "holds a backslash"),
    ("both quotes in a queue of PBS", "scheduler: pbs\nqueue: \"a'b\\\"c\"\n", "4:8", "both kinds of quotes"),
    ("an account of two words", "submit_args: [-A, '{account}']\naccount: 'a b'\n", "5:10", "the site's own words"),
    *[("another cluster", f"{key}: [--clusters=gpu]\n", f"4:{len(key) + 3}", f"'{key}': '--clusters=gpu' submits to a")
      for key in ("ask", "submit_args")],
    ("another cluster", "request: {options: [--clusters=gpu]}\n", "4:20", "'request.options': '--clusters=gpu' subm"),
    ("an account with a comma", "ask: ['-l x={account}']\naccount: 'a,b'\n", "5:10", "the site's own words"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "says"), [s[1:] for s in SITES], ids=[s[0] for s in SITES])
def test_a_broken_site_gets_one_clear_message(
    text: str, place: str, says: str, home: Path, tmp_path: Path, capsys: Capsys
) -> None:
    site = tmp_path / "mine.yaml"
    head = "" if text.startswith("scheduler:") else "scheduler: slurm\n"
    site.write_text(f"# mine\nlauncher: srun\n{head}{text}", encoding="utf-8")
    (tmp_path / "run.yaml").write_text("name: digits\nsite: mine.yaml\ntrain: {}\n")
    err = refuses(capsys, "plan", str(tmp_path / "run.yaml"))
    assert says in err and f"{site}:{place}: " in err
    assert len(err.strip().splitlines()) == 1, err


def test_a_queue_of_the_run_is_named_by_the_run(home: Path, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "mine.yaml").write_text("scheduler: gridengine\nlauncher: mpirun\nqueue: 'a#b'\n")
    (tmp_path / "run.yaml").write_text('name: digits\nsite: mine.yaml\nqueue: "it\'s"\n')
    assert main(["plan", str(tmp_path / "run.yaml")]) == 2
    assert f"{tmp_path}/run.yaml:3:8: 'queue': \"it's\" holds \"'\"" in capsys.readouterr().err


def test_several_mistakes_are_reported_together(home: Path, tmp_path: Path, capsys: Capsys) -> None:
    spec = tmp_path / "run.yaml"
    spec.write_text("nam: x\nsite: local\nnodes: many\ntime: soon\ntrain:\n  batch: 0\n  epok: 1\n")
    lines = refuses(capsys, "plan", str(spec)).strip().splitlines()
    assert [line.split(str(spec))[1].split(": ")[0] for line in lines] == [
        ":1:1", ":1:1", ":3:8", ":4:7", ":6:10", ":7:3",
    ]  # fmt: skip


def test_of_many_mistakes_the_first_are_reported(home: Path, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "run.yaml").write_text(GOOD + "".join(f"k{i}: 1\n" for i in range(1000)))
    lines = refuses(capsys, "plan", str(tmp_path / "run.yaml")).splitlines()
    assert len(lines) == 31 and lines[-1] == "and 970 more mistakes"


@pytest.mark.parametrize(
    ("keys", "instead"),
    [
        ("train: {epochs: 2, phases: [{until: 2, nodes: 1}]}", "`torusrun resume RUN --nodes N` continues"),
        ("train: {mlperf_log: true}", "metrics.jsonl has"),
        ("train: {}\nsweep: {train.batch: [32], study: optuna, trials: 3}", "a program asks Optuna itself"),
    ],
)
def test_a_key_that_is_gone_names_the_other_way(home: Path, capsys: Capsys, keys: str, instead: str) -> None:
    (home / "run.yaml").write_text(f"name: x\nsite: local\n{keys}\n")
    assert instead in refuses(capsys, "plan", str(home / "run.yaml"))
