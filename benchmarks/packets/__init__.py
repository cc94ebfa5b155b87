"""A simulation of gloo's all-reduces, packet by packet: no rank waits for others at the end of a phase.

`wire` carries packets, `stream` is one direction of a TCP connection, `gloo` matches messages, `schedule` has the steps
of an all-reduce, `simulate` puts ranks on hosts, `cost` makes a function of bytes of it, and
`recorded` holds it against recorded steps. docs/concepts/prediction.md says why no forecast uses it.
"""
