"""A first-order network made of other neurons, which starts with the same outputs: each layer replaced by itself.

first_order   what a convolution or linear layer computes, as a LayerSpec and weights
survey        which modules can be converted, and why the others cannot
norms         batch norms folded into the layers before them
conversion    the replacement itself, and the report
takeover      a network of ours that begins with the weights of the same one of first-order neurons
"""

from __future__ import annotations

from onn_runner.convert.conversion import STARTS, ConversionReport, Converted, convert
from onn_runner.convert.survey import Left
from onn_runner.convert.takeover import take_over

__all__ = ["STARTS", "ConversionReport", "Converted", "Left", "convert", "take_over"]
