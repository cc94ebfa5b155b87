"""The version of torusrun."""

__version__ = "0.1.0"
