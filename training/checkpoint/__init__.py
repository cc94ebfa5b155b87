"""Checkpoints on disk: `manifest` says which are complete (no torch), `store` writes and reads them."""
