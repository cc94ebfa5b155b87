"""Accuracy at large batches, on real images: SGD, LARS, and each recipe, whole and without one technique.

`torusrun data get mnist`, then `python -m benchmarks.large_batch RESULTS.jsonl`. It takes hours; the same command
continues RESULTS, whatever ended it. `python docs/make_large_batches.py` makes the page and its pictures from RESULTS.

A cell is a side, a batch, and the technique that is left out of it. Each cell gets its own best rate: seed 1 climbs
over multiples of the side's own rule, and other seeds then train with the best of them. The mean is over these other
seeds alone, so that the choice of the rate does not flatter it.

One process computes the whole batch. So batch norm sees all of it, and what several ranks do (batch norm over ranks,
gradients in 16 bits) is left as it is. `--study cifar10 --device cuda` is the study for a card, without the recipes.
"""
