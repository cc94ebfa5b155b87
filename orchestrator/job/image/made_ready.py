"""Makes the ranks' images ready, while the supervisor checks for requests to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.job.image import stage
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.image import recorded as image_kept
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import Plan

POLL_S = 0.25


def made_ready(
    plan: Plan,
    attempt: Attempt,
    images: Mapping[str, Image],
    *,
    sent: Callable[[Image], bool],
    asked: Callable[[], End | None],
) -> End | None:
    """Verify the ranks' images, or send them to the nodes; the attempt's end if that fails or it has to stop.

    `sent` returns whether this job has sent an image before. Both can take minutes. So they run in a thread, while
    this one checks for requests to stop.
    """
    wrong: list[Exception] = []
    work = partial(verify, plan, attempt, images, sent)
    thread = threading.Thread(target=_caught, args=(work, wrong), daemon=True)
    thread.start()
    while thread.is_alive():
        if stop := asked():
            return stop
        thread.join(POLL_S)
    if wrong and isinstance(wrong[0], TorusrunError):
        return ended(How.IMAGE_ERROR, why=wrong[0])
    if wrong:
        raise wrong[0]
    return None


def _caught(work: Callable[[], None], wrong: list[Exception]) -> None:
    try:
        work()
    except Exception as error:
        wrong.append(error)


def verify(plan: Plan, attempt: Attempt, images: Mapping[str, Image], sent: Callable[[Image], bool]) -> None:
    """Verify the images if all ranks start the same files. If they are staged, each node verifies its own copies."""
    site, scheduler = plan.site.container, schedulers.get(plan.site.scheduler)
    for image in images.values():
        if not site.stage:
            image_kept.verify(image)
        elif not sent(image):
            stage.broadcast(scheduler, image, site.stage, plan.python, attempt.folder)
