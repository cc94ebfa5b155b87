"""Keeps the newest state in the memory of every node, and lets all ranks of the next attempt continue from it.

Every node has the whole state. So an attempt continues from a state that any of its nodes holds, and a node without it
gets it from another. All ranks must have read the same, or the newest checkpoint on the disk counts.
"""

from __future__ import annotations

import hashlib
import io
import json
import socket
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torusrun.training.checkpoint import node_memory, parts
from torusrun.training.checkpoint.copies import Copies, OffHere, Share
from torusrun.training.checkpoint.parts import SLOTS, Head
from torusrun.training.checkpoint.snapshot import tensors_of
from torusrun.training.config import Config
from torusrun.training.learner import Learner
from torusrun.training.meeting.agree import everyones, on_all_ranks, sent
from torusrun.training.meeting.signed_store import SignedStore
from torusrun.training.progress import Progress
from torusrun.training.reporting.output import warn
from torusrun.training.sync.alike import checksum

BOOT = Path("/proc/sys/kernel/random/boot_id")
NOTHING = -1


class NodeState:
    """The copies of the state of this rank's node. All ranks call the same methods at the same steps."""

    def __init__(self, config: Config, learner: Learner) -> None:
        self._config, self._learner, self._folder = config, learner, config.memory
        self._run = _identity(config)
        self._copies: Copies | None = None
        self._share = Share(0, 1)

    def resume(self, meeting: SignedStore, newer_than: int) -> str | None:
        """Continue from the newest state that a node holds, if it is after more steps than `newer_than`.

        Returns where it was; None if there is none, or if anything about it is doubtful.
        """
        node, wrong = self._node()
        held = parts.newest(self._folder, self._run) if node else None
        own = [node, held[1].step, held[1].attempt] if held else [node, NOTHING, NOTHING]
        everyone = everyones(torch.tensor(own, device=self._learner.device)).tolist()
        mates = [rank for rank, (of, _, _) in enumerate(everyone) if of == node]
        self._share = Share(mates.index(dist.get_rank()), len(mates))
        newest = max((step, attempt) for _, step, attempt in everyone)
        holders = [rank for rank, (_, *has) in enumerate(everyone) if tuple(has) == newest]
        state = self._read(held, holders) if newest[0] > newer_than else None
        if state:
            self._learner.restore(state)
            if dist.get_rank() == holders[0]:
                meeting.set("memory", socket.gethostname())
        self._begin(held[0] if state and held and dist.get_rank() in holders else None, wrong)
        return f"memory of {meeting.get('memory').decode()}, step {newest[0]}" if state else None

    def keep(self) -> None:
        """Copy the state."""
        if self._copies:
            try:
                self._copies.put(self._learner.state(), self._learner.progress.steps)
            except OSError as error:
                self._give_up(error)

    def end(self) -> None:
        """Remove all copies: the attempt ended well."""
        self._copies = None
        if self._share.number == 0:
            node_memory.remove(self._folder)

    def _node(self) -> tuple[int, str]:
        """A number for the memory of this node; 0, and why, if there can be no copies in it."""
        try:
            node_memory.make(self._folder)
            found = self._folder.stat()
            text = f"{BOOT.read_text()} {found.st_dev} {found.st_ino}"
        except OSError as error:
            return 0, f"{error.filename}: {error.strerror}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + 1, ""

    def _read(self, held: tuple[int, Head] | None, holders: list[int]) -> dict[str, Any] | None:
        """The state that `holders` hold, if every rank gets the same, else None on all ranks."""
        state, holds = None, dist.get_rank() in holders
        if held and holds:
            with suppress(Exception):  # whatever is wrong with it: the disk has a state
                state = parts.read(self._folder, *held)
        device = self._learner.device
        if not on_all_ranks(state is not None or not holds, device):
            return None
        if len(holders) < dist.get_world_size():
            content = sent(parts.saved(state) if dist.get_rank() == holders[0] else b"", holders[0], device)
            with suppress(Exception):
                state = state or torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        seen = everyones(torch.tensor(self._seen(state), device=device)).tolist()
        return state if all(each == seen[0] for each in seen) and seen[0] != [0] * len(seen[0]) else None

    def _seen(self, state: dict[str, Any] | None) -> list[int]:
        """Numbers that are the same for the same state; zeros if the state cannot be this training's."""
        with suppress(Exception):  # nothing of it is known yet
            assert state
            progress = Progress(**state["progress"])
            if self._belongs(state, progress):
                return [progress.steps, progress.samples, int(checksum(tensors_of(state)))]
        return [0, 0, 0]

    def _belongs(self, state: dict[str, Any], progress: Progress) -> bool:
        """Whether the state has this model and data, and is within the part of the training that these ranks do."""
        own, stretch = self._learner.state(), self._config.stretch
        epochs = progress.epochs(self._learner.data.train_samples)
        same_model = _layouts(own["model"]) == _layouts(state["model"])
        return same_model and own["data"] == state["data"] and (not stretch or stretch[0] <= epochs < stretch[1])

    def _begin(self, held: int | None, wrong: str) -> None:
        """Begin to copy; the slot `held` has the state from which this attempt continues."""
        try:
            if wrong:
                raise OSError(0, wrong)
            if self._share.number == 0:
                node_memory.begin(self._folder, self._config.memory_until_s)
                for slot in SLOTS:
                    if slot != held:
                        parts.delete_from(self._folder, slot, 0)
        except OSError as error:
            return self._give_up(error)
        first = 0 if held is None else 1 - held
        self._copies = Copies(self._folder, self._share, self._run, self._config.attempt, first)

    def _give_up(self, error: OSError) -> None:
        """Continue without copies on this node; its first rank that finds out says so."""
        copies, self._copies = self._copies, None
        if copies:
            copies.give_up()
        if not isinstance(error, OffHere) and (copies or self._share.number == 0):
            why = f"no copies of the state in the memory of {socket.gethostname()}: {error.strerror}"
            warn(f"training: {why}; the training continues with its checkpoints")


def _identity(config: Config) -> bytes:
    """The same for all attempts of a run with the same recipe, and for no others."""
    known = [config.run, str(config.checkpoints), asdict(config.train)]
    return hashlib.sha256(json.dumps(known, default=str).encode()).digest()


def _layouts(model: dict[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in model.items()}
