"""Small photographs (Krizhevsky 2009): 50,000 images of 32 x 32 and 10,000 for tests, ten classes."""

from torusrun.training.data.packed.named import Named
from torusrun.training.data.packed.sources import CIFAR10

IMAGES = Named(CIFAR10)
build, facts = IMAGES.build, IMAGES.facts
