"""What a job asks its scheduler for besides nodes and time: one vocabulary, for defaults of a site and for one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated

from torusrun.orchestrator.keys import kinds
from torusrun.training.recipe.key import key, key_of

MEMORY = kinds.text_kind(
    "a size of memory",
    rf"{kinds.NUMBER} ?(B|[KMGT](iB)?|[kMGT]B)",
    "write it as 60GiB, or as schedulers do, in powers of 1,024: 60G",
    lambda text: kinds.bytes_(f"{text}iB" if text[-1] in "KMGT" else text),
    kinds.SIZE.write,
)
LICENSE = kinds.text_kind(
    "a license", r"[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,200}(:[1-9][0-9]{0,5})?", "write NAME or NAME:NUMBER, as in matlab:2"
)


@dataclass(frozen=True)
class Resources:
    """What a job asks for. A run's keys replace those of its site one by one; its options follow the site's."""

    qos: Annotated[str, kinds.OPERAND] | None = key(None, "quality of service")
    constraint: Annotated[str, kinds.OPERAND] | None = key(
        None, "features that its nodes must have, in the scheduler's words, as in 'a100&nvlink' or host_type=a100"
    )
    reservation: Annotated[str, kinds.OPERAND] | None = key(None, "reservation to run in, by its name or id")
    memory_bytes: Annotated[int, MEMORY] | None = key(
        None, "memory of a node, as in 200GiB or 200G; default: the scheduler's", name="memory"
    )
    memory_per_rank_bytes: Annotated[int, MEMORY] | None = key(
        None, "memory for each rank on a node, in place of memory", name="memory_per_rank"
    )
    cpus_per_rank: Annotated[int, kinds.PER_NODE] | None = key(None, "cores for each rank; default: 1")
    gpus: Annotated[int, kinds.NONE_OR_MORE] | None = key(
        None, "GPUs of a node, also a part of them, with as many ranks; default: the site's node.gpus"
    )
    gpu_type: Annotated[str, kinds.GPU_TYPE] | None = key(
        None, "type of the GPUs, as in v100: Slurm's --gres=gpu:v100:4, PBS's resource gpu_type; default: node.gpu_type"
    )
    exclusive: bool | None = key(None, "whether no other job may run on its nodes; default: as the scheduler does it")
    licenses: tuple[Annotated[str, LICENSE], ...] = key((), "licenses of the job, as in [matlab:2]")
    options: tuple[Annotated[str, kinds.LINE], ...] = key(
        (), "further options of the job in the scheduler's own words, one directive each, as in [--nice=100]"
    )

    def over(self, site: Resources) -> Resources:
        """This request, with the site's keys where its own are missing."""
        given = {field: getattr(self, field) for field, _ in self.named()}
        if given.keys() & {"memory_bytes", "memory_per_rank_bytes"}:
            site = replace(site, memory_bytes=None, memory_per_rank_bytes=None)
        return replace(site, **{**given, "options": (*site.options, *self.options)})

    def memory_of(self, ranks: int) -> int | None:
        """The memory of a node with this many ranks; None if it names none."""
        return self.memory_per_rank_bytes * ranks if self.memory_per_rank_bytes else self.memory_bytes

    def named(self) -> Iterator[tuple[str, str]]:
        """(field, key) of each part that it names."""
        for field in fields(self):
            if getattr(self, field.name) not in (None, ()):
                yield field.name, key_of(field)

    def words(self) -> dict[str, str]:
        """Its parts as texts, by their keys."""
        texts: dict[str, str] = {}
        for field, named in self.named():
            value = getattr(self, field)
            texts[named] = str(value)
            if field.endswith("_bytes"):
                texts[named] = f"{value / 2**30:g} GiB" if value >= 2**30 else f"{value / 2**20:g} MiB"
            if isinstance(value, tuple):
                texts[named] = ", ".join(value)
            elif isinstance(value, bool):
                texts[named] = "yes" if value else "no"
        return texts


@dataclass(frozen=True)
class Most:
    """The largest values that a run may request."""

    memory_bytes: Annotated[int, MEMORY] | None = key(None, "memory of a node", name="memory")
    time_s: Annotated[float, kinds.DURATION] | None = key(None, "time limit of one attempt", name="time")


@dataclass(frozen=True)
class Part:
    """A part of a node for which a site has a name, and the directives that request it."""

    ask: tuple[Annotated[str, kinds.ASK], ...] = key((), "the directives that request it, as in '-l rt_G.small=1'")
    gpus: Annotated[int, kinds.NONE_OR_MORE] = key(0, "its GPUs")
    cpus: Annotated[int, kinds.PER_NODE] = key(1, "its cores")
    memory_bytes: Annotated[int, MEMORY] | None = key(None, "its memory, which is not asked for", name="memory")
    queue: Annotated[str, kinds.OPERAND] | None = key(None, "its queue; default: the site's")
