"""Whether NCCL finds the nodes' InfiniBand adapters inside the image: with libibverbs and the adapters' driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torusrun.orchestrator.images.checks.findings import Finding, Severity, fits, unknown
from torusrun.orchestrator.images.checks.needs import Wanted
from torusrun.orchestrator.images.checks.sourced_facts import HostFacts, ImageFacts

NAMED_BY_DRIVER = re.compile("mlx[45]|bnxt_re|irdma|hns|efa")  # mlx5 drives mlx5_0; other names may be anything


def verbs(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """An error if NCCL would cross nodes; a warning if no need for the adapters is known."""
    if not wanted.hcas:
        return
    severity: Severity = "error" if wanted.uses_gpus and wanted.nodes > 1 else "warning"
    evidence = f"'node.hcas' of the site: {', '.join(wanted.hcas)}; {image.evidence('verbs')}"
    if wanted.training and not wanted.uses_gpus:
        yield fits("verbs-missing", "the training uses no GPU, and so no InfiniBand", "'node.gpus' and 'train.device'")
    elif image.verbs is None:
        yield unknown("verbs-missing", "whether libibverbs loads in the image", evidence)
    elif not image.verbs:
        why = f" ({image.verbs_error})" if image.verbs_error else ""
        what = f"the nodes have {', '.join(wanted.hcas)}, and libibverbs does not load in the image{why}"
        yield Finding("verbs-missing", what, severity, evidence)
    else:
        yield from _providers(wanted, image, evidence, severity)


def _providers(wanted: Wanted, image: ImageFacts, evidence: str, severity: Severity) -> Iterator[Finding]:
    needed = {match[0] for name in wanted.hcas if (match := NAMED_BY_DRIVER.match(name))}
    has = set(image.providers or ())
    evidence = f"{evidence}; drivers of libibverbs in the image: {' '.join(sorted(has)) or 'none'}"
    lacks = sorted(needed - has) or (["any adapter"] if not has else [])
    if lacks:
        what = f"libibverbs of the image has no driver for {', '.join(lacks)}"
        yield Finding("verbs-missing", what, severity, evidence)
    else:
        yield fits("verbs-missing", "libibverbs loads in the image, with the adapters' driver", evidence)
