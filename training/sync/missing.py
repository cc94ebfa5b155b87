"""Parameters without a gradient in a step."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 5


class MissingGradient(RuntimeError):
    """Backward did not reach some parameters."""

    def __init__(self, names: Sequence[str], rank: int) -> None:
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        super().__init__(
            f"rank {rank}: no gradient came for {shown}: the loss does not depend on "
            f"{'it' if len(names) == 1 else 'them'} in this step; set requires_grad to False in the model for what "
            "never learns, or train.sync.missing to zero"
        )
