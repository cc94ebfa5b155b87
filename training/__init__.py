"""The training that runs in the container, one process per GPU: `python -m torusrun.training CONFIG`.

Importing the package does not import torch.
"""
