"""Settings: how a fold is trained, every value checked where it enters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onn_runner.errors import ConfigError, unknown

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
SWITCHES = (
    "shuffle",
    "decay_all",
    "restore_best_on_rise",
    "compile",
    "tensorboard",
    "pictures",
    "score_training",
    "checks",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Raises ConfigError, naming `trainer.<key>`, for a value that cannot be meant."""

    epochs: int
    batch_size: int
    eval_batch_size: int
    shuffle: bool = True
    """False: training items in their own order in every epoch."""
    starts: int = 1
    """Random starts of every fold; the best by validation counts, the mean is reported beside it."""
    device: str = "auto"
    precision: str = "fp32"
    monitor: str = "val/psnr"
    """What chooses the best epoch and the best start; a `train/` one where there is no validation part. In a config
    null is the first metric's."""
    keep_best: tuple[str, ...] = ()
    """Further keys such as `val/ssim`, each with its own best_<metric>.pt."""
    train_metrics: tuple[str, ...] | None = None
    """Metrics also computed on training predictions; None: the monitored one."""
    patience: int | None = None
    """Stop a start after so many epochs without a new best; None: never."""
    accumulate: int = 1
    """Batches per update of the weights: the gradient is that of one batch with all their items."""
    clip_norm: float | None = None
    clip_value: float | None = None
    decay_all: bool = False
    """Let weight decay act on biases and norms as well."""
    quadratic_rate: float = 1.0
    """Factor on the learning rate of quadratic terms."""
    quadratic_decay: float | None = None
    """Weight decay of quadratic terms; None: the optimizer's."""
    term_rates: Mapping[str, float] = field(default_factory=dict)
    """Factors on the learning rate of single terms of quadratic neurons: {"square": 0.1}; beside `quadratic_rate`."""
    term_decays: Mapping[str, float] = field(default_factory=dict)
    """Weight decay of single terms, before `quadratic_decay`."""
    frozen: tuple[str, ...] = ()
    """Patterns of parameter names (`*quadratic*`) that are not trained."""
    ema: float | None = None
    """Decay of the running mean of the weights, which is then validated, kept and tested; None: the weights are."""
    average: int | None = None
    """Try the mean of the weights of so many best epochs; None: the best epoch's weights are the result."""
    restore_best_on_rise: bool = False
    """After an epoch whose training loss rose, go on from the weights and moments of the best epoch."""
    workers: int = 0
    threads: int | None = None
    """Threads of torch on the CPU; None: as torch finds them."""
    compile: bool = False
    tensorboard: bool = True
    preview_items: int = 4
    preview_every: int = 5
    """Epochs between pictures; the first and the last epoch always have them."""
    pictures: bool = True
    """PNG pictures of every fold's best weights, and learning curves."""
    score_training: bool = False
    """Score the training items once with the best weights, without augmentation: `fitted/psnr`."""
    limit_batches: int | None = None
    """Only the first batches of every part, to try out; None: all."""
    limit_folds: int | None = None
    """Only the first folds of the partition, to try out; None: all."""
    checks: bool = False
    """Check data, gradients, parameters and layers while training: several times slower."""
    statistics: bool | int = False
    """Epochs between statistics of weights and gradients; True: every epoch, False: none."""
    save_minutes: float = 10.0
    """Long epochs are also saved in their middle, so often."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "eval_batch_size", "starts", "accumulate", "preview_every"):
            _whole(name, getattr(self, name), least=1)
        for name in ("workers", "preview_items"):
            _whole(name, getattr(self, name), least=0)
        for name in ("patience", "threads", "limit_batches", "limit_folds"):
            _whole(name, getattr(self, name), least=1, optional=True)
        _whole("average", self.average, least=2, optional=True)
        for name in ("clip_norm", "clip_value", "ema"):
            _number(name, getattr(self, name), optional=True)
        if self.ema is not None and self.ema >= 1:
            raise _wrong("ema", self.ema, "must be below 1, such as 0.999, or null")
        _number("save_minutes", self.save_minutes)
        _number("quadratic_rate", self.quadratic_rate, zero=True)
        _number("quadratic_decay", self.quadratic_decay, zero=True, optional=True)
        if not isinstance(self.statistics, bool):
            _whole("statistics", self.statistics, least=1)
        for name in ("term_rates", "term_decays"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "must be true or false")
        for name in ("device", "precision", "monitor"):
            if not isinstance(getattr(self, name), str):
                raise _wrong(name, getattr(self, name), "must be a word")
        for name in ("keep_best", "frozen", "train_metrics"):
            object.__setattr__(self, name, _words(name, getattr(self, name), optional=name == "train_metrics"))
        if self.precision not in PRECISIONS:
            raise unknown("trainer.precision", self.precision, PRECISIONS)
        if self.clip_norm is not None and self.clip_value is not None:
            raise ConfigError("trainer.clip_norm and trainer.clip_value exclude each other: set one of them to null.")

    @property
    def most_scored(self) -> dict[str, int]:
        """How many items of `test` and `photo` are scored where limit_batches cuts them: whole originals one by one."""
        limit = self.limit_batches
        return {} if limit is None else {"test": limit * self.eval_batch_size, "photo": limit}


def _wrong(name: str, value: Any, remedy: str) -> ConfigError:
    return ConfigError(f"trainer.{name} (={value!r}) {remedy}.")


def _whole(name: str, value: Any, *, least: int, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _wrong(name, value, f"must be a whole number of at least {least}{' or null' if optional else ''}")


def _number(name: str, value: Any, *, zero: bool = False, optional: bool = False) -> None:
    if value is None and optional:
        return
    numeric = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not numeric or value < 0 or (value == 0 and not zero):
        kind = "zero or a positive number" if zero else "a positive number"
        raise _wrong(name, value, f"must be {kind}{' or null' if optional else ''}")


def _numbers(name: str, value: Any) -> dict[str, float]:
    """Raises ConfigError for anything but words with numbers of at least 0; None: no words."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(word, str) for word in value):
        raise _wrong(name, value, "must give terms their numbers, such as {square: 0.1}, or be null")
    for word, number in value.items():
        _number(f"{name}.{word}", number, zero=True)
    return {str(word): float(number) for word, number in value.items()}


def _words(name: str, value: Any, *, optional: bool = False) -> tuple[str, ...] | None:
    if value is None and optional:
        return None
    sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not sequence or not all(isinstance(word, str) for word in value):
        raise _wrong(name, value, "must be a list of words, such as [val/ssim] or []")
    return tuple(value)
