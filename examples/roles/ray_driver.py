"""Twenty tasks on a Ray cluster: on how many of its nodes do they run?"""

import os
import time

import ray


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def square(number: int) -> tuple[int, str]:
    time.sleep(0.2)
    return number * number, ray.get_runtime_context().get_node_id()


def main() -> None:
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"))
    answers = ray.get([square.remote(number) for number in range(20)])
    busy = len({node for _, node in answers})
    print(f"done sum={sum(number for number, _ in answers)} nodes={len(ray.nodes())} busy={busy}", flush=True)


if __name__ == "__main__":
    main()
