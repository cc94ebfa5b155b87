"""The sources of any program's progress: JSON lines, TensorBoard's event files, or a pattern in a log.

Every source remembers how far it has read, and skips bad content. To skip the rows of an earlier attempt, drop the rows
of the first call of `new_rows(final)`; with `final` nothing more is written, so an open last line is complete.
"""
