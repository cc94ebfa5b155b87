"""2-D torus X x Y: 2(X-1) a1 + 2(X-1)/X n/B1 + a column all-reduce of n/X bytes.

Source: Mikami et al. 1811.05233 (scheme verified in secondary sources). The paper counts only the 2(X-1) steps of the
rows; the 2(Y-1) of the columns are derived. A column is a ring, 2(Y-1) a2 + 2(Y-1)/Y (n/X)/B_col, or a tree,
2 log2 Y a2 + 2 (n/X)/(0.92 B_col), derived from NCCL's tree.
"""

from __future__ import annotations

from typing import Literal

from orchestrator.predict.collectives import levels, ring, tree
from orchestrator.predict.network import Network

Column = Literal["ring", "tree", "best"]


def all_reduce_s(size_bytes: float, network: Network, x: int, y: int, column: Column = "best") -> float:
    """Reduce-scatter in the rows, all-reduce in the columns, all-gather in the rows."""
    (row_bytes, row), (column_bytes, down) = levels.stages(size_bytes, network, (x, y))
    columns = {"ring": ring.all_reduce_s, "tree": tree.along_s}
    rows_s = ring.all_reduce_s(row_bytes, row)
    chosen = list(columns.values()) if column == "best" else [columns[column]]
    return rows_s + min(cost(column_bytes, down) for cost in chosen)
