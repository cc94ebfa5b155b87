"""The keys of notices: at which events of a run they are sent, and by which ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torusrun.orchestrator.keys.kinds import ARGUMENT, text_kind
from torusrun.orchestrator.keys.secret import Secret
from torusrun.training.recipe.key import key

MAIL = text_kind(
    "a mail address",
    r"[A-Za-z0-9_][A-Za-z0-9._%+-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?",
    "write it as me@example.org, or a user of this machine",
)
Moment = Literal["start", "end", "failure", "over"]


@dataclass(frozen=True)
class Notify:
    """Notices of a run. A run's keys replace those of its site one by one."""

    command: tuple[Annotated[str, ARGUMENT], ...] = key(
        (), "a program, one word each; the facts are in its environment: TORUSRUN_RUN, TORUSRUN_STATE, ..."
    )
    webhook: Secret | None = key(
        None, "a URL that gets a POST with JSON: {from: FILE}, or {from_shell: true} for $TORUSRUN_WEBHOOK"
    )
    mail: Annotated[str, MAIL] | None = key(None, "an address for sendmail")
    at: tuple[Moment, ...] = key(
        (), "when: start, end (of each attempt), failure (of an attempt), over (no further attempt follows by itself); "
        "default: over",
    )  # fmt: skip

    def over(self, site: Notify) -> Notify:
        """These keys, and those of the site where they are missing."""
        return Notify(
            self.command or site.command, self.webhook or site.webhook, self.mail or site.mail,
            self.at or site.at or ("over",),
        )  # fmt: skip

    @property
    def moments(self) -> tuple[str, ...]:
        """The moments of notices; () if they have no way."""
        return self.at if self.ways else ()

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways by which notices go."""
        return tuple(name for name in ("command", "webhook", "mail") if getattr(self, name))
