"""Operators: what an operational neuron computes. Pure, stateless, free of layers and of configuration."""

from onn_runner.ops.base import FunctionNodal, Nodal, Pool, as_nodal
from onn_runner.ops.calibrate import Calibration, calibrate, neuron_means
from onn_runner.ops.nodal import (
    Chirp,
    Cubic,
    DoG,
    Exponential,
    Gaussian,
    Log,
    Multiply,
    Quadratic,
    Sinc,
    Sine,
    Sinh,
)
from onn_runner.ops.pool import (
    Correlation2,
    Correlation3,
    Maximum,
    Mean,
    Median,
    Minimum,
    Sum,
    named,
)

__all__ = [
    "Calibration",
    "Chirp",
    "Correlation2",
    "Correlation3",
    "Cubic",
    "DoG",
    "Exponential",
    "FunctionNodal",
    "Gaussian",
    "Log",
    "Maximum",
    "Mean",
    "Median",
    "Minimum",
    "Multiply",
    "Nodal",
    "Pool",
    "Quadratic",
    "Sinc",
    "Sine",
    "Sinh",
    "Sum",
    "as_nodal",
    "calibrate",
    "named",
    "neuron_means",
]
