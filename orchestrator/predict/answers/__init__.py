"""The answers of `torusrun predict`."""
