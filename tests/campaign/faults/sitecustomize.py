"""Raises in the main thread of the rank with the number in the file CAMPAIGN_STRIKE, as soon as the file exists.

Every Python of the job imports this module by its name, from the spec's PYTHONPATH.
"""

import contextlib
import ctypes
import os
import threading
import time


class CampaignError(Exception):
    """Not a RuntimeError, because torch raises that for a lost connection."""

    def __str__(self) -> str:
        return "asked for by the campaign"


def _wait(path: str, rank: str, main: int) -> None:
    while True:
        time.sleep(0.05)
        with contextlib.suppress(OSError), open(path) as file:
            if file.read() == rank:
                os.unlink(path)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(CampaignError))
                return


# Only a wrapper gives its training all of these, so the wrappers themselves are not affected.
if {"CAMPAIGN_STRIKE", "RANK", "WORLD_SIZE"} <= os.environ.keys():
    told = (os.environ["CAMPAIGN_STRIKE"], os.environ["RANK"], threading.main_thread().ident)
    threading.Thread(target=_wait, args=told, daemon=True).start()
