"""The events of a run's metrics, and their values that others read: declared once, for writers and readers."""

START = "start"  # the ranks have met
STEP = "step"
EVAL = "eval"
CHECKPOINT = "checkpoint"
CHECKPOINT_S = "checkpoint_s"  # in a line of a command: it is of a checkpoint, for which the training waited so long
CHECKPOINT_FAILED = "checkpoint_failed"
ROLE = "role"  # of a service: the names of its numbers begin with its own, as evaluate/accuracy
MEASURED = "measured"
SAVE = "save"  # the operation of a measurement
READ, READ_AGAIN, DECODE = "read", "read_again", "decode"  # others: images from the file system, the cache, into pixels
MEAN = "mean"  # and of vectors, over all ranks
MEASURED_STEPS = 15  # of each batch of a measurement; the first step does not count
STOP = "stop"  # after a checkpoint, to continue later
DONE = "done"
ALONG = (START, STEP, STOP, DONE)  # these give the step of the training

TOTALS = ("total_steps", "samples", "total_samples")
COUNTS = ("step", *TOTALS, "attempt")  # whole numbers from 0
NUMBERS = (
    "t", "loss", "lr", "epoch", "images_per_s", "accuracy", "top5", "test_loss", "ensemble", "best_member", "time_s",
    "batch", "bytes", "ranks", "spread", "cpu_s",
)  # fmt: skip
LISTS = ("members",)  # of numbers
LARGEST = 1e15  # of any number
