"""A training that reads this node's own copies of its shards."""

from pathlib import Path

from tests.e2e.places import TWO_RANKS, Local, assert_same_bits
from tests.images_tree import write_tree
from torusrun.training.data.pack import pack

SPEC = """name: shards
site: {site}
time: 5m
{stage}train:
  data: {{name: tar-shards, options: {{root: {root}}}, size: 24}}
  model: resnet-small
  epochs: 2
  batch: 8
"""


def test_a_training_on_staged_shards_has_the_bits_of_one_on_the_shards_themselves(local: Local) -> None:
    tree, shards, disk = write_tree(local.folder / "tree"), local.folder / "shards", local.folder.parent / "disk"
    (tree / "train/flower/003.jpg").write_bytes(b"no picture")  # so that its place is named
    pack(tree, shards, shard_bytes=40_000)

    def trained(site: str, stage: str) -> tuple[Path, str]:
        local.put("shards.yaml", SPEC.format(site=site, stage=stage, root=shards))
        run = local.succeeds("submit", "shards.yaml", "--wait", *TWO_RANKS).stdout.split()[0]
        logs = local.succeeds("logs", run, "--all").stdout
        return Path(local.view(run)["folder"]), logs

    plain, by_source = trained("site.yaml", "")
    staged, by_copy = trained(local.site("staged.yaml", stage=str(disk)), f"stage: [{shards}]\n")
    assert f"{shards}/train-" in by_source and str(disk) not in by_source
    assert f"{disk}/torusrun-" in by_copy and f"{shards}/" not in by_copy
    assert_same_bits(staged, plain)
