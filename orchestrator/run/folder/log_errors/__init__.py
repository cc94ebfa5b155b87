"""The errors in what a process wrote: tracebacks and error lines, behind prefixes and before closing lines."""
