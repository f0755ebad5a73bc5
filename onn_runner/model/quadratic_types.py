"""What the pre-activation of each published type of quadratic neuron sums: products, squares and convolutions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Formula:
    """A sum of a product of factors, signed squares, convolutions of x and x^2, and a quadratic form over patches."""

    text: str
    terms: tuple[str, ...]
    """Of `a` and `b` (convolutions that are multiplied; `a` alone is squared), `linear`, `square` (of x^2) and `matrix`
    (x^T W x over patches), in this order."""
    first_order: str | None = None
    """The term that is a convolution where the others vanish; None where none is."""
    factor_biases: bool = False
    """(A x + a)(B x + b) with parameters a and b, of which b starts at 1."""
    unit: bool = False
    """(A x)(B x + 1)."""
    ranked: bool = False
    """`a` stands for several convolutions `a1`, `a2`, ..., whose squares are added with signs."""

    @property
    def multiplies(self) -> bool:
        return "b" in self.terms

    @property
    def squares(self) -> bool:
        """Whether convolutions are squared."""
        return "a" in self.terms and "b" not in self.terms


TYPES: dict[str, Formula] = {
    "t1": Formula("x^T W x + w x", ("linear", "matrix"), "linear"),
    "t1_low_rank": Formula("s1 (A1 x)^2 + ... + sr (Ar x)^2 + w x", ("a", "linear"), "linear", ranked=True),
    "t2": Formula("W x^2", ("square",)),
    "t3": Formula("(W x)^2", ("a",)),
    "t4": Formula("(Wa x)(Wb x)", ("a", "b")),
    "t1_2": Formula("x^T W x + Wb x^2", ("square", "matrix")),
    "t2_4": Formula("(Wr x + br)(Wg x + bg) + Wb x^2", ("a", "b", "square"), "a", factor_biases=True),
    "quadralib": Formula("(Wa x)(Wb x) + Wc x", ("a", "b", "linear"), "linear"),
    "compact": Formula("W x + Wb x^2", ("linear", "square"), "linear"),
    "qres": Formula("(W1 x)(W2 x) + W1 x", ("a", "b"), "a", unit=True),
}
"""All of them add a bias.

Sources: t2_4, Fan et al., 2018, a = Wr, b = Wg; quadralib, Xu et al., QuadraLib, 2022; qres, Bu and Karpatne, 2021.
"""

BIASED_T4 = Formula("(Wa x + a)(Wb x + b)", ("a", "b"), "a", factor_biases=True)
"""t4 with `factor_biases`."""


def branches(formula: Formula, rank: int) -> tuple[str, ...]:
    """The terms, each convolution by itself."""
    names: list[str] = []
    for term in formula.terms:
        names += [f"a{j}" for j in range(1, rank + 1)] if term == "a" and formula.ranked else [term]
    return tuple(names)


def term_of(branch: str) -> str:
    """`a` of `a2`."""
    return "a" if is_factor(branch) and branch != "b" else branch


def is_factor(branch: str) -> bool:
    """Whether the convolution's result is multiplied, by another or by itself."""
    return branch[0] in "ab"


def squared(names: Iterable[str]) -> tuple[str, ...]:
    """The convolutions that are multiplied by themselves."""
    names = tuple(names)
    return () if "b" in names else tuple(name for name in names if is_factor(name))


def names_with(condition: str) -> str:
    """The types whose formula has that property, for messages."""
    return ", ".join(name for name, formula in TYPES.items() if getattr(formula, condition))
