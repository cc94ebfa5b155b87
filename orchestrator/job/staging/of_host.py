"""Makes the copies of one host, together with the other hosts of the attempt."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import ImageError, SiteError
from torusrun.orchestrator.job.staging.chain import LIST, SUM, WANTED, Above, Chain
from torusrun.orchestrator.job.staging.environments import is_environment, settle
from torusrun.orchestrator.job.staging.node_folder import NodeFolder
from torusrun.orchestrator.job.staging.order import StageEntry, StageOrder
from torusrun.orchestrator.job.staging.stream import TOP, identified, packed, unpacked

ID = re.compile(r"[0-9a-f]{16}")


class OfHost:
    """The staging of one host for an attempt. Its copies cannot be removed until `held` is closed."""

    def __init__(self, order: StageOrder, folder: Path, attempt: str, chain: Chain, held: ExitStack) -> None:
        self._order, self._folder, self._attempt, self._chain = order, folder, attempt, chain
        self._held = held
        self._sums: dict[str, str] = {}

    def run(self) -> dict[str, Any]:
        """Make all copies, and wait until all hosts have theirs; what this host and those below did. Raises SiteError.

        Then it says where its copies are, for which the other ranks of this host wait.
        """
        try:
            self._node = NodeFolder(self._folder, self._held)
            return self._run()
        except OSError as error:
            where = f"{error.filename or self._folder} on {self._chain.host}"
            raise SiteError(f"{where}: {self._chain.name or 'this'} cannot be staged: {error.strerror}") from None

    def _run(self) -> dict[str, Any]:
        began_s, chain, entries = time.monotonic(), self._chain, self._order.entries
        facts = self._facts()
        copies = [self._had(entry, name) for entry, (name, _) in zip(entries, facts, strict=True)]
        lacking = [number for number, copy in enumerate(copies) if not copy]
        chain.to_write = sum(facts[number][1] for number in lacking)
        if chain.above:
            chain.above.tell(WANTED, lacking)
        below = set(chain.below.answer(WANTED, chain.check)) if chain.below else set()
        for number, (entry, (name, size)) in enumerate(zip(entries, facts, strict=True)):
            chain.name, copy = entry.name or "the image", copies[number]
            if not copy:
                copies[number] = self._made(entry, name, size, below=number in below)
            elif number in below:
                kept = entry.path if is_environment(copy) else copy  # its scripts are changed
                for _ in self._passed(packed(os.path.realpath(kept)), None, below=True):
                    pass
        pairs = [(entry, copy) for entry, copy in zip(entries, copies, strict=True) if copy]
        self._node.linked(self._order.run, pairs)
        mine = {"seconds": round(time.monotonic() - began_s, 3), "bytes": chain.written, "sha256": self._sums}
        done = chain.all_done(mine)
        self._node.ready(self._order.run, self._attempt)
        return done

    def _facts(self) -> list[tuple[str, int]]:
        """(ID, size) of every entry: the first host reads them on the shared disk, the others receive them."""
        chain = self._chain
        if chain.above:
            facts = [(str(name), int(size)) for name, size in chain.above.hear(LIST)]
            if not all(ID.fullmatch(name) for name, _ in facts) or len(facts) != len(self._order.entries):
                raise SiteError(f"{chain.host} got a list of other copies than it has to make")
        else:
            facts = [_identified(entry) for entry in self._order.entries]
        if chain.below:
            chain.below.tell(LIST, facts)
        return facts

    def _had(self, entry: StageEntry, name: str) -> Path | None:
        """The whole copy of an entry; None if there is none.

        Another run may make it now. To wait for that run while other hosts wait for this host could last for ever.
        """
        if self._chain.alone:
            self._node.awaited(name)
        return self._node.copy(name, entry.sha256, self._attempt)

    def _made(self, entry: StageEntry, name: str, size_bytes: int, *, below: bool) -> Path:
        """A new copy of an entry, which also goes to the host `below` if that wants it."""
        content, above = hashlib.sha256(), self._chain.above
        with self._node.partial(name, size_bytes) as partial:
            blocks = above.blocks() if above else packed(os.path.realpath(entry.path))
            passed = self._counted(self._passed(blocks, above, below=below), size_bytes)
            unpacked(passed, partial, content.update if entry.sha256 else len)
            if entry.sha256 not in ("", sha256 := content.hexdigest()):
                raise ImageError(
                    f"{entry.path}: copied to {self._chain.host}, its SHA-256 is {sha256}, and was {entry.sha256} when "
                    f"the run was submitted: the image was changed, or a disk fails; put the old one back, or "
                    f"`torusrun resume RUN --new-image`"
                )
            if not entry.sha256 and is_environment(partial / TOP):
                settle(partial / TOP, (entry.path, os.path.realpath(entry.path)), self._node.path / name)
            return self._node.keep(partial, name, entry.sha256, self._attempt)

    def _counted(self, blocks: Iterator[bytes], size_bytes: int) -> Iterator[bytes]:
        """The blocks, with reports of what is written; in the end those are the bytes that were announced."""
        before = self._chain.written
        for block in blocks:
            yield block
            self._chain.written = min(self._chain.written + len(block), before + size_bytes)
            self._chain.report()
        self._chain.written = before + size_bytes

    def _passed(self, blocks: Iterator[bytes], above: Above | None, *, below: bool) -> Iterator[bytes]:
        """The blocks of a copy, each of which goes to the host `below` as it comes, and after them their checksum."""
        chain, total = self._chain, hashlib.sha256()
        for block in blocks:
            chain.check()
            if chain.below and below:
                chain.below.send(block)
            total.update(block)
            yield block
        if above and above.sum != total.hexdigest():
            raise SiteError(f"what {above.host} sent has another checksum on {chain.host}: is its memory sound?")
        if chain.below and below:
            chain.below.tell(SUM, total.hexdigest())
        self._sums[chain.name] = total.hexdigest()


def _identified(entry: StageEntry) -> tuple[str, int]:
    """(ID, size) of an entry on the shared disk."""
    try:
        name, size_bytes = identified(entry.path)
    except OSError as error:
        raise SiteError(f"{error.filename or entry.path}: cannot be staged: {error.strerror}") from None
    return (entry.sha256[:16] or name), size_bytes
