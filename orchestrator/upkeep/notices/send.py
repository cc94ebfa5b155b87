"""Sends one notice by each way, at the same time. A way that hangs is given up; it delays no other."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from typing import IO, Any

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import jobs_environment, which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.shared import Notify
from torusrun.orchestrator.upkeep.notices.notice import Notice

PROGRAM_S = 8.0
WEBHOOK_S = 8.0  # for its connection, and for its answer
TRIES = 2  # of a webhook
NO_ANSWER = "it did not answer in time"
MAYBE = "it did not answer in time, and may have the notice"  # a POST that is never repeated
SENDMAIL = "/usr/sbin/sendmail"


def send(settings: Notify, ways: Collection[str], url: str, said: Notice, longest_s: float) -> dict[str, str]:
    """Send the notice; the ways with why each failed, '' if it did not. A way without an answer in time has failed."""
    program_s = min(PROGRAM_S, 0.8 * longest_s)  # it is ended before its way is given up
    posted = threading.Event()
    work = {
        "command": lambda: _program([*settings.command], said, None, program_s),
        "webhook": lambda: _webhook(url, said, posted),
        "mail": lambda: _mail(str(settings.mail), said, program_s),
    }
    why: dict[str, str] = {}
    # Not those of a pool, for which a process waits at its end: the resolver and a slow webhook know no limit.
    threads = [threading.Thread(target=lambda way: why.update({way: work[way]()}), args=[w], daemon=True) for w in ways]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + longest_s
    for thread in threads:
        thread.join(max(until_s - time.monotonic(), 0.0))
    return {way: why.get(way, MAYBE if way == "webhook" and posted.is_set() else NO_ANSWER) for way in ways}


def _mail(address: str, said: Notice, longest_s: float) -> str:
    rows = "".join(f"{key}: {value}\n" for key, value in said.as_json().items())
    text = f"To: {address}\nSubject: {said.subject}\nContent-Type: text/plain; charset=utf-8\n\n{rows}"
    return _program([which("sendmail") or SENDMAIL, "-i", address], said, text, longest_s)


def _program(words: list[str], said: Notice, text: str | None, longest_s: float) -> str:
    environment = {**jobs_environment(), **said.as_variables()}
    try:
        done = process.run(words, timeout_s=longest_s, environment=environment, text=text)
    except SiteError as error:
        return str(error).partition(process.WAS_RUNNING)[0]
    return f"{words[0]} ended with exit code {done.exit_code}" if done.exit_code else ""


def _webhook(url: str, said: Notice, posted: threading.Event) -> str:
    """POST the notice, a second time unless the webhook has or may have it. The reason does not contain the URL."""
    why = ""
    for _ in range(TRIES):
        if (why := _post(url, said, posted)) in ("", MAYBE):
            break
    return why


def _post(url: str, said: Notice, posted: threading.Event) -> str:
    """POST the notice once. `posted` is set while the webhook may have it and has not answered."""
    content = json.dumps(said.as_json()).encode()

    def body() -> Iterator[bytes]:
        posted.set()
        yield content

    headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), "User-Agent": "torusrun"}
    try:
        asked = urllib.request.Request(url, body(), headers)
        with urllib.request.build_opener(_Nowhere).open(asked, timeout=WEBHOOK_S):
            return ""
    except urllib.error.HTTPError as error:
        posted.clear()
        return f"the webhook answered {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        if posted.is_set():
            return MAYBE
        reason = getattr(error, "reason", error)
        return f"the webhook was not reached: {getattr(reason, 'strerror', None) or type(reason).__name__}"


class _Nowhere(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the answer is an error."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        return None
