"""Experiment runner for operational and quadratic neural networks."""

__version__ = "0.1.0"
