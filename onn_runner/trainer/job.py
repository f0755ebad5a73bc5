"""FoldJob: everything that training one fold needs, as builders that can be called again for every start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from onn_runner.data.base import Source
from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold
from onn_runner.task.base import Task
from onn_runner.trainer.settings import Settings

if TYPE_CHECKING:
    from onn_runner.metric.base import ItemMetric

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class FoldJob:
    fold: Fold
    folder: Path
    seed: int
    source: Source
    task: Task
    build_network: Callable[[], nn.Module]
    """Called with torch's generator seeded for the fold and start."""
    build_optimizer: Callable[[list[dict[str, Any]]], Optimizer]
    """Parameter groups -> optimizer."""
    build_scheduler: Callable[..., Any] | None
    """(optimizer) or (optimizer, epochs=, steps=, higher=) -> a schedule or a scheduler of torch; None: constant."""
    build_metrics: Callable[[], dict[str, ItemMetric]]
    settings: Settings
    initial: Callable[[], nn.Module] | None = None
    """A first-order network of the same layers whose weights a start begins with; None: it begins with fresh ones."""
    near: bool = False
    """Whether neurons that cannot be a convolution may start close to `initial`'s."""
    config: dict[str, Any] = field(default_factory=dict)
    """The resolved config, plain; kept in the checkpoints."""

    def __post_init__(self) -> None:
        if not self.fold.train:
            raise ConfigError(f"fold {self.fold.index} has no items to train on: check partition.")

    def start_folder(self, start: int) -> Path:
        """A fold with one start keeps everything in its own folder."""
        return self.folder if self.settings.starts == 1 else self.folder / f"start_{start:02d}"

    @property
    def steps(self) -> int:
        """Batches of an epoch, the last partial one included."""
        return len(self.limited(range(-(-len(self.fold.train) // self.settings.batch_size))))

    @property
    def updates(self) -> int:
        """Updates of the weights in an epoch."""
        return -(-self.steps // self.settings.accumulate)

    def limited(self, order: Sequence[T]) -> Sequence[T]:
        """The batches of a part that count: all of them, or the first trainer.limit_batches."""
        return order[: self.settings.limit_batches]
