"""The JSON file that tells a training process everything: every key present, no key unknown."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

SCHEMA = 1
CHOICES = {"model": ("resnet-digits",), "data": ("digits",), "device": ("auto", "cpu", "cuda")}
POSITIVE = (
    "attempt",
    "rendezvous_timeout_s",
    "epochs",
    "batch",
    "lr",
    "checkpoint_every_steps",
    "log_every_steps",
)
NOT_NEGATIVE = ("momentum", "weight_decay", "warmup_epochs", "label_smoothing", "seed")
BELOW_ONE = ("momentum", "label_smoothing")
TOKEN = re.compile(r"[0-9a-f]{64}")


class ConfigError(ValueError):
    """The config cannot be used; the message is one line and names the key."""


@dataclass(frozen=True)
class Train:
    """What is trained and how; `batch` is the global batch in images."""

    model: str
    data: str
    device: str
    epochs: int
    batch: int
    lr: float
    momentum: float
    weight_decay: float
    warmup_epochs: float
    label_smoothing: float
    seed: int
    checkpoint_every_steps: int
    log_every_steps: int


@dataclass(frozen=True)
class Config:
    """One attempt of a run; `grid` is (X, Y) with rank = y * X + x.

    `token` is the secret of the attempt, 64 hex digits. Whoever knows it can speak as a rank, so no message shows it.
    `done` is the file that rank 0 writes when the training is complete.
    """

    schema: int
    run: str
    attempt: int
    grid: tuple[int, int]
    interface: str | None
    rendezvous: Path
    rendezvous_timeout_s: float
    token: str = field(repr=False)
    checkpoints: Path
    metrics: Path
    done: Path
    train: Train


def load(path: Path, world: int) -> Config:
    """Read and check the config of a process group of `world` ranks; ConfigError names what is wrong."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    try:
        config: Config = _record(Config, document, "")
        _check(config, world)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def _record(kind: type, document: object, where: str) -> Any:
    if not isinstance(document, dict):
        raise ConfigError(f"{where.rstrip('.') or 'the config'} must be an object, not {_json_type(document)}")
    names = [each.name for each in fields(kind)]
    for key in document:
        if key not in names:
            raise ConfigError(f"unknown key {where}{key}; known are {', '.join(names)}")
    for name in names:
        if name not in document:
            raise ConfigError(f"key {where}{name} is missing")
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], document[name], where + name) for name in names})


def _json_type(document: object) -> str:
    """What the document is, without its content: it may hold the token."""
    return {list: "a list", str: "a string", type(None): "null", bool: "a boolean"}.get(type(document), "a number")


def _value(kind: Any, value: Any, key: str) -> Any:
    if key == "token":
        return _token(value)
    if isinstance(kind, type) and is_dataclass(kind):
        return _record(kind, value, key + ".")
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    if type(value) is kind or (value is None and type(None) in get_args(kind)):
        return value
    if isinstance(value, str) and str in get_args(kind):
        return value
    if kind == tuple[int, int] and _is_pair(value):
        return tuple(value)
    raise ConfigError(f"{key} must be {_in_words(kind)}, not {value!r}")


def _token(value: object) -> str:
    if isinstance(value, str) and TOKEN.fullmatch(value):
        return value
    raise ConfigError("token must be a string of 64 hex digits (0-9, a-f); it is a secret and not shown here")


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value)


def _in_words(kind: Any) -> str:
    words = {
        int: "an integer",
        float: "a number",
        str: "a string",
        Path: "a path",
        tuple[int, int]: "two integers",
    }
    return words.get(kind, "a string or null")


def _check(config: Config, world: int) -> None:
    if config.schema != SCHEMA:
        raise ConfigError(f"schema {config.schema} is not known; this training reads schema {SCHEMA}")
    _check_ranges({**vars(config), **{f"train.{key}": value for key, value in vars(config.train).items()}})
    x_ranks, y_ranks = config.grid
    if x_ranks < 1 or y_ranks < 1 or x_ranks * y_ranks != world:
        raise ConfigError(f"grid {x_ranks} x {y_ranks} does not hold the {world} ranks of WORLD_SIZE")
    if config.train.batch % world:
        raise ConfigError(f"train.batch {config.train.batch} does not divide by the {world} ranks")


def _check_ranges(values: dict[str, Any]) -> None:
    for key, value in values.items():
        name = key.removeprefix("train.")
        if name in CHOICES and value not in CHOICES[name]:
            raise ConfigError(f"{key} must be one of {', '.join(CHOICES[name])}, not {value!r}")
        if name in POSITIVE and not 0 < value < float("inf"):
            raise ConfigError(f"{key} must be above 0, not {value}")
        if name in NOT_NEGATIVE and not 0 <= value < float("inf"):
            raise ConfigError(f"{key} must not be negative, not {value}")
        if name in BELOW_ONE and value >= 1:
            raise ConfigError(f"{key} must be below 1, not {value}")
