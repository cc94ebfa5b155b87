"""A tiny GRPO in three roles: a network learns to add two digits from the rewards of a judge alone.

    python grpo.py rollout ADDRESS PORT            samples answers with the weights that each request brings
    python judge.py ADDRESS PORT                   rates them
    python grpo.py train ROLLOUT_URL JUDGE_URL     trains, on any number of ranks

A server keeps nothing between requests: its answer follows from the request alone. So a run whose servers or trainers
were killed ends with the same bits as an undisturbed one.

GRPO: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1; here without the term for a reference model.
"""

import argparse
import hashlib
import http.client
import io
import json
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import one_hot

import torusrun

GROUP = 16  # answers to each problem, which are compared with each other
UPDATES = 2  # with the answers of one step
CLIP = 0.2
PATIENCE_S = 120.0  # for a server that is started again


class Policy(nn.Module):
    """Writes a sum of two digits as two digits, each from the problem and the digits before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(110, 128), nn.ReLU(), nn.Linear(128, 20))

    def digit(self, problems: Tensor, before: Tensor | None) -> Tensor:
        """The logarithms of the probabilities of the first digit, or of the second after the first."""
        told = one_hot(10 * problems[:, 0] + problems[:, 1], 100).float()
        first = torch.zeros(len(problems), 10) if before is None else one_hot(before, 10).float()
        logits = self.layers(torch.cat([told, first], 1))
        return torch.log_softmax(logits[:, :10] if before is None else logits[:, 10:], 1)

    def forward(self, problems: Tensor, answers: Tensor) -> Tensor:
        """The logarithm of the probability of each digit of the answers."""
        both = torch.stack([self.digit(problems, None), self.digit(problems, answers[:, 0])], 1)
        return both.gather(2, answers[:, :, None])[:, :, 0]


@torch.no_grad()
def sample(policy: Policy, problems: Tensor, seed: int) -> Tensor:
    """An answer to each problem, by the policy's probabilities."""
    random = torch.Generator().manual_seed(seed)
    first = torch.multinomial(policy.digit(problems, None).exp(), 1, generator=random)
    second = torch.multinomial(policy.digit(problems, first[:, 0]).exp(), 1, generator=random)
    return torch.cat([first, second], 1)


def packed(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def unpacked(body: bytes) -> Any:
    return torch.load(io.BytesIO(body), weights_only=True)


class Rollout(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def do_POST(self) -> None:
        asked = unpacked(self.rfile.read(int(self.headers["Content-Length"])))
        policy = Policy()
        policy.load_state_dict(asked["weights"])
        body = packed(sample(policy, asked["problems"], asked["seed"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Log no requests."""


def answer(url: str, body: bytes) -> bytes:
    """The answer of a server, which may be starting again. A server that refuses the request raises HTTPError."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, body, timeout=PATIENCE_S) as found:
                return bytes(found.read())
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException):
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)


def average(gradients: list[Tensor | None]) -> None:
    """Replace the gradients of each rank by their mean over all ranks."""
    for gradient in gradients:
        if gradient is not None:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()


def train(args: argparse.Namespace) -> int:
    """Train to the last step, or until a request to stop; the exit code."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    problems = torch.cartesian_prod(torch.arange(10), torch.arange(10))
    mine = problems[rank::ranks].repeat_interleave(GROUP, 0)

    def accuracy() -> float:
        """The share of problems that the policy's likeliest digits solve."""
        with torch.no_grad():
            first = policy.digit(problems, None).argmax(1)
            sums = 10 * first + policy.digit(problems, first).argmax(1)
        return float((sums == problems.sum(1)).float().mean())

    checkpoints = torusrun.Checkpoints(model=policy, optimizer=optimizer, every=args.every, folder="ckpt")
    begun = checkpoints.resume()
    if rank == 0:
        print(f"begins at step={begun}, accuracy before: {accuracy():.2f}", flush=True)
    for step in range(begun, args.steps):
        seed = step * ranks + rank
        asked = {"weights": policy.state_dict(), "problems": mine, "seed": seed}
        answers = unpacked(answer(args.first, packed(asked)))
        judged = {"problems": mine.tolist(), "answers": answers.tolist()}
        rewards = torch.tensor(json.loads(answer(args.second, json.dumps(judged).encode()))).view(-1, GROUP)
        spread = rewards.std(1, keepdim=True) + 1e-4
        advantages = ((rewards - rewards.mean(1, keepdim=True)) / spread).view(-1, 1)
        with torch.no_grad():
            before = policy(mine, answers)
        for _ in range(UPDATES):
            ratio = (policy(mine, answers) - before).exp()
            loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
            optimizer.zero_grad()
            loss.backward()
            average([parameter.grad for parameter in policy.parameters()])
            optimizer.step()
        if rank == 0 and (step + 1) % 5 == 0:
            print(f"step={step + 1} accuracy={(rewards == 1).float().mean():.3f}", flush=True)
        checkpoints.after_step(step + 1)
        if checkpoints.asked_to_stop:
            return torusrun.LATER
        time.sleep(args.pause)
    checkpoints.close()

    if rank == 0:
        weights = b"".join(p.detach().numpy().tobytes() for p in policy.parameters())
        checksum = hashlib.sha256(weights).hexdigest()[:16]
        print(f"done step={args.steps} checksum={checksum}, accuracy after: {accuracy():.2f}", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["rollout", "train"])
    parser.add_argument("first", help="the address to serve at, or the URL of the rollout server")
    parser.add_argument("second", help="the port to serve at, or the URL of the judge")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    args = parser.parse_args()
    torch.set_num_threads(1)  # it decides the order of sums, and so the last bits
    if args.role == "rollout":
        ThreadingHTTPServer((args.first, int(args.second)), Rollout).serve_forever()
    dist.init_process_group("gloo")
    code = train(args)
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
