"""`torusrun report`: what is on the page, that it is quoted, whole and small, and where it is written."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.cli.handle import Run
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.at_work import NodeLoad, RankSteps, Slow
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.shown_plan import KeptForecast
from torusrun.orchestrator.run.folder.without_secrets import REMOVED
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.show.page import document as made
from torusrun.orchestrator.show.page import facts as facts_of
from torusrun.orchestrator.show.page import foreign
from torusrun.orchestrator.show.page.document import document
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.orchestrator.show.page.settings import differing, settings
from torusrun.orchestrator.show.placement import outlook

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta", "wbr", "br"}
HOSTILE = "</script><b>{{ 7*7 }}<img src=x onerror=alert(1)>\x1b[31m\x00"


class Page(HTMLParser):
    """A page: its tags are closed in order. `text` is what a reader sees, `rows` the cells of its tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags, self.rows, self._open = "", set[str](), list[list[str]](), list[str]()
        self.feed(html)
        assert not self._open, f"these tags are not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data
        if {"td", "th"} & {*self._open}:
            self.rows[-1][-1] += data


def facts(run: RunFolder) -> RunFacts:
    return facts_of.read(run, Run(run).status())


def page_of(*known: RunFacts) -> Page:
    return Page(document(known))


def page(*runs: RunFolder) -> Page:
    return page_of(*map(facts, runs))


def test_a_page_has_the_end_the_results_the_time_and_the_settings_of_a_run(run: RunFolder) -> None:
    text = page(run).text
    for words in (
        run.run_id, "COMPLETED", "all 4 ranks ended well", "97.00%", "800 images/s", "median of 40 reports", "40 of 40",
        "1 node x 4 ranks", "Throughput, images/s", "submission to end", "queue", "grid", "2x2",
    ):  # fmt: skip
        assert words in text, f"the page lacks {words!r}"


def test_the_page_asks_for_nothing_and_runs_nothing(run: RunFolder) -> None:
    html = document([facts(run)])
    assert not re.search(r"https?:|src=|url\(|@import|<script|<link|<img|\son\w+=", html)
    assert "default-src 'none'" in html


@pytest.mark.needs("users")
def test_no_expression_of_a_strangers_site_is_evaluated(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regular expression can take for ever, and the source of a topology is a command."""
    asked = list[str]()
    monkeypatch.setattr(facts_of, "_placed", lambda plan, hosts: asked.append("placed"))
    facts(run)
    assert asked == ["placed"]
    os.chown(run.folder, 4321, 4321)
    assert facts(run).plan and asked == ["placed"]


def test_a_page_of_another_machine_is_kept_only_if_it_is_like_ours(run: RunFolder) -> None:
    ours, several = document([facts(run)]), document([facts(run), facts(run)])
    assert not foreign.objection(ours) and not foreign.objection(several)
    for evil in (
        "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<a href='https://example.org'>log in</a>",
        "<meta http-equiv=refresh content='0;url=https://example.org'>", "<form action=x>", "<iframe srcdoc=x>",
        "<p onclick=alert(1)>", "<svg><use href=x></svg>", "<base href=x>", "<link rel=stylesheet href=x>",
        "<p style='background:url(x)'>", "<!-- --><!doctype x>", "<?xml-stylesheet href=x?>", "<ScRiPt/x>",
    ):  # fmt: skip
        assert foreign.objection(ours.replace("<main>", f"<main>{evil}")), evil
    assert foreign.objection(ours.replace("default-src 'none'; ", "")) and foreign.objection("")


def test_texts_of_a_run_are_data(run: RunFolder) -> None:
    ledger.append(run.ledger, Submitting(2, name=run.run_id))
    ledger.append(run.ledger, Started(2, job="7", hosts=(HOSTILE,)))
    ledger.append(run.ledger, Ended(2, state=State.FAILED, reason=f"it said {HOSTILE}", cause=Cause.PROGRAM))
    run.attempt(2).logs.mkdir(parents=True)
    run.attempt(2).rank_log(0).write_text(f"Traceback (most recent call last):\n  {HOSTILE}\nValueError: {HOSTILE}\n")
    kept = json.loads(run.provenance.read_text())
    write_json(run.provenance, {**kept, "torusrun": HOSTILE, "git": {"commit": HOSTILE}, "packages": {HOSTILE: [1]}})
    html = document([facts(run)])
    assert html.count("&lt;/script&gt;&lt;b&gt;") >= 6, "the hostile texts are not where this test puts them"
    assert not {"script", "b", "img"} & (Page(html).tags - {"b"}) and "</script" not in html and "<b>{" not in html
    assert "\x1b" not in html and "\x00" not in html and "49" not in re.findall(r"<b>(.*?)</b>", html)


def test_secrets_of_env_are_not_shown(home: Path) -> None:
    spec = write_specs(home)
    env = "{TOKEN: very-secret, LEVEL: '1', WANDB_NAME: made}"
    spec.write_text(f"{spec.read_text()}env: {env}\nsetup: [export KEY=another-one]\n")
    run = make(spec, End(State.FAILED, "rank 0 said very-secret", cause=Cause.PROGRAM))
    run.attempt(1).rank_log(0).write_text("Traceback (most recent call last):\nValueError: no very-secret here\n")
    html = document([facts(run)])
    assert "very-secret" not in html and "another-one" not in html
    assert "[value of TOKEN] here" in html
    shown = {"env.LEVEL": "1", "env.TOKEN": "[value of TOKEN]", "env.WANDB_NAME": "made"}
    assert shown.items() <= dict(settings(facts(run))).items()
    assert f"<h1>{run.run_id}</h1>" in html, "the id of the run is no secret"


def test_values_of_env_are_compared_and_replace_no_other_text(home: Path) -> None:
    spec = write_specs(home)
    found = []
    for rate in ("0.1", "0.25"):
        env = f"{{LR: '{rate}', MODE: made, MAX_TOKENS: '2048', API_KEY: abc-{rate}}}"
        spec.write_text(f"name: made\nsite: ./site.yaml\ngrid: 2x2\ntrain: {{optimizer: {{lr: 0.25}}}}\nenv: {env}\n")
        found.append(facts(make(spec, End(State.FAILED, "made no step at 0.25", cause=Cause.PROGRAM))))
    assert differing(found) == [("env.LR", ["0.1", "0.25"])]
    known = dict(settings(found[1]))
    assert known["train.optimizer.lr"] == "0.25" and known["env.MODE"] == "made" and known["env.MAX_TOKENS"] == "2048"
    assert "made no step at 0.25" in document(found[1:])


def test_what_follows_an_option_for_a_secret_is_not_shown(home: Path) -> None:
    spec = write_specs(home)
    command = ["python", "train.py", "--api-key", "typed one", "--token=typed-two", "--lr", "0.1"]
    spec.write_text(f"name: made\nsite: ./site.yaml\ncode: none\ncommand: {json.dumps(command)}\n")
    run = make(spec, End(State.FAILED, "it said --api-key typed-three", cause=Cause.PROGRAM))
    html = document([facts(run)])
    assert "typed" not in html and f"train.py --api-key {REMOVED} --token={REMOVED} --lr 0.1" in html


def test_a_value_of_env_is_not_shown_by_its_lines_or_in_quotes(home: Path) -> None:
    spec, lines, quoted = write_specs(home), "first planted5577\nsecond planted5578", 'it\'s "so" planted5579'
    spec.write_text(f"{spec.read_text()}env: {json.dumps({'A_TOKEN': lines, 'PASSWORD': quoted})}\n")
    run = make(spec, End(State.FAILED, f"it said {[lines]}", cause=Cause.PROGRAM))
    said = ["Traceback (most recent call last):", f"  {lines!r}", f"  {json.dumps(quoted)}", f"ValueError: {quoted!r}"]
    run.attempt(1).rank_log(0).write_text("\n".join(said) + "\n")
    html = document([facts(run)])
    assert "ValueError: " in html and not re.findall("planted557[0-9]", html)
    assert "planted5577" not in facts(run).shown(lines.splitlines()[0]), "an error is shown line by line"


def test_settings_are_those_of_the_file_and_those_that_are_not_the_default(home: Path) -> None:
    spec = write_specs(home)
    spec.write_text(spec.read_text().replace("train: {}", "train: {model: resnet-digits, batch: 64}"))
    run = make(spec, DONE)
    write_json(run.attempt(1).plan, plan(spec, settings=["train.epochs=3"], run_id=run.run_id).as_json())
    assert dict(settings(facts(run))) == {
        "grid": "2x2", "time": "600s", "train.model.name": "resnet-digits", "train.epochs": "3", "train.batch": "64"
    }  # fmt: skip
    run.spec.write_bytes(b"\xff: [")
    assert "train.epochs" in dict(settings(facts(run))) and "train.batch" not in dict(settings(facts(run)))


@pytest.mark.parametrize("name", ["metrics.jsonl", "ledger.jsonl", "plan.json", "provenance.json", "image.json"])
def test_a_damaged_record_is_left_out(name: str, run: RunFolder) -> None:
    (run.folder / name).write_bytes(b"\xff{damaged\n[]\n")
    if name == "plan.json":
        (run.attempt(1).plan).write_text("[]")
    assert f"{Run(run).status().state.value} " in page(run).text


def test_of_many_attempts_the_newest_are_shown(run: RunFolder) -> None:
    for number in range(2, 27):
        ledger.append(run.ledger, Submitting(number, name=run.run_id))
        ledger.append(run.ledger, Submitted(number, job=f"{number}00"))
        ledger.append(run.ledger, Started(number, job=f"{number}00", hosts=("n1",)))
        ledger.append(run.ledger, Ended(number, state=State.NODE_FAIL, reason=f"lost n{number}", cause=Cause.HOST_LOST))
    text = page(run).text
    assert "6 earlier ones are not shown" in text and "lost n26" in text and "host_lost" in text
    assert "lost n6" not in text and "lost n7" in text


def test_a_long_run_makes_a_small_file_that_keeps_the_peaks(run: RunFolder) -> None:
    rows = (
        f'{{"t": {n}.0, "attempt": 1, "event": "step", "step": {n}, "samples": {n}, "loss": {99 if n == 777 else 1}, '
        '"lr": 0.1, "images_per_s": 800.5}\n'
        for n in range(1, 20_001)
    )
    run.metrics.write_text("".join(rows))
    html = document([facts(run)])
    assert len(html) < 200_000, f"{len(html):,} bytes: thin the curves out"
    (band, *_) = re.findall(r'aria-label="Loss".*?<polygon [^>]*points="(.*?)"', html)
    heights = {point.partition(",")[2] for point in band.split()}
    assert len(heights) == 2, "the band shows the one step with another loss"


def reported(run: RunFolder, **computes_s: float) -> None:
    """Rank 0 of the node reports that its ranks (`r0=0.1`) compute so long in a step of 0.2 s."""
    ranks = tuple(
        RankSteps(int(name[1:]), 9.0, 40, 0.2, 0.3, 1 - each_s / 0.2, each_s, 60) for name, each_s in computes_s.items()
    )
    NodeLoad(10.0, 5.0, 4, ranks=ranks).write(run.attempt(1).node_load(0))


def test_a_slow_rank_is_named(run: RunFolder) -> None:
    reported(run, r0=0.1, r1=0.1, r2=0.1, r3=0.19)
    Slow((3,), ("here",), False, 1.9, 60).write(run.attempt(1).slow)
    found = page(run)
    assert "rank 3 (here) computes 1.9 times as long as the median" in found.text
    (row,) = (row for row in found.rows if row[0] == "3")
    assert row[1:] == ["here", "40", "200.00", "190.00", "5%"]


def test_a_placed_and_predicted_run_shows_both(run: RunFolder) -> None:
    racks = plan(ROOT / "examples/racks/run.yaml")
    hosts = expand((ROOT / "examples/racks/hosts.txt").read_text().strip())
    known = facts(run)
    assert known.account
    account = replace(known.account, forecast=KeptForecast(90.0, 10.0, 40, 1234.0, (2, 2)))
    found = page_of(replace(known, outlook=outlook(racks, hosts), account=account))
    assert "predicted at submit 1,234" in found.text and "predicted at submit: 90.0 s for 40 steps" in found.text
    assert re.search(r"rack3 +2 +17\.78 +#+  < hottest", found.text)


def test_several_runs_are_overlaid_and_compared(home: Path) -> None:
    spec = write_specs(home)
    one = make(spec, DONE)
    spec.write_text(spec.read_text().replace("train: {}", "train: {batch: 512}"))
    other = make(spec, End(State.FAILED, "rank 1 ended", cause=Cause.PROGRAM))
    found = page(one, other)
    assert "2 runs compared" in found.text
    titles, first, second, *_ = found.rows
    assert titles[:2] == ["run", "state"] and "train.batch" in titles
    cells = [dict(zip(titles, row, strict=True)) for row in (first, second)]
    assert [row["run"] for row in cells] == [f"A {one.run_id}", f"B {other.run_id}"]
    assert [row["state"] for row in cells] == ["COMPLETED", "FAILED"] and cells[1]["train.batch"] == "512"
    assert [row["accuracy"] for row in cells] == ["97.00%", "–"]
    assert f"<code>torusrun resume {other.run_id}</code>" in document([facts(other)]), "commands are shown as code"
    with pytest.raises(UserError, match="at most 200 runs, and these are 201"):
        made.html([RunFolder(Path("never-read"))] * 201)
    with pytest.raises(UserError, match="at most 200 runs, and these are 201"):
        document([facts(one)] * 201)


def swept(known: RunFacts) -> list[RunFacts]:
    """A sweep of 24 like this run: members 7 and 9 have the best accuracies, and the last one recorded nothing."""
    of = {7: 0.99, 9: 0.98}
    runs = [
        replace(
            known,
            view=replace(known.view, run=f"swept-1.{number}"),
            rows=[{**row, "accuracy": of.get(number, 0.5)} if "accuracy" in row else row for row in known.rows],
        )
        for number in range(24)
    ]
    return [*runs[:23], replace(runs[23], rows=())]


def test_of_many_runs_the_best_are_drawn_and_all_are_compared(home: Path) -> None:
    html = document(swept(facts(make(write_specs(home), DONE))))
    found = Page(html)
    assert "<h1>swept-1: 24 members</h1>" in html and "the best by accuracy first" in found.text
    names = [row[0] for row in found.rows[1:25]]
    assert names[:3] == ["A 7", "B 9", "C 0"] and names[11:14] == ["L 11", "12", "13"] and names[-1] == "23"


def test_the_verb_writes_a_file_and_overwrites_none(
    run: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    file = home / f"report-{run.run_id}.html"
    assert main(["report", "made*"]) == 0 and capsys.readouterr().out == f"{file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and not list(home.glob(".*.html*"))
    file.write_text("mine")
    assert main(["report", "last"]) == 2 and file.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["report", "last", "-o", str(file), "--force"]) == 0 and run.run_id in file.read_text()
    assert main(["report", "last", "-o", str(home)]) == 2 and "this is a folder" in capsys.readouterr().err
    assert main(["report", "last", "-o", "none/r.html"]) == 2 and "no such folder" in capsys.readouterr().err


def test_python_writes_the_same_file(run: RunFolder, home: Path) -> None:
    path = Run(run).report(home / "page.html")
    assert path == home / "page.html" and run.run_id in path.read_text()
    with pytest.raises(UserError, match="exists already"):
        Run(run).report(path)
