"""Fit one fold: `train_fold(FoldJob(...), reporter=make_reporter(), stop=StopRequest())`."""

from onn_runner.trainer.estimate import seconds_per_step
from onn_runner.trainer.fold import check, train_fold
from onn_runner.trainer.interrupt import StopRequest
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.progress import PlainReporter, QuietReporter, Reporter, RichReporter, make_reporter
from onn_runner.trainer.result import Divergence, FoldResult, StartResult
from onn_runner.trainer.settings import Settings

__all__ = [
    "Divergence",
    "FoldJob",
    "FoldResult",
    "PlainReporter",
    "QuietReporter",
    "Reporter",
    "RichReporter",
    "Settings",
    "StartResult",
    "StopRequest",
    "check",
    "make_reporter",
    "seconds_per_step",
    "train_fold",
]
