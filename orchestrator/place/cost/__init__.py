"""The time of an all-reduce: one model for placement, prediction, plans and jobs.

`phases` describes the load of each phase on the links; `regular` computes it for a regular network, and
`place.placement.timing` for given hosts. `nccl` and `all_reduce` compute seconds from it.
"""
