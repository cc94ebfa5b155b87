"""ResNet-50 on one GPU: images per second in channels_last and mixed precision, by local batch.

`python -m benchmarks.step [fp16|bf16]`. A step is all that a rank does between two batches that lie on the GPU: forward
in autocast, backward into one arena, the all-reduce of one rank, LARS. Not computing is the share of the time in which
no kernel runs. Anchors: the goals of this project, and an H100's 6,980 in NVIDIA's MLPerf 3.0 run, evaluation included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.autograd import DeviceType
from torch.nn import functional

from training.collectives.all_reduce import build
from training.models import resnet50
from training.optim import lars
from training.recipe.train import Train
from training.sync.gradients import Gradients

BATCHES = (16, 32, 64, 128, 256)
PIXELS, CLASSES = 224, 1000
WARM_UP, STEPS, PROFILED = 10, 30, 10
GOALS = (3600, 5000)
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
LOSS_SCALE = 1024.0  # fp16's; what it costs is what counts here

Act = Callable[[], None]


def step_of(batch: int, dtype: torch.dtype, device: torch.device) -> Act:
    """A training step of `batch` random images."""
    model = resnet50.build(classes=CLASSES, shape=(3, PIXELS, PIXELS), seed=1, channels_last=True).to(device)
    images = torch.randn(batch, 3, PIXELS, PIXELS, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    optimizer, gradients = lars.build(model, Train()), Gradients(model, build("torus", (1,)))
    optimizer.agree(lambda mine: mine)  # the one rank there is: LARS takes its fused form
    scale = LOSS_SCALE if dtype == torch.float16 else 1.0

    def step() -> None:
        gradients.clear()
        with torch.autocast("cuda", dtype):
            loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        gradients.begin(loss, False)
        (loss * scale).backward()
        for _ in gradients.arriving():
            pass
        optimizer.step(1e-3)

    return step


def images_per_s(step: Act, batch: int) -> float:
    """Of `STEPS` steps, after those that choose kernels."""
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return STEPS * batch / (time.perf_counter() - started_s)


def kernels_s(step: Act) -> float:
    """Seconds of a step in which a kernel runs; all run in one stream, one after the other."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    rows = [row for row in profile.key_averages() if row.device_type == DeviceType.CUDA]
    return sum(row.self_device_time_total for row in rows if not row.is_user_annotation) / 1e6 / PROFILED


def main() -> None:
    if not torch.cuda.is_available():
        print(f"benchmarks.step: skipped, torch {torch.__version__} sees no GPU here")
        return
    dtype = sys.argv[1] if len(sys.argv) > 1 else "bf16"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {time.strftime('%F')}")
    print(f"ResNet-50, {PIXELS} x {PIXELS}, channels_last, {dtype}, {STEPS} steps\n")
    print(
        f"{'batch':>6}{'images/s':>10}{'ms':>8}{'not computing':>15}" + "".join(f"{f'/ {goal}':>8}" for goal in GOALS)
    )
    for batch in BATCHES:
        step = step_of(batch, DTYPES[dtype], device)
        rate = images_per_s(step, batch)
        idle = max(0.0, 1 - kernels_s(step) * rate / batch)
        shares = "".join(f"{rate / goal:8.2f}" for goal in GOALS)
        print(f"{batch:6}{rate:10.0f}{batch / rate * 1e3:8.2f}{idle:15.1%}{shares}", flush=True)
        del step
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
