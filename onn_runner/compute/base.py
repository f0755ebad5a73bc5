"""One layer's request to a kernel: which operators, over which taps; and what the kernel remembers between calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from onn_runner.ops.base import Nodal, Pool


@dataclass(frozen=True)
class Block:
    """Consecutive neurons (output channels start..stop-1) that share one nodal operator."""

    name: str
    nodal: Nodal
    start: int
    stop: int


@dataclass(frozen=True)
class Call:
    """What does not change from call to call. The input is already padded: kernels compute valid positions only, or the
    full output of a transposed layer.

    A kernel module (`reference`, `chebyshev`, `tapwise`) offers

        refuse(call) -> str | None                    why it cannot serve this call, as half a sentence; None if it can
        run(call, x, weight, gain, bias, memory)      -> A_o sum_c P_t psi(w, x) + b_o

    with x [B, C, *S], weight [O, C/G, *k], gain [O] or None (fixed, no gradient), bias [O] or None, and the result
    [B, O, *S']. `groups` are torch's: output channel o reads the input channels of group o // (O/G).
    """

    blocks: tuple[Block, ...]
    pool: Pool
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    input_bound: tuple[float, float] | None = None
    """A range that x is known to lie in (after tanh: -1 to 1), or None."""
    transposed: bool = False
    """y[o,p] = A_o sum of psi(w[o,c,t], x[c,i]) over all c and all i, t with p = i stride + t dilation, + b_o: of size
    (S - 1) stride + dilation (k - 1) + 1 per axis. Inserted zeros contribute nothing; sum and mean pools only."""


@dataclass
class Memory:
    """What a layer's kernels remember between calls, such as the accepted number of terms; part of checkpoints.

    `plans` holds plain containers, numbers and tensors only, so that it survives `torch.load(weights_only=True)`.
    """

    requested: str = "auto"
    chosen: str = ""
    reason: str = ""
    plans: dict[str, Any] = field(default_factory=dict)
    training: bool = True
    """The layer's mode, which it tells before each call; no part of checkpoints."""

    def plain(self) -> dict[str, Any]:
        """A copy for a checkpoint."""
        return {"chosen": self.chosen, "reason": self.reason, "plans": dict(self.plans)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `plain` gave."""
        self.chosen, self.reason, self.plans = state["chosen"], state["reason"], dict(state["plans"])
