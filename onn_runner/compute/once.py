"""The former name of `twice`."""

from onn_runner.compute.twice import twice as once

__all__ = ["once"]
