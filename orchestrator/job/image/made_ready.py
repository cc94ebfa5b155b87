"""Makes the ranks' images ready, while the supervisor checks for requests to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.image import recorded as image_kept
from torusrun.orchestrator.run.image.recorded import Image

POLL_S = 0.25


def made_ready(images: Mapping[str, Image], asked: Callable[[], End | None]) -> End | None:
    """Verify the ranks' images; the attempt's end if that fails or it has to stop.

    This can take minutes. So a thread verifies, while the caller's thread checks for requests to stop.
    """
    wrong: list[Exception] = []

    def work() -> None:
        try:
            verify(images)
        except Exception as error:
            wrong.append(error)

    thread = threading.Thread(target=work, daemon=True)
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


def verify(images: Mapping[str, Image]) -> None:
    """Verify images that all ranks start from the shared disk."""
    for image in images.values():
        image_kept.verify(image)
