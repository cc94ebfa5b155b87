"""ResNet-18; imports torch only when it is built."""

from torusrun.training.models.residual import Architecture

RESNET18 = Architecture("resnet18", (2, 2, 2, 2), bottleneck=False)
build, facts = RESNET18.build, RESNET18.facts
