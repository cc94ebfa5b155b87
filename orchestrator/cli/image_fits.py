"""The answer of `plan --check`: whether a run, its image or its software, and its site fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.terminal.plain import plain

if TYPE_CHECKING:
    from torusrun.orchestrator.images.checks.findings import Finding
    from torusrun.orchestrator.run.plan.plan import Plan
    from torusrun.orchestrator.sites.checks.check import Check

SCHEMA = 2


@dataclass(frozen=True)
class ImageFit:
    """The findings about an image, or the checks of the software that a run without an image activates."""

    about: str  # the image, or why nothing was compared
    image: str | None = None
    findings: tuple[Finding, ...] = ()
    software: tuple[Check, ...] = ()

    @property
    def refused(self) -> bool:
        """True if a run with this result must not be submitted."""
        return any(finding.severity == "error" for finding in self.findings) or any(
            check.outcome == "failed" for check in self.software
        )

    def lines(self) -> Iterator[str]:
        for check in self.software:
            yield f"{check.outcome:8} {check.name:18} {plain(check.said)}"
            if check.mend:
                yield f"{'':27} mend: {check.mend}"
        for finding in self.findings:
            yield str(finding)
            if finding.evidence:
                yield f"    {finding.evidence}"
        if not self.software:
            yield f"{self.about}{self._counts()}"

    def _counts(self) -> str:
        """The number of findings for each outcome."""
        if not self.findings:
            return ""
        count = Counter("warned" if f.severity == "warning" else f.outcome for f in self.findings)
        words = {"does not fit": "do not fit", "warned": "warn", "fits": "fit", "could not be looked at": ""}
        return ": " + ", ".join(f"{count[outcome]} {word or outcome}" for outcome, word in words.items())

    def as_json(self) -> dict[str, Any]:
        findings = [finding.as_json() for finding in self.findings]
        environment = [check.as_json() for check in self.software]
        return {"schema": SCHEMA, "image": self.image, "findings": findings, "environment": environment}


def of(plan: Plan) -> list[ImageFit]:
    """Compare a plan with its images, or with its software, here. Raises UserError, SiteError if it cannot."""
    from torusrun.orchestrator.run.plan.role_plans import of_images

    if plans := of_images(plan):
        return [_of_image(of_image) for of_image in plans.values()]
    if plan.run.software.given or plan.site.software.given:
        from torusrun.orchestrator.sites.checks import images

        return [ImageFit("the software", software=tuple(images.software_checks(plan.site, plan.run.software)))]
    return [ImageFit("the run has no image, so there is nothing to check")]


def _of_image(plan: Plan) -> ImageFit:
    from torusrun.orchestrator.run.image import checking, run_image

    try:
        image = run_image.of_plan(plan)
    except run_image.Unusable as error:
        return ImageFit(error.image, error.image, (error.finding,))
    assert image
    return ImageFit(image.path, image.path, tuple(checking.findings(plan, image)))
