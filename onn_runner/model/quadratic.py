"""y = f((A x + a)(B x + b) + L x + S x^2 + c), or a part of it: quadratic neurons of five published types."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError, unknown
from onn_runner.model import activation, batch_norms, padding
from onn_runner.model.base import LayerFacts, LayerSpec
from onn_runner.model.batch_norms import BatchNorm
from onn_runner.model.conv import (
    SpatialLayer,
    UnboundedInputWarning,
    at_least_single,
    convolve,
    fill_uniform,
    input_moments,
    transforming,
    without_autocast,
)
from onn_runner.model.products import Form, Operands, products

TYPES: dict[str, tuple[str, ...]] = {
    "t2": ("square",),
    "t3": ("a",),
    "t4": ("a", "b"),
    "t2_4": ("a", "b", "square"),
    "quadralib": ("a", "b", "linear"),
}
"""The convolutions of each type.

    t2         W x^2
    t3         (W x)^2
    t4         (Wa x)(Wb x)
    t2_4       (Wr x + br)(Wg x + bg) + Wb x^2 + c           a = Wr, b = Wg. Source: Fan et al., 2018
    quadralib  (Wa x)(Wb x) + Wc x                           Source: Xu et al., QuadraLib, 2022
"""

FIRST_ORDER = ("t2_4", "quadralib")
"""Types with a term of first order."""

INITIALISATIONS = ("balanced", "relinear")
NORMS = ("none", "batch")
MEMORIES = ("auto", "keep", "save_conv", "recompute")


class QuadraticLayer(SpatialLayer):
    """Weights `weight_a`, `weight_b`, `weight_linear`, `weight_square`, as far as the type has them, and biases."""

    def __init__(self, spec: LayerSpec, *, model: Quadratic) -> None:
        super().__init__(spec, f"quadratic {model.type}", model.activation)
        self.branches = TYPES[model.type]
        normed = model.norm == "batch" or model.normalises_output or spec.norm is not None
        if spec.index > 0 and spec.input_bound is None and not normed:
            warnings.warn(
                f"layer {spec.index} multiplies an input without bounds: use a bounded activation before it "
                "(model.activation=tanh) or model.output_norm=batch",
                UnboundedInputWarning,
                stacklevel=3,
            )
        self.form = model.type
        self.memory_mode = model.memory_mode
        for branch in self.branches:
            self.register_parameter(f"weight_{branch}", nn.Parameter(torch.zeros(self.weight_shape)))
        outputs = spec.out_channels
        self.bias = nn.Parameter(torch.zeros(outputs))
        if self.form == "t2_4":
            self.bias_a = nn.Parameter(torch.zeros(outputs))
            self.bias_b = nn.Parameter(torch.ones(outputs))
        made = batch_norms.MADE[spec.dims]
        self.norms = nn.ModuleDict({branch: made(outputs) for branch in self.branches if model.norm == "batch"})
        normalised = model.normalises_output and spec.role == "hidden" and spec.norm is None
        self.output_norm = made(outputs) if normalised else nn.Identity()
        moments = input_moments(spec, model.activation)
        if model.init == "relinear":
            self._fill_relinear(moments)
        else:
            self._fill_balanced(moments)

    def weight_of(self, branch: str) -> Tensor:
        weight = getattr(self, f"weight_{branch}")
        assert isinstance(weight, Tensor)
        return weight

    def _fill(self, branch: str, variance: float, moment: float) -> None:
        """Weights for a branch of that variance, where its input has that second moment."""
        fill_uniform(self.weight_of(branch), variance / (self.reads * moment))

    def _fill_relinear(self, moments: tuple[float, float]) -> None:
        """A first-order neuron exactly: B and S are 0, so the product is A x (t2_4) or vanishes beside L x."""
        self._fill("a", 1.0, moments[0])
        if "linear" in self.branches:
            self._fill("linear", 1.0, moments[0])

    @torch.no_grad()
    def _fill_balanced(self, moments: tuple[float, float]) -> None:
        """Unit variance in equal parts from each term; the bias takes away the means of squares."""
        second, fourth = moments
        if self.form == "t2_4":
            variances = {"a": 1 / 3, "b": 1.0, "square": 1 / 3}
        elif self.form == "t3":
            variances = {"a": 0.5**0.5}
            self.bias.sub_(0.5**0.5)
        else:
            share = 1 / 2 if "linear" in self.branches else 1.0
            variances = {"a": share**0.5, "b": share**0.5, "linear": share, "square": share}
        for branch in self.branches:
            self._fill(branch, variances[branch], fourth - second**2 if branch == "square" else second)
        if "square" in self.branches:
            self.bias.sub_(second / padding.phases(self.spec) * self.weight_of("square").flatten(1).sum(1))

    def respond(self, x: Tensor) -> Tensor:
        norms = None
        if self.memory_mode != "keep" and x.shape[0] and not transforming():
            norms = batch_norms.plain(list(self.norms.values()))
        y = self._kept(x) if norms is None else self._recomputed(x, dict(zip(self.norms, norms, strict=True)))
        return self._normed(y, self.output_norm)

    def _normed(self, y: Tensor, norm: nn.Module) -> Tensor:
        if not isinstance(norm, nn.Identity):
            batch_norms.check_spread(y, norm, f"layer {self.spec.index}")
        result: Tensor = norm(y)
        return result

    def _kept(self, x: Tensor) -> Tensor:
        """Under plain autograd, which keeps the factors."""
        y = self._along_channels(self.bias)
        if "a" in self.branches:
            a = self._branch("a", x)
            y = y + a * (self._branch("b", x) if "b" in self.branches else a)
        for branch in ("linear", "square"):
            if branch in self.branches:
                y = y + self._branch(branch, x)
        return y

    def _branch(self, branch: str, x: Tensor) -> Tensor:
        """One convolution in single precision or better, since products overflow half precision at 256 x 256."""
        weight = self.weight_of(branch)
        if branch == "square":
            with without_autocast(x):
                y = convolve(at_least_single(x).square(), at_least_single(weight), spec=self.spec)
        else:
            y = at_least_single(convolve(x, weight, spec=self.spec))
        bias = getattr(self, f"bias_{branch}", None)
        if branch in self.norms:
            y = self._normed(y, self.norms[branch])
        return y if bias is None else y + self._along_channels(bias)

    def _along_channels(self, values: Tensor) -> Tensor:
        return values.reshape(-1, *[1] * self.spec.dims)

    def _recomputed(self, x: Tensor, norms: dict[str, BatchNorm]) -> Tensor:
        """The same by `products`, which computes the factors again in backward."""
        shifts: dict[str, Tensor | None] = {name: getattr(self, f"bias_{name}", None) for name in self.branches}
        added = next((name for name in ("linear", "square") if name in self.branches), None)
        if added is not None:
            shifts[added] = self.bias
        training, eps = False, 0.0
        for name, norm in norms.items():
            own = shifts[name]
            shifts[name] = norm.bias if own is None else norm.bias + own
            training, eps = norm.training, norm.eps
        running = {} if training else norms
        operands = Operands(
            self.bias if added is None else None,
            {name: self.weight_of(name) for name in self.branches},
            shifts,
            {name: norm.weight for name, norm in norms.items()},
            {name: norm.running_mean for name, norm in running.items()},
            {name: norm.running_var for name, norm in running.items()},
        )
        form = Form(self.branches, self.spec, self.memory_mode == "save_conv", bool(norms), training, eps)
        y, statistics = products(x, form, operands)
        for name, (mean, variance) in statistics.items():
            batch_norms.check_spread(y, norms[name], f"layer {self.spec.index}")
            batch_norms.remember(norms[name], mean, variance)
        return y

    def macs(self, positions: int) -> int:
        return len(self.branches) * super().macs(positions)

    def facts(self) -> LayerFacts:
        reason = f"{len(self.branches)} of them" if len(self.branches) > 1 else "one"
        if not isinstance(self.output_norm, nn.Identity):
            reason += ", then a batch norm"
        outputs = 0 if self.memory_mode == "recompute" else len(self.norms)
        if self.memory_mode == "keep" or (self.memory_mode == "save_conv" and not self.norms):
            outputs += len({"a", "b"} & set(self.branches))
        kept = f"x and {outputs} outputs" if outputs else "x only"
        if self.memory_mode == "keep" and "square" in self.branches:
            kept = f"x, x^2 and {outputs} outputs" if outputs else "x and x^2"
        reason += f"; {self.memory_mode}: keeps {kept}"
        return LayerFacts(self.kind, (), self.nonlinearity(), "convolution", reason)

    def _group_of(self, name: str) -> str:
        if "norm" in name.split(".")[0]:
            return "norm"
        if not name.startswith("weight"):
            return "bias"
        first_order = name == "weight_linear" or (name == "weight_a" and self.form == "t2_4")
        return "weight" if first_order else "quadratic"

    @torch.no_grad()
    def nonlinearity(self) -> float:
        """Share of the variance that the best linear fit leaves, weights as they are, x uniform on [-1, 1].

        Over the phases of a transposed layer variances are summed.

        With independent x of variance s and fourth moment m, x^T Q x has the variance
        sum_i Q_ii^2 (m - s^2) + s^2 sum_{i<j} (Q_ij + Q_ji)^2; here Q = a b^T + diag(square).
        """
        s, m = 1 / 3, 1 / 5
        zero = torch.zeros(1, dtype=torch.float64)
        rows = {branch: self._row(branch, m - s * s if branch == "square" else s) for branch in self.branches}
        a, linear, square = (rows.get(name, zero) for name in ("a", "linear", "square"))
        b = rows.get("b", a)
        product = a * b
        mixed = a.square().sum(-1) * b.square().sum(-1) + product.sum(-1) ** 2 - 2 * product.square().sum(-1)
        quadratic = (product + square).square().sum(-1) * (m - s * s) + s * s * mixed
        if self.form == "t2_4":
            linear = self.bias_b.cpu().double()[:, None] * a + self.bias_a.cpu().double()[:, None] * b
        total = quadratic + s * linear.square().sum(-1)
        return float((quadratic.sum() / total.sum()).clamp(0, 1)) if total.sum() > 0 else 0.0

    def _row(self, branch: str, variance: float) -> Tensor:  # [phases, O, C/G k^d]
        """The branch's weights, one row a neuron, as a fresh batch norm would scale them; 0 where a phase sees none."""
        row = self.weight_of(branch).detach().cpu().double().flatten(1)
        if branch in self.norms:
            average = variance / padding.phases(self.spec) * row.square().sum(1, keepdim=True)
            row = row / average.sqrt().clamp_min(1e-30)
        return row * padding.shares(self.spec).repeat(1, self.weight_shape[1]).unsqueeze(1)


@dataclass(frozen=True)
class Quadratic:
    """Factory of quadratic layers."""

    type: str = "quadralib"
    _: KW_ONLY
    activation: str | None = "tanh"
    norm: str = "none"
    """`batch`: a batch norm on each convolution, before products and sums."""
    output_norm: str = "auto"
    """`batch`: a batch norm before the activation of hidden layers; `auto`: for types without a first-order part.

    Twelve layers of pure products vanish without. The other types train better without, behind tanh; behind relu they
    overflow without, and with it in eval mode, where errors of scale are squared layer by layer.
    """
    init: str = "balanced"
    memory: str = "auto"
    """What is kept for backward besides x: `keep`, all factors; `save_conv`, the convolutions' results, less with
    `norm=batch`; `recompute`, nothing; `auto`, the least at about the time of `keep`: `save_conv` with `norm=batch`,
    which costs up to 1.15 x against 1.1-1.4 x of `recompute`, and else `recompute`, 0.8-1.3 x. torch.compile decides
    by itself: with `norm=batch` it keeps the convolutions, with every mode but `keep`."""

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise unknown("model.type", str(self.type), TYPES)
        activation.named(self.activation)
        for name, options in (("norm", NORMS), ("output_norm", ("auto", *NORMS)), ("init", INITIALISATIONS),
                              ("memory", MEMORIES)):  # fmt: skip
            if getattr(self, name) not in options:
                raise unknown(f"model.{name}", str(getattr(self, name)), options)
        if self.init == "relinear" and self.type not in FIRST_ORDER:
            raise ConfigError(
                f"model.init=relinear starts as a first-order neuron, which type={self.type} cannot be; "
                "use type=t2_4 or quadralib, or init=balanced"
            )
        if self.init == "relinear" and self.norm == "batch":
            raise ConfigError(
                "model.init=relinear starts one factor at 0, which model.norm=batch cannot scale; use norm=none"
            )

    @property
    def normalises_output(self) -> bool:
        return self.output_norm == "batch" or (self.output_norm == "auto" and self.type not in FIRST_ORDER)

    @property
    def memory_mode(self) -> str:
        if self.memory != "auto":
            return self.memory
        return "save_conv" if self.norm == "batch" else "recompute"

    def __call__(self, spec: LayerSpec) -> QuadraticLayer:
        padding.check(spec, f"quadratic {self.type}")
        return QuadraticLayer(spec, model=self)
