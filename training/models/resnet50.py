"""ResNet-50; imports torch only when it is built."""

from torusrun.training.models.residual import Architecture

RESNET50 = Architecture("resnet50", (3, 4, 6, 3), bottleneck=True)
build, facts = RESNET50.build, RESNET50.facts
