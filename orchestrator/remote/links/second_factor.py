"""A second factor that a login node requires after a key. The user answers at the terminal; secrets are not shown."""

from __future__ import annotations

import getpass
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import paramiko

from torusrun.orchestrator.base.private import plain
from torusrun.orchestrator.remote.links.host import LOGIN_S, HostRefused

SHARE = (
    "let OpenSSH keep a connection that torusrun shares: `connect: openssh` in the site; ControlMaster, ControlPath "
    "and ControlPersist in ~/.ssh/config (docs/guides/remote.md); then `ssh` to it once"
)


class AskingTransport(paramiko.Transport):  # type: ignore[misc]
    """The transport to `address`. It asks the user the questions of the login node."""

    def __init__(self, address: str, *sock: Any, **options: Any) -> None:
        super().__init__(*sock, **options)
        self._address = address

    def auth_interactive_dumb(self, username: str, handler: Any = None, submethods: str = "") -> Any:
        """Pass on questions and answers. paramiko calls this after a key, and would itself show the typed text.

        Raises HostRefused if there is no user to ask, or no answer.
        """
        self.auth_timeout = LOGIN_S
        questions: SimpleQueue[Any] = SimpleQueue()
        answers: SimpleQueue[Any] = SimpleQueue()

        def hand_on(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
            questions.put((title, instructions, prompts))
            if (given := answers.get()) is None:
                raise EOFError  # ends the connection without a message
            return list(given)

        # paramiko asks in its own thread. This thread reads, so that Ctrl-C ends it and the terminal is restored.
        with ThreadPoolExecutor(1) as pool:
            login = pool.submit(self.auth_interactive, username, hand_on, submethods)
            login.add_done_callback(lambda _: questions.put(None))
            try:
                while question := questions.get():
                    answers.put(self._answers(*question))
            finally:
                answers.put(None)
            return login.result()

    def _answers(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        if prompts and not _may_ask():
            raise HostRefused(f"{self._address} asks for a second factor, and no terminal is free to ask you: {SHARE}")
        for text in (title, instructions):
            if text.strip():
                print(self._shown(text), file=sys.stderr, flush=True)
        try:
            return [_typed(f"{self._shown(prompt)} ", shown=shown) for prompt, shown in prompts]
        except EOFError:
            raise HostRefused(f"{self._address} asks for a second factor, and got none") from None

    def _shown(self, text: str) -> str:
        """Text of the login node with its name before each line, so that it cannot be taken for torusrun's."""
        return "\n".join(f"({self._address}) {plain(line).strip()}" for line in text.splitlines() if line.strip())


def _may_ask() -> bool:
    """Whether there is a terminal, and no other thread (for another host, or a full screen) can use it now."""
    return bool(sys.stdin and sys.stdin.isatty() and threading.current_thread() is threading.main_thread())


def _typed(prompt: str, *, shown: bool) -> str:
    if not shown:
        return getpass.getpass(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)
    return input()
