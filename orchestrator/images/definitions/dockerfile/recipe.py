"""Turns the instructions of one stage into the sections of a definition, in the order in which Docker runs them.

A runtime copies the files of %files before it runs %post, so each COPY has a place of its own, from which %post takes
the files when its turn comes. Each RUN is a shell of its own, as for Docker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.templates import Text
from torusrun.orchestrator.images.definitions.definition import line, shell
from torusrun.orchestrator.images.definitions.dockerfile import instructions, stages
from torusrun.orchestrator.images.definitions.dockerfile.context import Context
from torusrun.orchestrator.images.definitions.dockerfile.instructions import Expansion, Instruction, expand, split
from torusrun.orchestrator.images.definitions.dockerfile.stages import BuildStage, Dockerfile
from torusrun.orchestrator.images.sif import own_platform

COPIED = "/.torusrun-copied"
ARCHIVE = re.compile(r".+\.(tar(\.(gz|bz2|xz|zst))?|tgz|tbz2|txz)")
PIP_USER = re.compile(r"\bpip[0-9.]*\s+install\b[^&|;]*\s--user\b")
HERE_WORD = re.compile(r"<<-?\S+")
SHOWN = 60  # characters of a RUN in the log
UNSAFE = re.compile(r"(?im)^\s*%|^bootstrap:|\{\{|\n\n|\\\Z")
WITHOUT_EFFECT = {
    "EXPOSE": "", "VOLUME": "", "STOPSIGNAL": "", "MAINTAINER": "",
    "HEALTHCHECK": "nothing runs it", "ONBUILD": "it has no effect on this image",
}  # fmt: skip


@dataclass
class Recipe:
    """The sections of a stage, filled instruction by instruction."""

    stage: BuildStage
    of: Dockerfile
    context: Context
    given: dict[str, str]
    take: Callable[[Path], str]
    """Takes a file of the user into the build; returns its name beside the definition."""
    files: list[tuple[str, str, str]] = field(default_factory=list)  # (stage or '', from, to)
    post: list[Text] = field(default_factory=list)
    environment: list[tuple[str, Expansion]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    folder: Expansion = Expansion(("/",))
    known: dict[str, str | None] = field(default_factory=dict)
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])

    def fill(self) -> Recipe:
        """The recipe with its stage's instructions. Raises SpecError, with the line, if one cannot be expressed."""
        for step in self.stage.instructions:
            try:
                if step.word in WITHOUT_EFFECT:
                    self._note(step, WITHOUT_EFFECT[step.word])
                else:
                    getattr(self, f"_{step.word.lower()}")(step)
            except UserError as error:
                raise error if str(error).startswith(step.mark.source) else step.wrong(str(error)) from None
        return self

    def runscript(self) -> list[Text]:
        """The lines that start ENTRYPOINT and CMD: arguments replace CMD, as for Docker."""
        lines = [Text(f"cd {self.folder.shell()}")] if self.folder.plain != "/" else []
        if self.command:
            lines.append(Text(f'[ "$#" -gt 0 ] || set -- {_words(self.command)}'))
        return [*lines, Text(" ".join(["exec", *map(shell, self.entrypoint), '"$@"']))]

    def _note(self, step: Instruction, why: str) -> None:
        if why:
            self.notes.append(f"{step.mark.source}:{step.mark.line}: {step.word}: {why}")

    def _expand(self, word: str) -> Expansion:
        return expand(word, self.known)

    def _plain(self, word: str) -> str:
        """A word whose value must be known before the build."""
        value = self._expand(word).plain
        if value is None:
            raise UserError(f"{word}: a variable in it is not set by ENV or ARG, so it is not known before the build")
        return value

    def _arg(self, step: Instruction) -> None:
        for name in (word.partition("=")[0] for word in split(step.text)):
            if name in {variable for variable, _ in self.environment}:
                continue  # ENV goes before ARG
            defaults = dict(stages.defaults(step, self.known, self.given))
            value = defaults.get(name, self.of.arguments.get(name, _platform().get(name)))
            if value is not None:
                self.known[name] = value
                self.post.append(Text(f"export {_name(name)}={shell(value)}"))
            else:
                self.known.setdefault(name, "")  # Docker takes it for empty, and RUN does not have it

    def _env(self, step: Instruction) -> None:
        if not (words := split(step.text)):
            raise UserError("it names no variable")
        pairs = [word.partition("=")[::2] for word in words]
        if "=" not in words[0]:  # the old form: ENV NAME all the rest
            pairs = [(words[0], step.text.partition(words[0])[2].strip())]
        values = [(_name(name), self._expand(value)) for name, value in pairs]  # with what was before this line
        self.environment += values
        for name, value in values:
            self.known[name] = value.plain
            self.post.append(Text(f"export {name}={value.shell()}"))

    def _label(self, step: Instruction) -> None:
        if not (words := split(step.text)):
            raise UserError("it names no label")
        pairs = [word.partition("=")[::2] for word in words] if "=" in step.text else [(words[0], " ".join(words[1:]))]
        for name, value in pairs:
            if plain := " ".join(self._plain(value).split()):
                self.labels[str(line(self._plain(name), "label"))] = str(line(plain, "label"))

    def _workdir(self, step: Instruction) -> None:
        place = self._expand(step.text)
        absolute = place.parts and (not isinstance(place.parts[0], str) or place.parts[0].startswith("/"))
        between = () if self.folder.plain == "/" else ("/",)
        self.folder = place if absolute else Expansion((*self.folder.parts, *between, *place.parts))
        self.post += [Text(f"mkdir -p {place.shell()}"), Text(f"cd {place.shell()}")]  # `&&` would hide a failure

    def _user(self, step: Instruction) -> None:
        if self._plain(step.text).partition(":")[0] not in ("root", "0"):
            self._note(step, "it has no effect: the build runs as root, and the ranks as you")

    def _shell(self, step: Instruction) -> None:
        if not (words := step.json()):
            raise UserError('write it as SHELL ["/bin/bash", "-c"]')
        self.shell = words

    def _entrypoint(self, step: Instruction) -> None:
        self.entrypoint, self.command = self._started(step), []

    def _cmd(self, step: Instruction) -> None:
        self.command = self._started(step)

    def _started(self, step: Instruction) -> list[str]:
        words = step.json()
        return [*self.shell, step.text] if words is None else words

    def _run(self, step: Instruction) -> None:
        if PIP_USER.search(step.text):
            self._note(step, "--user installs below the home of root, which the ranks cannot read; leave it out")
        for name, value in step.flags:
            kind = re.search(r"(?:^|,)type=([a-z]+)", value)
            if name == "mount" and kind and kind[1] in ("cache", "tmpfs"):
                continue  # without it the result is the same
            if name == "mount" and kind and kind[1] in ("secret", "ssh"):
                raise UserError(f"--mount=type={kind[1]}: name the login in 'secrets' of an image file; "
                                "the build has it as a variable")  # fmt: skip
            if name == "mount":
                origin = re.search(r"(?:^|,)from=([^,]+)", value)
                copy = f"COPY --from={origin[1]}" if origin else "COPY"
                raise UserError(f"--mount={value}: a build cannot mount it; {copy} the files before this line")
            if (name, value) != ("network", "default"):
                raise UserError(f"--{name}={value}: no runtime has this; leave it out")
        script = step.text
        if step.documents and HERE_WORD.fullmatch(step.text):
            script = step.documents[0].content
            if script.startswith("#!"):
                raise UserError("a here-document with '#!' cannot be run; COPY it as a file, and run that")
        elif step.documents:
            script += "\n" + "".join(f"{document.content}{document.name}\n" for document in step.documents)
        elif (
            len(step.lines) > 1 and not re.search(r"[#']", step.text) and not any(p.endswith("\\") for p in step.lines)
        ):
            script = "\\\n".join(step.lines).lstrip()
        where = f"{Path(step.mark.source).name}:{step.mark.line}"
        shown = " ".join(step.text.split())[:SHOWN]
        self.post.append(Text(f": {shell(f'{where}: RUN {shown}')}"))  # the log has it, as every command of %post
        self.post.append(_command(step.json(), self.shell, script))

    def _copy(self, step: Instruction) -> None:
        if step.documents:
            return self._inline(step)
        words = step.json() or split(step.text)
        if len(words) < 2:
            raise UserError("it needs a source and a destination")
        *sources, to = [self._expand(word) for word in words]
        owner, mode = (self._expand(step.flag(name)) for name in ("chown", "chmod"))
        if unknown := [n for n, _ in step.flags if n not in ("from", "chown", "chmod", "link")]:
            mend = "write the pattern into .dockerignore" if unknown[0] == "exclude" else "leave it out"
            raise UserError(f"--{unknown[0]}: no runtime has this; {mend}")
        folder = len(sources) > 1 or (to.plain or "").endswith(("/", "."))
        if len(sources) > 1 and to.plain is not None and not to.plain.endswith(("/", ".")):
            raise UserError("of several sources the destination must be a folder, which ends with '/'")
        for word, source in zip(words, sources, strict=False):
            if source.plain is None:
                raise UserError(f"{word}: a variable in it is not set by ENV or ARG")
            for place in self._sources(step, source.plain):
                unpacked = step.word == "ADD" and ARCHIVE.fullmatch(place)
                if owner.parts:
                    self.post.append(Text(f"chown -R {owner.shell()} {shell(place)}"))
                if mode.parts:
                    self.post.append(Text(f"chmod -R {mode.shell()} {shell(place)}"))
                verb = "unpacked" if unpacked else "copied_into" if folder else "copied"
                self.post.append(Text(f"{verb} {shell(place)} {to.shell()}"))

    _add = _copy

    def _sources(self, step: Instruction, source: str) -> list[str]:
        """The places in the build of all that a source names, after %files has brought it there."""
        if step.word == "ADD" and re.match(r"(https?|ftp)://|git@|.+\.git(#|$)", source):
            how = f"git clone {source}" if ".git" in source else f"curl -fsSL {source} -o FILE"
            raise UserError(f"{source}: no runtime downloads it; write `RUN {how}`")
        if origin := self.of.origin(step):
            if re.search(r"[\s*?\[\]]", source):
                raise UserError(f"--from: {source!r}: a pattern or a space cannot be copied; name files and folders")
            # a folder keeps its name here, so that its content can be told from the folder itself
            named = [(self.of.copied.get(origin, origin), source, source.rstrip("/").rpartition("/")[2])]
        else:
            own = self.context.folder  # each clone may give it another name, so it counts as nameless
            paths = self.context.find(source, step)
            named = [("", self.take(path), "" if path == own else path.name) for path in paths]
        places = []
        for origin, path, name in named:
            above, safe = f"{COPIED}/{len(self.files)}", _safe(name)
            self.files.append((origin, path, f"{above}/{safe}"))
            places.append(f"{above}/{name or safe}")
            if name not in ("", safe):
                self.post.append(Text(f"mv {above}/{safe} {shell(places[-1])}"))
        return places

    def _inline(self, step: Instruction) -> None:
        """A file whose content is a here-document."""
        *_, to = split(HERE_WORD.sub("document", step.text))
        for document in step.documents:
            if document.expanded and "$" in document.content:
                raise UserError(f"variables in the here-document {document.name} are not expanded; "
                                f"write <<'{document.name}', or RUN with `cat <<{document.name} > FILE`")  # fmt: skip
            place = self._expand(to)
            if (place.plain or "").endswith("/"):
                place = Expansion((*place.parts, document.name))
            self.post.append(Text(f'mkdir -p "$(dirname {place.shell()})"'))
            self.post.append(Text(f"printf %s {shell(document.content)} > {place.shell()}"))


def _platform() -> dict[str, str]:
    """The variables that Docker sets by itself, if an ARG names them."""
    system, processor = own_platform().split("/")
    own = {"PLATFORM": own_platform(), "OS": system, "ARCH": processor}
    return {side + name: value for side in ("TARGET", "BUILD") for name, value in own.items()}


def _name(name: str) -> str:
    if not instructions.NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a variable")
    return name


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]", "-", name).lstrip("-") or "all"


def _words(words: list[str]) -> str:
    return " ".join(shell(word) for word in words)


def _command(words: list[str] | None, with_shell: list[str], script: str) -> Text:
    """A RUN as lines of %post; it ends the build if it fails."""
    if words is not None:
        return Text(_words(words))
    if with_shell == ["/bin/sh", "-c"] and not UNSAFE.search(script):
        return Text(f"(set +e\n{script.strip()}\n)")
    return Text(_words([*with_shell, script]))
