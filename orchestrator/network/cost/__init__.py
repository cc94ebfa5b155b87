"""The time of an all-reduce, one model for placement, prediction, plans and jobs.

`phases` says what the phases of an all-reduce ask of the links; `regular` computes that for a regular network and
`network.placement.timing` for given hosts. `nccl` and `gloo` make seconds of it, `all_reduce` adds the phases up.
"""
