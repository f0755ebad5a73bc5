"""Triton kernels for CUDA: psi is evaluated in registers, pool and channel sum are fused, forward and backward.

Nothing of size C O T L is ever in memory: they keep x and w, and for maximum, minimum and median which tap it was, one
byte each.

    refuse, refuse_shape, refuse_values   why they cannot serve a call, a kernel's size, tensors
    run                                   the layer
    trusted                               whether they agree with `tapwise` on this device: for `auto`

Triton is imported when a kernel is first needed, so that this package can be imported without it.
"""

from onn_runner.compute.fused.layer import run
from onn_runner.compute.fused.refusal import refuse, refuse_shape, refuse_values
from onn_runner.compute.fused.trust import trusted

__all__ = ["refuse", "refuse_shape", "refuse_values", "run", "trusted"]
