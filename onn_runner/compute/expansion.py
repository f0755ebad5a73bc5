"""psi(w, x) ~ psi(w, 0) + sum_r a_r(w) E_r(x): which terms each operator has, and which convolutions they make.

Where psi is w g(x) there is nothing to expand: the one term is g(x) itself and its coefficient w. Where the members E_r
of a basis are more than the weights at hand need, fewer mixtures of them serve.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from onn_runner.compute.base import Block
from onn_runner.compute.basis import Interval, Kind, degree, signs

Form = Literal["odd", "even", "line", "product"]
"""psi - psi(w, 0) odd or even in x, neither of them, or psi = w g(x)."""


@dataclass(frozen=True)
class Series:
    """How one operator is expanded: its form, and how many terms it takes."""

    form: Form
    count: int

    @property
    def kind(self) -> Kind:
        """The basis of a series that is not a product."""
        assert self.form != "product"
        return self.form

    def longer(self, factor: float) -> Series:
        """With more terms; a product has its one."""
        return self if self.form == "product" else Series(self.form, round(self.count * factor + 0.49))


@dataclass(frozen=True)
class Mix:
    """Fewer functions b = rows E in place of the members E of one basis, for the weights within a range.

    A series with coefficients a to the members has the coefficients rows diag(scale) a to them. The first row matters
    least.
    """

    form: Kind
    rows: tuple[tuple[float, ...], ...]  # [R, members]

    @property
    def members(self) -> int:
        return len(self.rows[0])


@dataclass(frozen=True)
class Expansion:
    """The terms of a layer: one interval, one series for each block."""

    interval: Interval
    series: tuple[Series, ...]
    centred: bool = False
    """Sum deviations of the members from their means: where neurons cancel the large common part of their inputs,
    the rounding of that part would be what is left of them."""
    mixes: tuple[Mix, ...] = ()
    """For which bases; others have none."""


@dataclass(frozen=True)
class Bank:
    """One convolution over the members of one basis."""

    form: Form
    members: int
    """Of the basis."""
    blocks: tuple[int, ...]
    """Whose neurons are its outputs."""
    shares: tuple[int, ...]
    """How many of the members each of those blocks reads."""
    mix: Mix | None = None

    @property
    def kind(self) -> Kind:
        """The basis of a bank that is not a product's."""
        assert self.form != "product"
        return self.form

    @property
    def count(self) -> int:
        """How many channels stand for one of the input."""
        return self.members if self.mix is None else len(self.mix.rows)


@lru_cache(maxsize=256)
def banks(expansion: Expansion, groups: int) -> tuple[Bank, ...]:
    """The convolutions of a layer: one if a basis serves all neurons, else an odd and an even one; one per product.

    With groups every bank has all neurons, since a convolution wants as many of them in each group.
    """
    series = expansion.series
    forms = {s.form for s in series} - {"product"}
    kinds: tuple[Kind, ...] = ("odd", "even")
    if len(forms) <= 1:
        kinds = tuple(s.kind for s in series if s.form != "product")[:1]
    wanted: list[tuple[Form, list[int]]] = [(kind, [_share(s, kind) for s in series]) for kind in kinds]
    for index, s in enumerate(series):
        if s.form == "product":
            wanted.append(("product", [int(index == other) for other in range(len(series))]))
    found = []
    mixes: dict[Form, Mix] = {mix.form: mix for mix in expansion.mixes}
    for form, shares in wanted:
        users = [index for index, share in enumerate(shares) if share or groups > 1]
        if max(shares):
            used = tuple(shares[index] for index in users)
            found.append(Bank(form, max(shares), tuple(users), used, mixes.get(form)))
    return tuple(found)


@lru_cache(maxsize=256)
def matrices(mix: Mix, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """[R, members] each: from members to the functions that stand for them, and from coefficients to theirs."""
    with torch.inference_mode(False):
        rows = torch.tensor(mix.rows, dtype=torch.float64)
        return rows.to(device, dtype), (rows * emphasis(mix.form, mix.members).square()).to(device, dtype)


def emphasis(kind: Kind, count: int) -> Tensor:
    """What members weigh as terms are merged, [members] in float64: slopes in x grow with the degree."""
    return torch.tensor([1 + 0.3 * degree(kind, index) for index in range(count)], dtype=torch.float64)


def _share(series: Series, kind: Kind) -> int:
    """How many of a series' terms belong to that basis."""
    if series.form == kind:
        return series.count
    if series.form != "line":
        return 0
    return (series.count + 1) // 2 if kind == "odd" else series.count // 2


@dataclass(frozen=True)
class Rows:
    """Which of a series' terms a bank holds, and the sign that the bank's members have against them."""

    take: slice
    sign: tuple[float, ...]

    def signed(self, values: Tensor) -> Tensor:
        """`values` [R, ...] times the signs."""
        if min(self.sign) > 0:
            return values
        sign = torch.tensor(self.sign, dtype=values.dtype, device=values.device)
        return values * sign.view(-1, *(1,) * (values.dim() - 1))


@lru_cache(maxsize=256)
def rows(series: Series, form: Form) -> Rows:
    """The terms of a series, in ascending degree, that a bank of that form holds."""
    if series.form == form or form == "product":
        return Rows(slice(0, series.count), (1.0,) * series.count)
    assert series.form == "line"
    take = slice(0 if form == "odd" else 1, series.count, 2)
    own = signs("line", series.count)[take]
    return Rows(take, tuple(a * b for a, b in zip(own, signs(form, len(own)), strict=True)))


def factor(block: Block, x: Tensor) -> Tensor:
    """g(x) of psi = w g(x), in the precision of x."""
    return block.nodal(x.new_ones(()), x).to(x.dtype).expand_as(x)
