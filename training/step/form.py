"""How the network of a run computes: compiled by torch.compile, or eager, one kernel at a time.

All attempts of a run have the same form, because the two round differently: it is in every checkpoint. The compiled
programs are in a folder of the node, whose small files a shared disk would serve slowly to thousands of ranks. Rank 0
keeps them as one file in the run folder. So a later attempt on other nodes does not compile again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import nn

from torusrun.training.config import Config, Ranks
from torusrun.training.files.trusted import make_own_folder, open_own, own_folder, unfinished
from torusrun.training.meeting.agree import on_all_ranks
from torusrun.training.recipe.facts import compiles, program
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import Train
from torusrun.training.reporting import start
from torusrun.training.reporting.output import warn

COMPILERS = ("g++", "clang++")  # torch's own choice
C_COMPILERS = ("gcc", "clang", "cc")  # Triton's
OLDEST = (7, 0)  # compute capability; Triton's
LONGEST = 300  # characters of a reason
KEPT = "compiled.tar"  # in the run folder
FOLDER = "TORCHINDUCTOR_CACHE_DIR"  # a user's own value stays; Triton's cache is within it


def lacking(device: torch.device) -> str:
    """What torch.compile needs on this device and lacks; '' if it lacks nothing."""
    gpu = device.type == "cuda"
    variable, names = ("CC", C_COMPILERS) if gpu else ("CXX", COMPILERS)
    where, what = ("a GPU", "C") if gpu else ("a CPU", "C++")
    if gpu and importlib.util.find_spec("triton") is None:
        return f"torch.compile needs Triton on {where}, which this Python lacks"
    if not any(map(shutil.which, [os.environ.get(variable) or names[0], *names])):
        listed = " or ".join(names[:2])
        return f"torch.compile needs a {what} compiler on {where}, and there is no {listed} on the ranks' PATH"
    if gpu and not Path(sysconfig.get_path("include"), "Python.h").exists():
        return f"torch.compile needs the headers of Python on {where} (python3-dev), which are not here"
    if gpu and torch.version.cuda and torch.cuda.get_device_capability(device) < OLDEST:
        return f"torch.compile needs a GPU of {'.'.join(map(str, OLDEST))} or newer"
    return ""


def check(train: Train, device: torch.device) -> None:
    """Raises ConfigError if the recipe asks for torch.compile and it cannot work."""
    if train.compile and (why := lacking(device)):
        raise ConfigError(f"train.compile: {why}; load a module that has it, or write false")


class Form:
    """The form of `model` on this rank: `compiled`, or eager. All ranks build it at the same time."""

    def __init__(self, config: Config, ranks: Ranks, device: torch.device, model: nn.Module) -> None:
        self._train, self._first, self._model = config.train, ranks.rank == 0, model
        self._kept = config.metrics.with_name(KEPT)
        self._folder: Path | None = None
        self._seen: set[object] = set()
        self._compiled_call: Callable[..., Any] | None = None
        self.compiled = compiles(config.train, device.type == "cuda")
        if self.compiled and config.train.compile is None:
            why = lacking(device)
            self.compiled = on_all_ranks(not why, device)
            if not self.compiled:
                self._say(f"the network is not compiled, and slower: {why or 'a rank has no compiler (see its log)'}")

    def follow(self, compiled: bool | None) -> None:
        """Take the form of the attempts before, from a checkpoint, unless the recipe or this node demands another."""
        if compiled is None or compiled == self.compiled:
            return
        before, now = ("compiled", "eager") if compiled else ("eager", "compiled")
        if self._train.compile is None and not compiled:
            self.compiled = False
            self._say("the network is not compiled, since the attempts before did not: the results stay the same bits")
        else:
            self._say(f"the attempts before computed {before}, this one {now}: its results differ in rounding")

    @contextmanager
    def step(self, shape: object) -> Iterator[None]:
        """A context for a step of this shape; within the first steps the network is compiled."""
        with self._begun() if self.compiled and shape not in self._seen else nullcontext():
            yield
        if self._folder and self._first and shape not in self._seen:
            with suppress(OSError):  # a full disk: a later attempt compiles again
                pack(self._folder, self._kept)
        self._seen.add(shape)

    def _begun(self) -> AbstractContextManager[None]:
        """Compile the network in place, once; its names stay. A context for the compilation in a step."""
        if not self._seen:
            self._begin()
        return start.without_garbage()

    def _begin(self) -> None:
        self._folder = self._cache()
        seeded = self._folder is not None and any(self._folder.iterdir())
        takes = "some seconds: it was compiled before" if seeded else "about a minute, which later attempts save"
        self._say(f"torch.compile takes {takes}; train.compile: false does without, and steps are slower")
        compile_(self._model, self._train.precision)
        if self._train.compile is None:
            self._compiled_call, self._model._compiled_call_impl = self._model._compiled_call_impl, self._call

    def uncompiled(self) -> AbstractContextManager[object]:
        """A context without the compiled network: each size of test images would need another compilation."""
        return torch.compiler.set_stance("force_eager") if self.compiled else nullcontext()

    def _call(self, *inputs: Any) -> Any:
        """The compiled forward pass; if it cannot be compiled, eager from then on: nobody asked to compile."""
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self._compiled_call(*inputs)  # type: ignore[misc]
        except TorchDynamoException as error:
            why = " ".join(str(getattr(error, "inner_exception", error)).split())
            warn(f"training: the network cannot be compiled, and is slower: {why[:LONGEST]}")
            self.compiled, self._folder, self._model._compiled_call_impl = False, None, None
            return self._model(*inputs)

    def _cache(self) -> Path | None:
        """The node's folder of compiled programs, with those of earlier attempts; None if the user names a folder."""
        if os.environ.get(FOLDER):
            return None
        own = own_folder(tempfile.gettempdir())
        if why := make_own_folder(own):
            self._say(f"{own}: {why}; what is compiled goes elsewhere")
            own = Path(tempfile.mkdtemp(prefix="torusrun-"))
        key = hashlib.sha256(f"{torch.__version__} {program(self._train)}".encode()).hexdigest()[:16]
        folder = own / f"compiled-{key}"
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            unpack(self._kept, folder)
        except FileNotFoundError:
            pass
        except (OSError, tarfile.TarError) as error:
            self._say(f"{self._kept} is not used: {error}")
        os.environ[FOLDER] = str(folder)
        return folder

    def _say(self, words: str) -> None:
        if self._first:
            warn(f"training: {words}")


def compile_(model: nn.Module, precision: str) -> None:
    """Compile the network in place, in its first steps."""
    if hasattr(torch.compiler.config, "cache_key_tag"):  # torch 2.11 confuses networks compiled for bf16 and fp16
        torch.compiler.config.cache_key_tag = precision
    model.compile(dynamic=False)  # so a resumed training compiles the same programs, in whatever phase it begins


def pack(folder: Path, file: Path) -> None:
    """Write the files below `folder` into the archive `file`, which appears whole. Raises OSError."""
    with unfinished(file, file.with_name(f".tmp-{file.name}")) as out, tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and ".tmp" not in path.name:
                with suppress(FileNotFoundError):  # another rank's unfinished file
                    archive.add(path, str(path.relative_to(folder)), recursive=False)


def unpack(file: Path, folder: Path) -> None:
    """Add the files of the archive to `folder`, but no existing file: other ranks may have it open.

    Raises OSError, also for an archive that is not this user's, and TarError.
    """
    with open(open_own(file), "rb") as source, tarfile.open(fileobj=source, mode="r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if not member.isreg() or name.is_absolute() or ".." in name.parts:
                raise tarfile.TarError(f"it has {member.name!r}")
            target, content = folder / name, archive.extractfile(member)
            if target.exists() or content is None:
                continue
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with unfinished(target, target.with_name(f".tmp-{os.getpid()}"), 0o700) as out:
                shutil.copyfileobj(content, out)
