"""Quadratic neurons: which of the published types, how they start, what normalises them, what is kept for backward."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from onn_runner.errors import ConfigError, unknown
from onn_runner.model import activation, padding
from onn_runner.model.base import LayerSpec
from onn_runner.model.quadratic_layer import QuadraticLayer
from onn_runner.model.quadratic_types import BIASED_T4, TYPES, Formula, names_with

__all__ = ["TYPES", "Quadratic", "QuadraticLayer"]

INITIALISATIONS = ("balanced", "relinear")
NORMS = ("none", "batch")
MEMORIES = ("auto", "keep", "save_conv", "recompute")
SIGNS = ("fixed", "learned")


@dataclass(frozen=True)
class Quadratic:
    """Factory of quadratic layers."""

    type: str = "quadralib"
    _: KW_ONLY
    activation: str | None = "tanh"
    rank: int = 2
    """Of t1_low_rank: how many squares; an even number can start as a first-order neuron."""
    signs: str = "fixed"
    """Of t1_low_rank's squares: `fixed`, +1 and -1 by turns; `learned`, from there on, one per neuron and square."""
    factor_biases: bool = False
    """Of t4: (Wa x + a)(Wb x + b), b starting at 1; a product without is blind to the sign of x."""
    norm: str = "none"
    """`batch`: a batch norm on each convolution, and on x^T W x, before products and sums."""
    output_norm: str = "auto"
    """`batch`: a batch norm before the activation of hidden layers; `auto`: for types without a first-order part.

    Twelve layers of pure products vanish without. The other types train better without, behind tanh; behind relu they
    overflow without, and with it in eval mode, where errors of scale are squared layer by layer.
    """
    init: str = "balanced"
    memory: str = "auto"
    """What is kept for backward besides x: `keep`, all factors; `save_conv`, the convolutions' results, less with
    `norm=batch`; `recompute`, nothing, not even what a norm behind the neuron reads, unless there are norms inside it,
    for up to 1.2 x the time; `auto`, the least at about the time of `keep`: `save_conv` with `norm=batch`,
    which costs up to 1.15 x against 1.1-1.4 x of `recompute`, and else `recompute`, 0.8-1.3 x. torch.compile decides
    by itself: with `norm=batch` it keeps the convolutions, with every mode but `keep`."""

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise unknown("model.type", str(self.type), TYPES)
        activation.named(self.activation)
        for name, options in (("norm", NORMS), ("output_norm", ("auto", *NORMS)), ("init", INITIALISATIONS),
                              ("memory", MEMORIES), ("signs", SIGNS)):  # fmt: skip
            if getattr(self, name) not in options:
                raise unknown(f"model.{name}", str(getattr(self, name)), options)
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ConfigError(f"model.rank (={self.rank}) must be a positive whole number")
        if not isinstance(self.factor_biases, bool):
            raise ConfigError(f"model.factor_biases (={self.factor_biases}) must be true or false")
        self._check_belongs()
        if self.init == "relinear":
            self._check_relinear()

    def _check_belongs(self) -> None:
        """Raises ConfigError for a value that the type would leave unused."""
        for name, default in (("rank", 2), ("signs", "fixed")):
            if getattr(self, name) != default and not TYPES[self.type].ranked:
                raise ConfigError(
                    f"model.{name} (={getattr(self, name)}) is of type=t1_low_rank, and type={self.type} has none; "
                    f"leave it out, or use type=t1_low_rank"
                )
        if self.factor_biases and self.type not in ("t4", "t2_4"):
            raise ConfigError(
                f"model.factor_biases=true is of type=t4 (t2_4 always has them), and type={self.type} has none; leave "
                "it out, or use type=t4"
            )

    def _check_relinear(self) -> None:
        if self.formula.first_order is None:
            raise ConfigError(
                f"model.init=relinear starts as a first-order neuron, which type={self.type} cannot be; "
                f"use type={names_with('first_order')}, type=t4 with factor_biases=true, or init=balanced"
            )
        if self.norm == "batch":
            raise ConfigError(
                "model.init=relinear starts one factor or term at 0, which model.norm=batch cannot scale; use norm=none"
            )
        if self.formula.ranked and self.rank % 2 and self.signs == "fixed":
            raise ConfigError(
                f"model.init=relinear lets squares of opposite signs cancel, which model.rank (={self.rank}) of them "
                "with fixed signs cannot; use an even rank, signs=learned or init=balanced"
            )

    @property
    def formula(self) -> Formula:
        return BIASED_T4 if self.type == "t4" and self.factor_biases else TYPES[self.type]

    @property
    def kind(self) -> str:
        """What a layer calls itself."""
        words = [f"quadratic {self.type}"]
        words += [f"r={self.rank}"] if self.formula.ranked else []
        words += ["with learned signs"] if self.learns_signs else []
        words += ["with factor biases"] if self.formula is BIASED_T4 else []
        return " ".join(words)

    @property
    def learns_signs(self) -> bool:
        return self.formula.ranked and self.signs == "learned"

    @property
    def normalises_output(self) -> bool:
        return self.output_norm == "batch" or (self.output_norm == "auto" and self.formula.first_order is None)

    @property
    def memory_mode(self) -> str:
        if self.memory != "auto":
            return self.memory
        return "save_conv" if self.norm == "batch" else "recompute"

    def __call__(self, spec: LayerSpec) -> QuadraticLayer:
        padding.check(spec, self.kind)
        if spec.transposed and "matrix" in self.formula.terms:
            raise ConfigError(
                f"layer {spec.index} ({self.kind}): x^T W x is over patches of the input, and each position of a "
                "transposed layer sees another part of a patch, so that it has no transposed form; use "
                "type=t1_low_rank, or a network that upsamples without transposed layers"
            )
        return QuadraticLayer(spec, model=self)
