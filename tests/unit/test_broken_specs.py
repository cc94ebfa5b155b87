"""A corpus of broken specs: each gives one clear message with its place, and never a traceback."""

from pathlib import Path

import pytest

from orchestrator.cli import main

GOOD = "name: digits\nsite: local\n"

# (what is wrong, the file's text, where the message points, what it must say)
BROKEN = [
    ("unknown key", GOOD + "noodes: 2\n", "3:1", "unknown key 'noodes'; did you mean 'nodes'?"),
    ("unknown key lists the valid ones", GOOD + "zzz: 2\n", "3:1", "(valid here: name, site, nodes,"),
    ("unknown nested key", GOOD + "train:\n  epoch: 3\n", "4:3", "unknown key 'epoch'; did you mean 'epochs'?"),
    ("missing name", "site: local\n", "1:1", "'name' is missing"),
    ("missing site", "name: digits\n", "1:1", "'site' is missing"),
    ("empty file", "", "", "'name' is missing"),
    ("only comments", "# nothing\n", "", "'name' is missing"),
    ("a list", "- a\n- b\n", "1:1", "a spec must be keys and values, not a list"),
    ("a word", "digits\n", "1:1", "a spec must be keys and values, not the value 'digits'"),
    ("two documents", GOOD + "---\nname: b\n", "3:1", "this is not YAML"),
    ("text for a number", GOOD + "nodes: four\n", "3:8", "'nodes' must be a whole number, not 'four'"),
    ("quoted number", GOOD + "nodes: '4'\n", "3:8", "not text in quotes ('4')"),
    ("fraction for a whole number", GOOD + "nodes: 1.5\n", "3:8", "'nodes' must be a whole number"),
    ("zero nodes", GOOD + "nodes: 0\n", "3:8", "'nodes' must be at least 1, not 0"),
    ("negative lr", GOOD + "train: {lr: -0.1}\n", "3:13", "'train.lr' must be above 0"),
    ("lr not a number", GOOD + "train: {lr: .nan}\n", "3:13", "'train.lr' must be a number"),
    ("infinite lr", GOOD + "train: {lr: inf}\n", "3:13", "'train.lr' must be a number, not 'inf'"),
    ("list for a number", GOOD + "nodes: [1]\n", "3:8", "'nodes' must be a whole number, not a list"),
    ("number for a section", GOOD + "train: 5\n", "3:8", "train must be keys and values, not the value '5'"),
    ("bad duration unit", GOOD + "time: 10 parsecs\n", "3:7", "write 90s, 10m, 1h30m, 2d or HH:MM:SS"),
    ("bare number as duration", GOOD + "time: 600\n", "3:7", "'600' is not a duration"),
    ("MM:SS as duration", GOOD + "time: 10:00\n", "3:7", "'10:00' is not a duration"),
    ("no time at all", GOOD + "time: 0s\n", "3:7", "must be longer than nothing"),
    ("time below the site's margin", GOOD + "time: 5s\n", "3:7", "longer than the site's stop_before (10s)"),
    ("grid with a colon", GOOD + "grid: 2:2\n", "3:7", "write XxY, as in 4x2"),
    ("grid of zero", GOOD + "grid: 0x4\n", "3:7", "'0x4' is not a grid"),
    ("grid that does not fit", GOOD + "grid: 3x2\n", "3:7", "these fit: 1x4, 2x2, 4x1"),
    ("batch that does not divide", GOOD + "train: {batch: 30}\n", "3:16", "does not divide by 4 ranks; try 32"),
    ("several nodes on this machine", GOOD + "nodes: 2\n", "3:8", "'nodes' must be 1 on a local site"),
    ("long warm-up", GOOD + "train: {epochs: 1, warmup_epochs: 2}\n", "3:35", "longer than the 1 epochs"),
    ("unknown site", "name: digits\nsite: locl\n", "2:7", "local, slurm, slurm-v100); did you mean 'local'"),
    ("missing site file", "name: digits\nsite: ./no.yaml\n", "2:7", "no.yaml does not exist"),
    ("unknown model", GOOD + "train: {model: resnet50}\n", "3:16", "'train.model' must be one of resnet-digits"),
    ("key twice", GOOD + "site: slurm\n", "3:1", "'site' stands twice (first on line 2)"),
    ("value left out", "name: digits\nsite:\n", "2:6", "'site' has no value"),
    ("bad name", "name: my run\nsite: local\n", "1:7", "'my run' is not a name"),
    ("name with a command in it", "name: $(touch pwned)\nsite: local\n", "1:7", "is not a name"),
    ("bad variable", GOOD + "env: {A-B: c}\n", "3:7", "is not an environment variable's name"),
    ("queue with a line break", GOOD + 'queue: "a\\n#SBATCH -w x"\n', "3:8", "is not one line of text"),
    ("tab for indentation", GOOD + "train:\n\tlr: 1\n", "4:1", "this is not YAML"),
    ("bracket left open", GOOD + "env: {A: b\n", "4:1", "this is not YAML"),
    ("unknown alias", GOOD + "nodes: *x\n", "3:8", "this is not YAML: found undefined alias"),
    ("control character", GOOD + "queue: a\x07b\n", "3:1", "this is not YAML"),
    ("a key that is a list", GOOD + "[a, b]: c\n", "3:1", "a key must be a word"),
    ("nested without end", GOOD + "env: " + "[" * 5000 + "\n", "", "nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "says"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_spec_gets_one_clear_message(
    text: str, place: str, says: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "run.yaml"
    spec.write_text(text, encoding="utf-8")
    assert main(["plan", str(spec)]) == 2, "a mistake in the spec must exit with 2"
    said = capsys.readouterr()
    assert said.out == "", "nothing may be printed as a result of a broken spec"
    assert says in said.err
    assert f"{spec}:{place}" in said.err, "the message must name file, line and column"
    assert len(said.err.strip().splitlines()) <= 2, f"one mistake should make one message: {said.err}"


def test_the_corpus_is_large_enough() -> None:
    assert len(BROKEN) >= 30


def test_several_mistakes_are_reported_together(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "run.yaml"
    spec.write_text("nam: x\nsite: local\nnodes: many\ntime: soon\ntrain:\n  lr: 0\n  epok: 1\n")
    assert main(["plan", str(spec)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.split(str(spec))[1].split(": ")[0] for line in lines] == [
        ":1:1", ":1:1", ":3:8", ":4:7", ":6:7", ":7:3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: None, "there is no such file"),
        (lambda p: p.mkdir(), "this is a folder"),
        (lambda p: p.write_bytes(b"name: \xff\xfe\n"), "not UTF-8"),
        (lambda p: p.write_bytes(b"#" * 2_000_000), "too large"),
    ],
    ids=["missing", "folder", "not UTF-8", "huge"],
)
def test_a_file_that_cannot_be_read(make, says: str, home: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    spec = tmp_path / "run.yaml"
    make(spec)
    assert main(["submit", str(spec)]) == 2
    assert says in capsys.readouterr().err
    assert not (home / "torusrun").exists(), "a mistake must leave nothing behind"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("nodes", "write it as key=value"),
        ("=3", "write it as key=value"),
        ("nodes.x=3", "'nodes' holds no keys to set"),
        ("train.lr=fast", "--set train.lr=fast: 'train.lr' must be a number"),
        ("trian.lr=1", "did you mean 'train'?"),
        ("grid=[", "this is not YAML"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, says: str, home: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    spec = tmp_path / "run.yaml"
    spec.write_text(GOOD + "nodes: 1\n")
    assert main(["plan", str(spec), "--set", setting]) == 2
    assert says in capsys.readouterr().err


def test_a_broken_site_is_named_by_its_own_file(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "mine.yaml"
    site.write_text("scheduler: Slurm 22\nlauncher: srun\nnode: {memory: 60 gigs}\nmodules: gcc\n")
    (tmp_path / "run.yaml").write_text("name: digits\nsite: mine.yaml\n")
    assert main(["plan", str(tmp_path / "run.yaml")]) == 2
    err = capsys.readouterr().err
    for says in (f"{site}:1:12: 'scheduler'", f"{site}:3:16: 'node.memory'", f"{site}:4:10: 'modules'"):
        assert says in err
