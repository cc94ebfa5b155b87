"""The published records, each predicted without its own number: `python -m benchmarks.published`."""
