"""TensorBoard on the metrics of the run beside which it stands: a service of tensorboard.yaml.

python board.py PORT

It listens on the loopback of its host, to which `torusrun forward` leads.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.program import TensorBoard
from tensorboard.summary.writer.event_file_writer import EventFileWriter

METRICS = Path("../metrics.jsonl")  # of all attempts, beside the run's copy of the code
EVENTS = Path("events")
LOOK_S = 2.0


def events(line: bytes) -> Event | None:
    """The numbers of a row of the metrics, if it is of a step."""
    row = json.loads(line)
    if "step" not in row:
        return None
    numbers = {name: value for name, value in row.items() if isinstance(value, float) and name != "t"}
    values = [Summary.Value(tag=f"{row['event']}/{name}", simple_value=value) for name, value in numbers.items()]
    return Event(wall_time=row["t"], step=row["step"], summary=Summary(value=values))


def main() -> None:
    shutil.rmtree(EVENTS, ignore_errors=True)  # of an earlier attempt, whose rows are read again
    writer = EventFileWriter(str(EVENTS))
    board = TensorBoard()
    board.configure(argv=["tensorboard", "--logdir", str(EVENTS), "--host", "127.0.0.1", "--port", sys.argv[1]])
    print("TensorBoard serves at", board.launch(), flush=True)
    read = 0
    while True:
        if METRICS.exists():
            with METRICS.open("rb") as file:
                file.seek(read)
                while (line := file.readline()).endswith(b"\n"):
                    read += len(line)
                    if event := events(line):
                        writer.add_event(event)
            writer.flush()
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
