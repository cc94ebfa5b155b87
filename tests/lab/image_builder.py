"""The lab's user with Apptainer, who builds images and trains in them."""

from dataclasses import dataclass
from pathlib import Path

from tests.e2e.lab_places import Slurm
from tests.e2e.places import ROOT, Said
from tests.lab.apptainer import ApptainerLab

SHIPPED = "pytorch-cpu.yaml"
TINY = "name: tiny\nbase: {{folder: {base}}}\nlabels: {{made.for: {name}}}\n"


@dataclass
class Builder:
    """The lab's user with Apptainer, and a site with its own folder for images."""

    place: Slurm
    apptainer: ApptainerLab

    @property
    def home(self) -> Path:
        return self.place.folder

    @property
    def images(self) -> Path:
        return self.home / "images"

    def shipped(self) -> str:
        """The shipped image file for CPUs, on the lab's own Debian in place of a registry's."""
        text = (ROOT / "containers" / "pytorch-cpu.yaml").read_text()
        base = "base:\n  docker: debian:bookworm-slim # from memory\n"
        assert base in text
        (self.home / SHIPPED).write_text(text.replace(base, f"base: {{folder: {self.apptainer.debian}}}\n"))
        return SHIPPED

    def site(self, name: str, container: str = "", **changes: str) -> str:
        lines = [
            line for line in self.place.lab.site_file.read_text().splitlines() if line.split(":")[0] not in changes
        ]
        lines += [f"{key}: {value}" for key, value in changes.items() if value]
        # No training can use the lab's GPUs; the images are for CPUs.
        lines = [line for line in lines if line.split(":")[0] != "  gpus"]
        text = "\n".join(lines) + f"\ncontainer: {{cache: {self.images}{container}}}\n"
        (self.home / name).write_text(text)
        return f"./{name}"

    def tiny(self, name: str, more: str = "") -> str:
        (self.home / f"{name}.yaml").write_text(TINY.format(base=self.apptainer.tiny, name=name) + more)
        return f"{name}.yaml"

    def build(self, *words: str, site: str = "") -> Said:
        return self.place.torusrun("image", "build", *words, "--site", site or self.site("images.yaml"), timeout_s=900)

    def digits(self, *words: str) -> Path:
        """Train the example for two epochs over two nodes; returns the run's folder."""
        example = (ROOT / "examples" / "digits.yaml").read_text()
        (self.home / "digits.yaml").write_text(example)
        settings = [word for pair in ("nodes=2", "grid=2x2", "train.epochs=2") for word in ("--set", pair)]
        said = self.place.torusrun("submit", "digits.yaml", *settings, *words, "--wait")
        assert said.returncode == 0, (
            said.stdout + said.stderr + self.place.torusrun("logs", "last", "--all").stdout[-3000:]
        )
        return Path(self.place.view(said.stdout.split()[0])["folder"])
