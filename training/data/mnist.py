"""Handwritten digits (LeCun et al. 1998): 60,000 images of 28 x 28 and 10,000 for tests, ten classes."""

from torusrun.training.data.packed.named import Named
from torusrun.training.data.packed.sources import MNIST

IMAGES = Named(MNIST)
build, facts = IMAGES.build, IMAGES.facts
