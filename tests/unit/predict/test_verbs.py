"""`torusrun predict` and `calibrate` as they are typed."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.forecast import constants
from torusrun.orchestrator.forecast.device import device_for
from torusrun.orchestrator.predict.measurements import MeasuredTime, fits
from torusrun.orchestrator.run.plan import rates

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "tests/unit/recorded/local"
DIGITS = str(ROOT / "examples" / "digits.yaml")
BIG = ["--site", "slurm-v100", "--set", "nodes=16", "--set", "grid=8x8", "--set", "train.batch=2048"]

Said = pytest.CaptureFixture[str]


def answer(said: Said, *argv: str) -> dict[str, object]:
    assert main([*argv, "--json"]) == 0
    found: dict[str, object] = json.loads(said.readouterr().out)
    assert found["schema"] == 1
    return found


def refused(said: Said, *argv: str) -> str:
    assert main(list(argv)) == 2
    return said.readouterr().err


def test_a_run_in_words_and_as_json(home: Path, capsys: Said) -> None:
    assert main(["predict", DIGITS, *BIG, "--workload", "resnet50"]) == 0
    said = capsys.readouterr().out
    for word in ("step", "throughput", "node-hours", "assumed: not modelled", "to 75.9 %"):
        assert word in said
    found = answer(capsys, "predict", DIGITS, *BIG, "--workload", "resnet50")
    names = ("forward_s", "backward_s", "fixed_s", "stragglers_s", "exposed_s", "norms_s")
    parts = sum(float(str(found[part])) for part in names)
    assert parts == pytest.approx(float(str(found["step_s"])))
    assert (found["ranks"], found["grid"], found["steps"]) == (64, [8, 8], 12_512)


def test_each_phase_has_a_step_of_its_own(home: Path, capsys: Said) -> None:
    """1437 images: 12 steps of 128, then 3 x 1437 - 1536 images in steps of 64, with a quarter of the area."""
    phases = ["--set", "train.phases=[{until: 1, batch: 128, size: 8}, {until: 3, batch: 64, size: 4}]"]
    words = ["predict", DIGITS, "--images-per-s=500", "--set=train.epochs=3", "--set=train.evaluate=2", *phases]
    found: Any = answer(capsys, *words)
    first, second = found["phases"]
    assert (first["batch"], first["steps"], second["batch"], second["steps"]) == (128, 12, 64, 44)
    assert found["steps"] == 56 and first["step_s"] / second["step_s"] == pytest.approx(8, rel=0.01)
    assert found["train_s"] == pytest.approx(12 * first["step_s"] + 44 * second["step_s"])
    whole_s = found["validation_s"]
    assert answer(capsys, *words, "--set", "train.evaluate=1")["validation_s"] == pytest.approx(1.5 * whole_s)
    assert main(words) == 0
    assert "12 of 128 images in" in capsys.readouterr().out


def test_smaller_images_take_less_of_a_gpu_and_reach_no_published_accuracy(home: Path, capsys: Said) -> None:
    whole = answer(capsys, "predict", DIGITS, *BIG, "--workload", "resnet50")
    small = answer(capsys, "predict", DIGITS, *BIG, "--set", "train.model=resnet50")
    assert 0 < float(str(small["forward_s"])) < float(str(whole["forward_s"])) / 100
    assert whole["epochs_to_target"] and small["epochs_to_target"] is None
    assert "of the work at 224 x 224" in str(small["assumptions"])


def test_what_the_ranks_send_decides_what_is_exposed(home: Path, capsys: Said) -> None:
    words = ["predict", DIGITS, *BIG, "--workload", "resnet50", "--set", "grid=4x16"]

    def of(*sync: str) -> Any:
        return answer(capsys, *words, *(f"--set=train.sync.{key}" for key in sync))

    exact, one, ddp, fujitsu = (of(f"buckets={name}") for name in ("exact", "one", "ddp", "fujitsu"))
    assert one["groups"] == [161] and fujitsu["groups"] == [3, 21, 57, 80]
    assert one["exposed_s"] == pytest.approx(one["all_reduce_s"]), "nothing overlaps"
    planned = [found["exposed_s"] for found in (ddp, fujitsu)]
    assert all(exact["exposed_s"] <= exposed < one["exposed_s"] for exposed in planned) and len({*planned}) == 2
    assert of("all_reduce=ddp")["groups"] == ddp["groups"], "1 MiB, then 25 MiB of fp32, whoever reduces them"
    assert of()["groups"] == exact["groups"], "the default on GPUs"


def test_batch_norm_over_ranks_takes_two_all_reduces_for_each_layer(home: Path, capsys: Said) -> None:
    words = ["predict", str(ROOT / "examples/recipes/imagenet.yaml"), "--set", "train.norm.ranks={}"]
    alone, four, eight = (
        answer(capsys, *(word.format(ranks) for word in words), "--set", "train.recipe=google-77s")
        for ranks in (1, 4, 8)
    )
    assert alone["norms_s"] == 0 and not any("batch norm" in line for line in alone["assumptions"])  # type: ignore[attr-defined]
    assert any(line.startswith("batch norm over 4 ranks") for line in four["assumptions"])  # type: ignore[attr-defined]
    spent_s = [float(str(found["norms_s"])) for found in (four, eight)]
    # 53 layers twice; a ring of four V100 on NVLink takes some 20 us for a few KB, and over two nodes it takes longer
    assert 106 * 10e-6 < spent_s[0] < spent_s[1] < 106 * 100e-6
    grown_s = float(str(four["step_s"])) - float(str(alone["step_s"]))
    assert grown_s == pytest.approx(spent_s[0])


def test_the_demo_needs_a_measured_rate(home: Path, capsys: Said) -> None:
    assert "torusrun predict RUN.yaml --images-per-s RATE" in refused(capsys, "predict", DIGITS)
    found = answer(capsys, "predict", DIGITS, "--images-per-s", "500")
    assert 1000 < float(str(found["images_per_s"])) < 2000


def test_one_gpu_waits_for_no_slower_rank_though_its_rate_is_that_of_eight(home: Path, capsys: Said) -> None:
    words = ["--workload", "resnet50", "--set", "grid=auto", "--set", "ranks_per_node=1", "--gpu", "h100"]
    found: Any = answer(capsys, "predict", DIGITS, *words)
    assert found["stragglers_s"] == 0 and found["intervals"]["stragglers_s"] == [0, 0]
    names = ("forward_s", "backward_s", "fixed_s", "exposed_s")
    assert sum(found[part] for part in names) == pytest.approx(found["step_s"])


def test_more_nodes_than_a_known_cluster_has_are_called_assumed(home: Path, capsys: Said) -> None:
    words = ["predict", DIGITS, "--site=abci-v", "--workload=resnet50", "--set=account=g", "--set=grid=auto"]
    for nodes, network, is_known in ((2000, "", False), (1088, "", True), (2000, "abci-v", False)):
        more = ["--network", network] if network else []
        found = answer(capsys, *words, *more, "--set", f"nodes={nodes}", "--set", f"train.batch={nodes * 128}")
        assert ("abci-v has 1,088 nodes: the others" in str(found["assumptions"])) is not is_known
        assert network or f"on {-(-nodes // 34)} racks of 34 nodes, if" in str(found["assumptions"])


def test_the_name_of_a_long_accuracy_is_apart_from_its_epochs(home: Path, capsys: Said) -> None:
    words = ["predict", str(ROOT / "examples/recipes/imagenet.yaml"), "--set", "train.recipe=fastai-18min"]
    assert main([*words, "--workload", "resnet50", "--set", "train.phases=[]", "--set", "train.batch=24576"]) == 0
    said = capsys.readouterr().out
    assert "to 93.1 % top-5 " in said, said


H200 = ["predict", DIGITS, "--workload", "resnet50", "--set", "grid=auto", "--set", "ranks_per_node=1"]


def compute_s(found: Any) -> float:
    return float(sum(found[part] for part in ("forward_s", "backward_s", "fixed_s")))


EAGER = "train.compile=false"


def with_keys(said: Said, gpu: str, *keys: str, batch: int = 256) -> Any:
    return answer(said, *H200, "--gpu", gpu, *(f"--set={key}" for key in (f"train.batch={batch}", *keys)))


@pytest.mark.parametrize(
    ("gpu", "keys", "images_per_s"),
    [
        ("h200", [EAGER], 1054.3),
        ("h200", [EAGER, "train.precision=tf32"], 3090.2),
        ("h200", [EAGER, "train.precision=fp16"], 5051.7),
        ("h200", [EAGER, "train.precision=bf16"], 4576.4),
        ("h200", ["train.precision=bf16"], 6626.0),
        ("h100", [EAGER, "train.precision=fp16"], 4328.0),
        ("h100", [EAGER, "train.precision=bf16"], 3761.0),
        ("h100", ["train.precision=bf16"], 5652.0),
    ],
)
def test_a_measured_card_has_a_rate_for_each_precision(
    home: Path, capsys: Said, gpu: str, keys: list[str], images_per_s: float
) -> None:
    """benchmarks/results/gpu-h200-2026-11-26.txt and gpu-2026-11-27.txt; the intervals are those of another host."""
    found = with_keys(capsys, gpu, *keys)
    assert 256 / compute_s(found) == pytest.approx(images_per_s, rel=1e-3)
    low, high = found["intervals"]["step_s"]
    assert 1.1 < high / low < 1.5
    assert "with torusrun in" in found["assumptions"][0]


@pytest.mark.parametrize(
    ("gpu", "keys", "times", "why"),
    [
        ("h200-mlperf", (EAGER,), 4.79, "fp32 beside fp16 was measured on another GPU"),
        ("h200-mlperf", (EAGER, "train.precision=fp16"), 1.0, "with another program"),
        ("a100-mlperf", (EAGER, "train.precision=tf32"), 1.63, "tf32 beside fp16"),
        ("v100-16gb", (EAGER, "train.precision=tf32"), 4.79, "tf32 beside fp16"),  # it has no TF32
        ("h200-mlperf", (), 6.44, "fp32, compiled was measured nowhere"),  # 67.6 us less for an image, as in bf16
        ("h100-mlperf", ("train.precision=fp16",), 1.0, "fp16, compiled was measured nowhere"),  # it was fused, too
        ("p100", (EAGER, "train.precision=fp16"), 1.0, "fp16 beside fp32"),
    ],
)
def test_a_published_rate_is_that_of_its_program_and_others_are_doubtful(
    home: Path, capsys: Said, gpu: str, keys: tuple[str, ...], times: float, why: str
) -> None:
    published = constants.table("gpus")[gpu]
    batch = int(constants.number(published["reference_batch"]))
    found = with_keys(capsys, gpu, *keys, batch=batch)
    fixed_s, step_s = constants.number(published["fixed_s"]), batch / constants.number(published["images_per_s"])
    image_s = found["forward_s"] + found["backward_s"]
    image_s *= fixed_s / found["fixed_s"]  # without the wait for the other ranks of the published run
    assert image_s == pytest.approx(times * (step_s - fixed_s), rel=0.01)
    assert any(why in doubt["why"] for doubt in found["doubts"]), found["doubts"]


def test_what_was_measured_on_an_h200_alone_is_doubtful_on_an_h100(home: Path, capsys: Said) -> None:
    found = with_keys(capsys, "h100", EAGER, "train.precision=tf32")
    assert 256 / compute_s(found) == pytest.approx(3761 * 3090.2 / 4576.4, rel=1e-3)
    low, high = found["intervals"]["step_s"]
    assert 1.6 < high / found["step_s"] < 1.8 and found["step_s"] / low > 1.5
    said = [doubt["why"] for doubt in found["doubts"]]
    assert any("on one card" in why for why in said) and any("tf32 beside bf16 was measured on" in why for why in said)


@pytest.mark.parametrize("gpu", ["h200", "h100"])
def test_what_was_not_measured_on_an_h200_is_made_of_what_was(home: Path, capsys: Said, gpu: str) -> None:
    found = with_keys(capsys, gpu, "train.precision=fp16", "train.compile=true")
    said = [doubt["why"] for doubt in found["doubts"]]
    assert any("measured nowhere" in why for why in said) and not any("another GPU" in why for why in said)


@pytest.mark.parametrize(
    ("gpu", "compiled", "step_s"),
    [("h200", "true", 0.00765), ("h100", "true", 0.00838), ("h200", "false", 0.03008), ("h100", "false", 0.0381)],
)
def test_a_small_batch_takes_the_time_of_its_launches_unless_they_are_replayed(
    home: Path, capsys: Said, gpu: str, compiled: str, step_s: float
) -> None:
    """32 images in bf16, as measured (benchmarks/results/gpu-2026-11-27.txt), where kernels take 8 to 11 ms."""
    found = with_keys(capsys, gpu, "train.precision=bf16", f"train.compile={compiled}", batch=32)
    low, high = found["intervals"]["step_s"]
    assert low < step_s < high and high / low < 1.5
    assert ("at least 33.9 ms to launch" in found["assumptions"][0]) is (compiled == "false")
    assert ("that replay their steps" in found["assumptions"][-2]) is (compiled == "true")
    names = ("forward_s", "backward_s", "fixed_s", "stragglers_s", "exposed_s", "norms_s")
    assert sum(found[part] for part in names) == pytest.approx(found["step_s"])


def test_fp32_of_ours_is_inside_the_interval_of_another_programs_rate(home: Path, capsys: Said) -> None:
    """242.83 ms a step of 256 in fp32 on an H200, and 39.79 compiled in bf16."""
    for keys, step_s in (((EAGER,), 0.24283), (("train.precision=bf16",), 0.03979)):
        low, high = with_keys(capsys, "h200-mlperf", *keys)["intervals"]["step_s"]
        assert low < step_s < high


def test_accumulated_passes_each_have_the_fixed_time_and_the_last_alone_overlaps(home: Path, capsys: Said) -> None:
    fixed_s = [with_keys(capsys, "h200", f"train.accumulate={passes}", batch=1024)["fixed_s"] for passes in (1, 4)]
    assert fixed_s[1] == pytest.approx(4 * fixed_s[0])
    keys = ["--set=train.batch=1024", "--set=train.precision=bf16", "--set=train.compile=true"]
    words = ["predict", DIGITS, *BIG, "--workload=resnet50", "--gpu=h100", *keys]
    once, often = (answer(capsys, *words, "--set", f"train.accumulate={passes}") for passes in (1, 16))
    assert float(str(often["exposed_s"])) > float(str(once["exposed_s"]))


RESNET = """
name: x
site: {site}
ranks_per_node: 1
train: {{model: resnet50, data: {{name: synthetic, options: {{samples: 1024}}}}, batch: 256, precision: bf16}}
"""


@pytest.fixture
def with_card(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """A run file for a site that is this machine, whose nvidia-smi says what was recorded; '' for none."""

    def make(recorded: str, more: str = "") -> str:
        (tmp_path / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\nnode: {{ranks: 1, gpus: 1{more}}}\n")
        (tmp_path / "run.yaml").write_text(RESNET.format(site=tmp_path / "site.yaml"))
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{f'cat {RECORDED}/{recorded}' if recorded else 'exit 9'}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return str(tmp_path / "run.yaml")

    rates.gpus_here.cache_clear()
    yield make
    rates.gpus_here.cache_clear()


@pytest.mark.parametrize(
    ("recorded", "step_ms", "named"),
    [
        ("nvidia-smi.h200.txt", 38.64, "h200 with torusrun in bf16, compiled"),
        ("nvidia-smi.v100.txt", 0, "v100-16gb, whose rate"),
    ],
)
def test_a_site_that_is_this_machine_has_the_rate_of_its_card(
    with_card: Callable[..., str], capsys: Said, recorded: str, step_ms: float, named: str
) -> None:
    found = answer(capsys, "predict", with_card(recorded))
    assert named in found["assumptions"][0]  # type: ignore[index]
    assert not step_ms or 1e3 * float(str(found["step_s"])) == pytest.approx(step_ms, rel=1e-3)
    assert main(["plan", with_card(recorded)]) == 0
    assert "prediction " in (said := capsys.readouterr().out) and f"steps of {found['step_s'] * 1e3:.2f} ms" in said  # type: ignore[operator]


@pytest.mark.parametrize(
    ("recorded", "why"),
    [("", "no type and no architecture"), ("nvidia-smi.h200-mig.txt", "h200_2g.35gb"),
     ("nvidia-smi.h100-pcie.txt", "h100-pcie")],
)  # fmt: skip
def test_a_card_without_a_rate_is_named(with_card: Callable[..., str], capsys: Said, recorded: str, why: str) -> None:
    assert f"no rate is known for the site's GPUs ({why})" in refused(capsys, "predict", with_card(recorded))


def test_an_architecture_alone_may_be_that_of_a_faster_gpu(with_card: Callable[..., str], capsys: Said) -> None:
    plain = answer(capsys, "predict", with_card("", ", gpu_type: h100"))
    doubtful = answer(capsys, "predict", with_card("", ", architecture: sm_90"))
    assert plain["step_s"] == doubtful["step_s"]
    lows = [found["intervals"]["step_s"][0] for found in (plain, doubtful)]  # type: ignore[index]
    assert lows[1] < 0.92 * lows[0]
    assert any("node.gpu_type says which" in doubt["why"] for doubt in doubtful["doubts"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("gpu_type", ["a100_3g.20gb", "nvidia_a100_1g.5gb", "1g.10gb", "A100-2G.10GB"])
def test_a_part_of_a_gpu_has_not_the_rate_of_the_whole(gpu_type: str) -> None:
    assert device_for("sm_80", gpu_type) is None
    assert device_for(None, "h100-pcie") is device_for("sm_90", "nvidia_h100_nvl") is None, "measured as SXM"
    assert device_for(None, "nvidia_h200") == "h200" and device_for(None, "nvidia_h100_80gb_hbm3") == "h100"
    assert device_for("sm_80", "a100") == device_for("sm_80", "a100-sxm4-40gb") == device_for("sm_80") == "a100-80gb"


def test_the_type_of_the_wire_counts_in_a_named_network_too(home: Path, capsys: Said) -> None:
    words = ["predict", DIGITS, *BIG, "--workload", "resnet50", "--set", "train.sync.buckets=one"]
    full, half = (answer(capsys, *words, "--set", f"train.sync.wire={wire}") for wire in ("fp32", "fp16"))
    assert 1.7 < float(str(full["all_reduce_s"])) / float(str(half["all_reduce_s"])) < 2.05


def test_the_fixed_part_of_a_step_stays_at_another_batch(home: Path, capsys: Said) -> None:
    """MLPerf: 8 H100 at batch 400, and 64 at 50 with 314,127 images/s: 10.2 ms a step."""
    words = [
        "predict",
        DIGITS,
        "--workload",
        "resnet50",
        "--network",
        "abci-h",
        "--site",
        "abci-h",
        "--gpu",
        "h100-mlperf",
    ]
    keys = "account=g nodes=8 grid=auto train.batch=3200 train.precision=fp16 train.sync.wire=fp16"
    words += [f"--set={key}" for key in keys.split()]
    named, unnamed = (answer(capsys, *words, "--images-per-s", rate) for rate in ("7161@400", "7161"))
    for found in (named, unnamed):
        low, high = found["intervals"]["images_per_s"]  # type: ignore[index]
        assert found["fixed_s"] == pytest.approx(0.0031) and low < 314_127 < high
        assert float(str(found["images_per_s"])) < 0.9 * 64 * 7161
    assert any("RATE@BATCH" in doubt["why"] for doubt in unnamed["doubts"])  # type: ignore[attr-defined]
    assert any("the rate is that of 400 images, not 50" in doubt["why"] for doubt in named["doubts"])  # type: ignore[attr-defined]
    widths = [found["intervals"]["step_s"][1] / found["intervals"]["step_s"][0] for found in (named, unnamed)]  # type: ignore[index]
    assert max(widths) < 2


def test_sizes_and_grids_are_tables(home: Path, capsys: Said) -> None:
    words = ["predict", DIGITS, *BIG, "--workload", "resnet50"]
    sizes = answer(capsys, *words, "--nodes", "4,16")["forecasts"]
    assert isinstance(sizes, list) and [row["ranks"] for row in sizes] == [16, 64]
    assert sizes[0]["images_per_s"] < sizes[1]["images_per_s"] < 4 * sizes[0]["images_per_s"]
    grids = answer(capsys, *words, "--grids")["forecasts"]
    assert isinstance(grids, list) and [row["grid"] for row in grids][3:5] == [[8, 8], [16, 4]]
    alone = answer(capsys, *words)
    assert {name: grids[3][name] for name in ("step_s", "total_s")} == {k: alone[k] for k in ("step_s", "total_s")}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([DIGITS, "--images-per-s", "nan"], "must be above 0"),
        ([DIGITS, "--images-per-s", "1e-320"], "must be above 0"),
        ([DIGITS, "--workload", "vgg"], "there are: resnet-digits, resnet-small, resnet18, resnet50"),
        ([DIGITS, "--workload", "resnet50"], "torusrun predict RUN.yaml --gpu NAME"),
        ([DIGITS, "--set", "train.model=my.nets:wide"], "the time of the model my.nets:wide of your own is unknown"),
        ([DIGITS, "--set", "train.data=my.sets:all"], "the time of the data my.sets:all of your own is unknown"),
        ([DIGITS, "--images-per-s", "fast"], "write RATE, or RATE@BATCH"),
        ([DIGITS, "--images-per-s", "5@0"], "must be above 0"),
        ([DIGITS, "--network", "nowhere"], "there are: abci-v"),
        ([DIGITS, "--nodes", "4..8"], "write numbers between commas, as in 4,8,16"),
        ([DIGITS, "--nodes", "2"], "'nodes' must be 1 on a local site"),
        ([DIGITS, "--grids", "--hosts", "x"], "one run alone is placed on hosts"),
        ([DIGITS, "--hosts", "nowhere.txt"], "--hosts nowhere.txt: cannot be read"),
    ],
)
def test_what_cannot_be_predicted_is_said_in_one_line(home: Path, capsys: Said, argv: list[str], message: str) -> None:
    said = refused(capsys, "predict", *argv)
    assert message in said and said.count("\n") == 1


@given(st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-7))
def test_calibration_finds_what_the_rows_were_made_of(alpha: float, beta: float) -> None:
    rows = [MeasuredTime("node", 4, size, 6 * alpha + 1.5 * size * beta) for size in (1e3, 1e5, 1e7)]
    (fit,) = fits(rows)
    assert fit.alpha_s == pytest.approx(alpha, rel=1e-4)
    assert fit.beta_s_per_byte == pytest.approx(beta, rel=1e-4)
    assert fit.worst_percent < 0.1
