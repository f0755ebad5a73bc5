"""y = f(product + squares + L x + S x^2 + x^T W x + c), as far as the type of the neurons has these terms."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from onn_runner.model import batch_norms, quadratic_index, quadratic_matrix, quadratic_starts
from onn_runner.model.base import LayerFacts, LayerSpec
from onn_runner.model.batch_norms import BatchNorm
from onn_runner.model.conv import (
    SpatialLayer,
    UnboundedInputWarning,
    at_least_single,
    autocast_dtype,
    convolve,
    transforming,
    without_autocast,
)
from onn_runner.model.products import products
from onn_runner.model.products_forward import Form, Operands, along_channels, combined
from onn_runner.model.quadratic_types import branches, is_factor, squared, term_of
from onn_runner.model.recomputed_norm import recomputing

if TYPE_CHECKING:
    from onn_runner.model.quadratic import Quadratic


class QuadraticLayer(SpatialLayer):
    """Weights `weight_a`, `weight_b`, `weight_linear`, `weight_square`, `weight_matrix`, as far as the type has them.

    Of t1_low_rank `weight_a1`, `weight_a2`, ..., and `sign_a1`, ... where signs are learned.
    """

    def __init__(self, spec: LayerSpec, *, model: Quadratic) -> None:
        super().__init__(spec, model.kind, model.activation)
        self.form, self.formula, self.memory_mode = model.type, model.formula, model.memory_mode
        self.own_activation = model.activation
        self.branches = branches(self.formula, model.rank)
        self.convolutions = tuple(name for name in self.branches if name != "matrix")
        self.turns = {name: (-1.0) ** place for place, name in enumerate(squared(self.branches))}
        learned = self.turns if model.learns_signs else {}
        self.subtracted = frozenset(name for name, turn in self.turns.items() if turn < 0 and name not in learned)
        outputs = spec.out_channels
        for branch in self.branches:
            triangle = (outputs, quadratic_matrix.pairs(self.fan_in))
            shape = triangle if branch == "matrix" else self.weight_shape
            self.register_parameter(f"weight_{branch}", nn.Parameter(torch.zeros(shape)))
        for branch in learned:
            self.register_parameter(f"sign_{branch}", nn.Parameter(torch.zeros(outputs)))
        self.reset_signs()
        self.bias = self.make_bias()
        if self.formula.factor_biases:
            self.bias_a = nn.Parameter(torch.zeros(outputs))
            self.bias_b = nn.Parameter(torch.ones(outputs))
        # computing norms inside the neurons twice would count the batch twice
        self.recomputes_for_norm = model.memory == "recompute" and model.norm != "batch"
        made = batch_norms.MADE[spec.dims]
        self.norms = nn.ModuleDict({branch: made(outputs) for branch in self.branches if model.norm == "batch"})
        normalised = model.normalises_output and spec.role == "hidden" and spec.norm is None
        self.output_norm = made(outputs) if normalised else nn.Identity()
        self._warn_of_growth(model.norm == "batch" or model.normalises_output or spec.norm is not None)
        if model.init == "relinear":
            quadratic_starts.relinear(self)
        else:
            quadratic_starts.balanced(self)

    def _warn_of_growth(self, normed: bool) -> None:
        self.grows = not normed and self.output_bound is None
        if self.spec.index > 0 and self.spec.input_bound is None and not normed:
            # the same words for every layer, so that a network tells them once
            warnings.warn(
                "quadratic layers multiply inputs without bounds: use a bounded activation before them "
                "(model.activation=tanh), model.output_norm=batch or norms of the network",
                UnboundedInputWarning,
                stacklevel=4,
            )

    def weight_of(self, branch: str) -> Tensor:
        """[O, C/G, *k], of `matrix` [O, K (K + 1) / 2]."""
        weight = getattr(self, f"weight_{branch}")
        assert isinstance(weight, Tensor)
        return weight

    def factor_shift(self, branch: str) -> Tensor | None:  # [O]
        """What is added to a factor, the 1 of qres among it."""
        if branch == "b" and self.formula.unit:
            return self.weight_of("b").new_ones(self.spec.out_channels)
        return getattr(self, f"bias_{branch}", None)

    @torch.no_grad()
    def reset_signs(self) -> None:
        """Learned ones to +1 and -1 by turns."""
        for name, sign in self.signs().items():
            if sign is not None:
                sign.fill_(self.turns[name])

    def respond(self, x: Tensor) -> Tensor:
        return self._behind(self.output_norm, self._combined, x)

    def normed(self, x: Tensor) -> Tensor:
        return self._behind(self.norm, self.respond, x)

    def _behind(self, norm: nn.Module, respond: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """norm(respond(x)), without what the norm would keep where x alone is to be kept."""
        if isinstance(norm, nn.Identity) or not self.recomputes_for_norm:
            return self._normed(respond(x), norm)
        return recomputing(lambda y: self._normed(y, norm), respond, x)

    def _combined(self, x: Tensor) -> Tensor:
        """All terms."""
        norms = None
        if self.memory_mode != "keep" and x.shape[0] and not transforming():
            norms = batch_norms.plain([self.norms[name] for name in self.convolutions if name in self.norms])
        y = self._kept(x) if norms is None else self._products(x, norms)
        if "matrix" in self.branches:
            recomputes = self.memory_mode != "keep"
            term = quadratic_matrix.quadratic_form(x, self.weight_of("matrix"), spec=self.spec, recomputes=recomputes)
            y = y + (self._normed(term, self.norms["matrix"]) if "matrix" in self.norms else term)
        return y

    def _normed(self, y: Tensor, norm: nn.Module) -> Tensor:
        return batch_norms.applied(norm, y, f"layer {self.spec.index}")

    def _shifts(self) -> tuple[dict[str, Tensor | None], Tensor | None]:
        """What is added to each convolution, the bias to one that is a term, and the bias where there is no such."""
        shifts = {name: self.factor_shift(name) for name in self.convolutions}
        added = next((name for name in ("linear", "square") if name in shifts), None)
        if added is None:
            return shifts, self.bias
        shifts[added] = self.bias
        return shifts, None

    def signs(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, f"sign_{name}", None) for name in squared(self.branches)}

    def _kept(self, x: Tensor) -> Tensor:
        """Under plain autograd, which keeps the factors."""
        shifts, base = self._shifts()
        results = {name: self._branch(name, x, shifts[name]) for name in self.convolutions}
        return combined(results, base, subtracted=self.subtracted, signs=self.signs())

    def _branch(self, branch: str, x: Tensor, shift: Tensor | None) -> Tensor:
        """One convolution in single precision or better, since products overflow half precision at 256 x 256."""
        weight = self.weight_of(branch)
        later = branch in self.norms or (branch != "square" and autocast_dtype(x, weight) is not None)
        bias = None if later else shift
        if branch == "square":
            with without_autocast(x):
                bias = None if bias is None else at_least_single(bias)
                y = convolve(at_least_single(x).square(), at_least_single(weight), spec=self.spec, bias=bias)
        else:
            y = at_least_single(convolve(x, weight, spec=self.spec, bias=bias))
        if branch in self.norms:
            y = self._normed(y, self.norms[branch])
        return y + along_channels(shift, y) if later and shift is not None else y

    def _products(self, x: Tensor, plain: list[BatchNorm]) -> Tensor:
        """The same by `products`, which computes the factors again in backward."""
        norms = dict(zip((name for name in self.convolutions if name in self.norms), plain, strict=True))
        shifts, base = self._shifts()
        training, eps = False, 0.0
        for name, norm in norms.items():
            own = shifts[name]
            shifts[name] = norm.bias if own is None else norm.bias + own
            training, eps = norm.training, norm.eps
        running = {} if training else norms
        operands = Operands(
            base,
            {name: self.weight_of(name) for name in self.convolutions},
            shifts,
            {name: norm.weight for name, norm in norms.items()},
            {name: norm.running_mean for name, norm in running.items()},
            {name: norm.running_var for name, norm in running.items()},
            self.signs(),
        )
        keeps = self.memory_mode == "save_conv"
        form = Form(self.convolutions, self.spec, keeps, bool(norms), training, eps, self.subtracted)
        y, statistics = products(x, form, operands)
        for name, (mean, variance) in statistics.items():
            batch_norms.check_spread(y, norms[name], f"layer {self.spec.index}")
            batch_norms.remember(norms[name], mean, variance)
        return y

    def load_first_order(self, weight: Tensor, bias: Tensor | None = None, *, near: bool = False) -> None:
        quadratic_starts.load_first_order(self, weight, bias, near=near)

    def macs(self, positions: int) -> int:
        """One for each weight that an output is multiplied with."""
        count = len(self.convolutions) * super().macs(positions)
        if "matrix" in self.branches:
            count += positions * self.weight_of("matrix").numel()
        return count

    def facts(self) -> LayerFacts:
        count = len(self.convolutions)
        reason = f"{count} of them" if count > 1 else "one"
        if "matrix" in self.branches:
            reason += f", and a matrix over patches of {self.fan_in} numbers"
        if not isinstance(self.output_norm, nn.Identity):
            reason += ", then a batch norm"
        reason += f"; {self.memory_mode}: keeps {self._what_is_kept()}"
        return LayerFacts(self.kind, (), self.nonlinearity(), "convolution", reason)

    def _what_is_kept(self) -> str:
        """For backward, besides weights."""
        mode = self.memory_mode
        outputs = len(self.norms) if mode != "recompute" else int("matrix" in self.norms)
        if mode == "keep" or (mode == "save_conv" and not self.norms):
            outputs += sum(is_factor(branch) for branch in self.branches)
        if not self.recomputes_for_norm:
            outputs += sum(not isinstance(norm, nn.Identity) for norm in (self.norm, self.output_norm))
        if mode == "keep":
            outputs += sum(sign is not None for sign in self.signs().values())
        kept = ["x"]
        if mode == "keep" and "square" in self.branches:
            kept.append("x^2")
        if mode == "keep" and "matrix" in self.branches:
            kept += [f"patches ({self.fan_in} of x)", f"{self.fan_in} outputs for W x"]
        kept += [f"{outputs} output{'s' * (outputs > 1)}"] if outputs else []
        if kept == ["x"]:
            return "x only"
        return f"{', '.join(kept[:-1])} and {kept[-1]}"

    def terms(self) -> dict[str, str]:
        found = {}
        for name, _ in self.named_parameters():
            kind, _, branch = name.partition("_")
            if self._group_of(name) == "norm":
                found[name] = "norm"
            elif kind == "bias":
                found[name] = name
            else:
                found[name] = "sign" if kind == "sign" else term_of(branch)
        return found

    def _group_of(self, name: str) -> str:
        if "norm" in name.split(".")[0]:
            return "norm"
        if name == "bias_b":
            return "undecayed"
        if name.startswith("bias"):
            return "bias"
        return "weight" if name == f"weight_{self.formula.first_order}" else "quadratic"

    def nonlinearity(self) -> float:
        """Share of the variance that the best linear fit leaves, weights as they are, x uniform on [-1, 1]."""
        return quadratic_index.nonlinearity(self)
