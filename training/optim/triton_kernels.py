"""The Triton kernels of triton_lars.py: a program takes BLOCK numbers of one piece.

`table` is int64 [5, pieces]: addresses of weights, gradients and velocities, sizes, whether scaled. ALIGNED means that
all addresses divide by 16 and all sizes by 4; then four numbers are loaded at a time.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _pointer(table, pieces, row: tl.constexpr, piece, ALIGNED: tl.constexpr):
    pointer = tl.load(table + row * pieces + piece).to(tl.pointer_type(tl.float32))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def _size(table, pieces, piece, ALIGNED: tl.constexpr):
    size = tl.load(table + 3 * pieces + piece)
    if ALIGNED:
        size = tl.multiple_of(size, 4)
    return size


@triton.jit(do_not_specialize=["pieces"])
def square_block(table, pieces, block_piece, block_begin, sums, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    piece = tl.load(block_piece + block)
    at = tl.multiple_of(tl.load(block_begin + block), BLOCK) + tl.arange(0, BLOCK)
    inside = at < _size(table, pieces, piece, ALIGNED)
    weight = tl.load(_pointer(table, pieces, 0, piece, ALIGNED) + at, mask=inside, other=0.0)
    gradient = tl.load(_pointer(table, pieces, 1, piece, ALIGNED) + at, mask=inside, other=0.0)
    tl.store(sums + 2 * block, tl.sum(weight * weight))
    tl.store(sums + 2 * block + 1, tl.sum(gradient * gradient))


@triton.jit
def _norms(first_sum, sums, piece, SUMMED: tl.constexpr):
    """The norms of weight and gradient: every block of a piece adds the sums of all its blocks, in the same order."""
    begin, end = tl.load(first_sum + piece), tl.load(first_sum + piece + 1)
    weight = tl.zeros((SUMMED,), tl.float64)
    gradient = tl.zeros((SUMMED,), tl.float64)
    for some in range(begin, end, SUMMED):
        at = some + tl.arange(0, SUMMED)
        weight += tl.load(sums + 2 * at, mask=at < end, other=0.0).to(tl.float64)
        gradient += tl.load(sums + 2 * at + 1, mask=at < end, other=0.0).to(tl.float64)
    return tl.sqrt(tl.sum(weight)).to(tl.float32), tl.sqrt(tl.sum(gradient)).to(tl.float32)


@triton.jit(do_not_specialize=["pieces"])
def move_block(
    table, pieces, block_piece, block_begin, first_sum, sums,
    added, taken, kept, decay, ratio_decay, trust, eps,
    RATIO_INSIDE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    piece = tl.load(block_piece + block)
    scaled = tl.load(table + 4 * pieces + piece) != 0
    weight_norm, gradient_norm = _norms(first_sum, sums, piece, SUMMED)
    has_norms = (weight_norm > 0) & (gradient_norm > 0) & scaled
    ratio = trust * weight_norm / tl.where(has_norms, gradient_norm + ratio_decay * weight_norm + eps, 1.0)
    ratio = tl.where(has_norms, ratio, 1.0)
    decay = tl.where(scaled, decay, 0.0)

    at = tl.multiple_of(tl.load(block_begin + block), BLOCK) + tl.arange(0, BLOCK)
    inside = at < _size(table, pieces, piece, ALIGNED)
    weights = _pointer(table, pieces, 0, piece, ALIGNED) + at
    velocities = _pointer(table, pieces, 2, piece, ALIGNED) + at
    weight = tl.load(weights, mask=inside, other=0.0)
    gradient = tl.load(_pointer(table, pieces, 1, piece, ALIGNED) + at, mask=inside, other=0.0)
    if RATIO_INSIDE:
        added = added * ratio
    else:
        taken = taken * ratio
    velocity = kept * tl.load(velocities, mask=inside, other=0.0) + added * (gradient + decay * weight)
    tl.store(velocities, velocity, mask=inside)
    tl.store(weights, weight - taken * velocity, mask=inside)
