"""What a measuring run has written becomes what plan and predict reckon with."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.forecast.constants import number, table
from torusrun.orchestrator.keys.load import load, load_site, measured_place
from torusrun.orchestrator.predict import measurements
from torusrun.orchestrator.run.folder.run_folder import RunFolder

ALPHA_S, BETA_S, STEP_S, IMAGE_S = 2e-4, 4e-9, 1e-3, 5e-5
SAVE_S = 0.02
RUN = "name: digits\nsite: here\nnodes: 2\ngrid: 2x2\ntrain: {batch: 64}\n"
SITE = (
    "scheduler: slurm\nlauncher: srun\nnode: {ranks: 2, inter_node: 1GB/s, intra_node: 2GB/s}\n"
    "measured: {models: {other: {image_us: 7}}}\n"
)


def rows(attempt: int = 1, slower: float = 1.0) -> list[dict[str, Any]]:
    """As `python -m torusrun.training.measure` writes them, by the very constants that are to be found."""
    computed = {"model": "resnet-digits", "program": "resnet-digits", "ranks": 4, "spread": 0.031}
    head = {"t": 0.0, "attempt": attempt, "event": "measured", "step": 0}
    found: list[dict[str, Any]] = [
        {**head, **computed, "batch": n, "time_s": slower * (STEP_S + n * IMAGE_S)} for n in (16, 32)
    ]
    found.append({**head, "operation": "save", "time_s": slower * SAVE_S})
    for link in ("intra_node", "inter_node"):
        for size in (2**12, 2**20, 2**24):
            time_s = slower * (2 * ALPHA_S + size * BETA_S)
            found.append({**head, "link": link, "operation": "all_reduce", "ranks": 2, "bytes": size, "time_s": time_s})
    return found


@pytest.fixture
def site_file(home: Path) -> Path:
    folder = home / ".config" / "torusrun" / "sites"
    folder.mkdir(parents=True)
    (folder / "here.yaml").write_text(SITE)
    return folder / "here.yaml"


@pytest.fixture
def run_file(tmp_path: Path, site_file: Path) -> Path:
    (tmp_path / "run.yaml").write_text(RUN)
    return tmp_path / "run.yaml"


def run_that_measured(tmp_path: Path, written: list[dict[str, Any]]) -> RunFolder:
    folder = tmp_path / "runs" / "digits-measured"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    return RunFolder(folder)


def test_the_constants_are_fitted_to_the_newest_attempt(tmp_path: Path) -> None:
    found = measurements.of(run_that_measured(tmp_path, [*rows(1, slower=3.0), *rows(2)]))
    assert found.step_us == pytest.approx(STEP_S * 1e6) and found.image_us == pytest.approx(IMAGE_S * 1e6)
    for fit in found.links:
        assert (fit.alpha_s, fit.beta_s_per_byte) == (pytest.approx(ALPHA_S), pytest.approx(BETA_S))


def test_measured_values_replace_those_of_the_sites_file(tmp_path: Path, run_file: Path) -> None:
    place, _ = measurements.keep(str(run_file), run_that_measured(tmp_path, rows()), site=None, settings=[])
    site = load(run_file).site
    assert site.node.inter_node_bytes_per_s == pytest.approx(1 / BETA_S) and site.node.inter_node_latency_us == 200.0
    assert site.node.intra_node_bytes_per_s == pytest.approx(1 / BETA_S)
    models = site.measured.models
    image_us = {name: times.image_us for name, times in models.items()}
    assert image_us == {"other": 7.0, "resnet-digits": pytest.approx(50.0)}
    assert models["resnet-digits"].save_us == pytest.approx(SAVE_S * 1e6)
    assert place.name == "here.measured" and load_site("here") == site
    place.write_text("run: x\ninter_nodes: 1GB/s\n")
    with pytest.raises(UserError, match=r"here.measured:2:1: unknown key 'inter_nodes'; did you mean 'inter_node'"):
        load(run_file)


def test_a_site_that_was_named_from_the_working_directory_gets_the_measurement(
    tmp_path: Path, run_file: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("mine.yaml").write_text(SITE)
    measured = run_that_measured(tmp_path, rows())
    kept = measurements.keep(str(run_file), measured, site="./mine.yaml", settings=[])[0]
    assert kept.resolve() == Path("mine.measured").resolve()


def test_a_measurement_that_differs_beyond_all_bounds_leaves_a_site_that_can_be_read(
    tmp_path: Path, run_file: Path
) -> None:
    wild = [{**row, **({"spread": 11.5} if "model" in row else {})} for row in rows()]
    measurements.keep(str(run_file), run_that_measured(tmp_path, wild), site=None, settings=[])
    assert load(run_file).site.measured.models["resnet-digits"].spread == 10.0


def test_the_measurement_of_a_shipped_site_lies_with_the_users_sites(home: Path) -> None:
    from torusrun.orchestrator.keys.load import SHIPPED

    assert measured_place(SHIPPED / "local.yaml") == home / ".config" / "torusrun" / "sites" / "local.measured"


def test_predict_and_plan_use_the_measured_values(tmp_path: Path, run_file: Path, capsys: Capsys) -> None:
    measurements.keep(str(run_file), run_that_measured(tmp_path, rows()), site=None, settings=[])
    said = json.loads(prints(capsys, "predict", str(run_file), "--json"))
    assert said["forward_s"] + said["backward_s"] + said["fixed_s"] == pytest.approx(STEP_S + 16 * IMAGE_S)
    assert said["exposed_s"] == said["all_reduce_s"], "the demo's gradients go after backward"
    assert json.loads(prints(capsys, "plan", str(run_file), "--json"))["prediction"]["step_s"] == said["step_s"]
    assert "images/s: 450 steps of" in prints(capsys, "plan", str(run_file))


def test_a_measured_spread_says_what_more_ranks_wait(tmp_path: Path, run_file: Path, capsys: Capsys) -> None:
    """A step of four ranks has the wait for the slowest of four in it already."""
    place, found = measurements.keep(str(run_file), run_that_measured(tmp_path, rows()), site=None, settings=[])
    assert "differs     by 3.1 % from step to step, over 4 ranks" in measurements.words(place, found)
    site = load(run_file).site.measured
    assert site.links_error is not None and site.links_error < 0.01, "the rows are made of the very constants"
    assert (site.models["resnet-digits"].ranks, site.models["resnet-digits"].spread) == (4, 0.031)
    waits = []
    for nodes in (2, 8):
        sizes = ["--set", f"nodes={nodes}", "--set", f"grid={2 * nodes}x1", "--set", "train.batch=256"]
        waits.append(json.loads(prints(capsys, "predict", str(run_file), *sizes, "--json")))
    assert waits[0]["stragglers_s"] == 0.0 and "3.1 %, as measured here" in str(waits[1]["assumptions"])
    compute_s = sum(waits[1][part] for part in ("forward_s", "backward_s", "fixed_s"))
    assert waits[1]["stragglers_s"] == pytest.approx(0.031 * compute_s * (1.76599 - 1.02938), rel=1e-4)


def test_a_measurement_without_input_keeps_the_known_input(tmp_path: Path, run_file: Path) -> None:
    head = {"t": 0.0, "attempt": 1, "event": "measured", "step": 0, "data": "imagefolder /x"}
    read = [
        {**head, "operation": each, "time_s": 0.1, "cpu_s": 0.1, "batch": 9}
        for each in ("decode", "read", "read_again")
    ]
    for measured in ([*rows(), *read], rows()):
        measurements.keep(str(run_file), run_that_measured(tmp_path, measured), site=None, settings=[])
        (times,) = load(run_file).site.measured.data.items()
        assert times[0] == "imagefolder /x" and times[1].decode_us > 0


def with_program(program: str) -> list[dict[str, Any]]:
    return [{**row, **({"program": program} if "model" in row else {})} for row in rows()]


def predicted(run_file: Path, capsys: Capsys, *keys: str) -> dict[str, Any]:
    assert main(["predict", str(run_file), *(word for key in keys for word in ("--set", key)), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_measurement_holds_for_its_own_program_and_is_doubtful_for_others(
    tmp_path: Path, run_file: Path, capsys: Capsys
) -> None:
    def width(found: dict[str, Any]) -> float:
        low, high = found["intervals"]["step_s"]
        return float(high / low)

    measurements.keep(str(run_file), run_that_measured(tmp_path, rows()), site=None, settings=[])
    own, other = predicted(run_file, capsys), predicted(run_file, capsys, "train.precision=bf16")
    assert width(own) < 1.4 and width(other) > 2.5
    assert "bf16 is beside fp32 on these processors is unknown" in other["doubts"][1]["why"]
    for key in ("train.compile=true", "train.accumulate=4"):
        assert width(predicted(run_file, capsys, key)) > 1.3 * width(own), key
    assert predicted(run_file, capsys, "train.precision=tf32")["step_s"] == own["step_s"], "fp32 on processors"
    slower = [{**row, **({"time_s": 3 * row["time_s"]} if "model" in row else {})} for row in
              with_program("resnet-digits, bf16")]  # fmt: skip
    measurements.keep(str(run_file), run_that_measured(tmp_path, slower), site=None, settings=[])
    now = predicted(run_file, capsys, "train.precision=bf16")
    assert now["forward_s"] == pytest.approx(3 * own["forward_s"]) and width(now) < 1.4
    assert predicted(run_file, capsys)["step_s"] == own["step_s"], "fp32 keeps its own"


def test_a_measured_line_is_doubtful_at_batches_that_were_not_measured(
    tmp_path: Path, run_file: Path, capsys: Capsys
) -> None:
    """Measured at 16 and 32 images of a rank, of four."""
    measurements.keep(str(run_file), run_that_measured(tmp_path, rows()), site=None, settings=[])
    doubts = {
        batch: [one["why"] for one in predicted(run_file, capsys, f"train.batch={4 * batch}")["doubts"]]
        for batch in (2, 16, 24, 32, 320)
    }
    doubtful = {batch for batch, why in doubts.items() if any("was measured at 16 to 32 images" in one for one in why)}
    assert doubtful == {2, 320}
    found = predicted(run_file, capsys, "train.batch=8")
    low, high = found["intervals"]["step_s"]
    assert low < (STEP_S + 16 * IMAGE_S) / 8 + found["exposed_s"] and high > STEP_S + 2 * IMAGE_S + found["exposed_s"]


def test_a_measured_model_of_ones_own_is_predicted_and_planned(tmp_path: Path, run_file: Path, capsys: Capsys) -> None:
    """Its tensors and the samples of its data are what `python -m torusrun.training.measure` counted."""
    own = 'train: {model: "my.nets:wide", data: "my.sets:all", batch: 64, epochs: 2}'
    run_file.write_text(RUN.replace("train: {batch: 64}", own))
    assert "`torusrun calibrate RUN.yaml` measures it" in refuses(capsys, "predict", str(run_file))
    counted = {"counted": "my.nets:wide", "tensors": [300, 30, 1000], "of": "my.sets:all", "halves": [640, 100]}
    written = [{**rows()[0], "program": "my.nets:wide"}, {**rows()[1], "program": "my.nets:wide"}, *rows()[2:]]
    facts = {"t": 0.0, "attempt": 1, "event": "measured", "step": 0, **counted}
    measurements.keep(str(run_file), run_that_measured(tmp_path, [facts, *written]), site=None, settings=[])
    found = predicted(run_file, capsys)
    assert found["steps"] == 20 and found["groups"] and found["all_reduce_s"] > 0
    said = " ".join(prints(capsys, "plan", str(run_file), "--set", "grid=auto").split())
    assert "images/s: 20 steps of" in said and "the gradients of my.nets:wide" in said
    assert main(["predict", str(run_file), "--set", "train.model.name=my.nets:narrow"]) == 2


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ([], "no complete measurement"),
        (rows()[1:], "no complete measurement"),
        (rows()[:4], "two different sizes"),
        ([*rows()[:-1], {**rows()[-1], "ranks": 1}], "a measured link must have"),
        ([*rows()[:-1], {**rows()[-1], "operation": ["send"]}], "a measured link must have"),
        ([*rows()[:-3], *({**row, "time_s": 1.0} for row in rows()[-3:])], "larger messages do not take longer"),
    ],
)
def test_an_incomplete_measurement_is_refused(tmp_path: Path, written: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        measurements.of(run_that_measured(tmp_path, written))


@pytest.mark.parametrize("name", ["abci-v", "abci-a", "abci-h", "slurm-v100"])
def test_shipped_sites_have_the_links_of_the_table_of_networks(name: str) -> None:
    node, links = load_site(name).node, table("networks")[name]
    inner, outer = links["node"], links["cluster"]
    assert (node.ranks, node.intra_node_bytes_per_s) == (
        number(inner["members"]), number(inner["bandwidth_bytes_per_s"])
    )  # fmt: skip
    assert node.inter_node_bytes_per_s == number(outer["bandwidth_bytes_per_s"])
    assert (node.intra_node_latency_us, node.inter_node_latency_us) == (
        pytest.approx(1e6 * number(inner["latency_s"])), pytest.approx(1e6 * number(outer["latency_s"]))
    )  # fmt: skip


def with_input(decode_s: float) -> list[dict[str, Any]]:
    """A measurement whose images take so long to decode, and 1 ms or 0.2 ms to read."""
    head = {"t": 0.0, "attempt": 1, "event": "measured", "step": 0, "data": "digits", "batch": 16}
    took = {"read": 1e-3, "read_again": 2e-4, "decode": decode_s}
    read = [{**head, "operation": name, "time_s": 16 * each_s} for name, each_s in took.items()]
    return [*rows(), *read[:2], {**read[2], "cpu_s": 16 * 2 * decode_s}]


@pytest.mark.parametrize(("decode_s", "is_slower"), [(1e-6, True), (2e-4, True), (1e-2, True), (0.0, False)])
def test_a_step_takes_as_long_as_its_longer_part_the_step_or_the_input(
    tmp_path: Path, run_file: Path, capsys: Capsys, decode_s: float, is_slower: bool
) -> None:
    written = with_input(decode_s) if is_slower else rows()
    place, found = measurements.keep(str(run_file), run_that_measured(tmp_path, written), site=None, settings=[])
    said = json.loads(prints(capsys, "predict", str(run_file), "--json"))
    busy_s = STEP_S + 16 * IMAGE_S + said["exposed_s"]
    reading_s = 16 * (decode_s + 8e-4) if is_slower else 0.0
    assert said["step_s"] == pytest.approx(max(busy_s, reading_s)) and said["input_s"] == pytest.approx(
        max(0.0, reading_s - busy_s)
    )
    low, high = said["intervals"]["step_s"]
    assert low <= said["step_s"] <= high and high >= 1.04 * reading_s * 0.9999
    if is_slower:
        assert said["intervals"]["reading_s"] == pytest.approx([16 * decode_s / 1.04, 1.04 * reading_s])
        assert f"{0.5 / decode_s:,.0f} images/s a core decodes" in measurements.words(place, found)
        assert main(["plan", str(run_file)]) == 0
        assert (f", input {1e3 * said['input_s']:.2f} ms" in capsys.readouterr().out) is (reading_s > busy_s)


def test_a_site_that_charges_points_shows_what_a_run_costs(
    home: Path, run_file: Path, site_file: Path, capsys: Capsys
) -> None:
    site_file.write_text(
        SITE.replace("ranks: 2,", "ranks: 2, gpus: 2, architecture: sm_70,") + "points_per_node_hour: 3\n"
    )
    said = json.loads(prints(capsys, "predict", str(run_file), "--images-per-s", "10", "--json"))
    assert said["points"] == pytest.approx(3 * said["node_hours"])
    assert said["node_hours"] == pytest.approx(2 * said["total_s"] / 3600)
    run_file.write_text(f"{run_file.read_text()}\nroles: {{server: {{nodes: 2, command: [serve]}}}}\n")
    served = json.loads(prints(capsys, "predict", str(run_file), "--images-per-s", "10", "--json"))
    assert served["total_s"] == pytest.approx(said["total_s"])
    assert served["node_hours"] == pytest.approx(2 * said["node_hours"]), "the nodes of services count, too"
    assert main(["plan", str(run_file), "--set", "nodes=2"]) == 0
