"""What a search varies, from overrides in Hydra's grammar."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from onn_runner.cli.search_space import Choice, Real, Space, Whole, space_of, text
from onn_runner.errors import ConfigError


def space(*overrides: str) -> Space:
    return space_of(OverridesParser.create().parse_overrides(list(overrides)))


@pytest.mark.parametrize(
    ("value", "dimension", "count"),
    [
        ("choice(1,2.5,x,[sine,exp])", Choice(("1", "2.5", "x", "[sine,exp]")), 4),
        ("1,2,1", Choice(("1", "2")), 2),
        ("[sine],[exp,mul]", Choice(("[sine]", "[exp,mul]")), 2),
        ("true,null,'a b'", Choice(("True", "null", "'a b'")), 3),
        ("shuffle(c,a,b)", Choice(("a", "b", "c")), 3),
        ("range(1,8,2)", Whole(1, 7, 2), 4),
        ("range(8)", Whole(0, 7), 8),
        ("range(5,1,-2)", Whole(3, 5, 2), 2),
        ("shuffle(range(1,5))", Whole(1, 4), 4),
        ("range(0,1,0.25)", Real(0.0, 0.75, 0.25), 4),
        ("tag(log,range(1,9))", Whole(1, 8, log=True), 8),
        ("interval(1,5)", Real(1.0, 5.0), None),
        ("int(interval(1,5))", Whole(1, 5), 5),
        ("tag(log,interval(1e-4,1))", Real(1e-4, 1.0, log=True), None),
        ("tag(log,int(interval(4,64)))", Whole(4, 64, log=True), 61),
        ("int(tag(log,interval(4,64)))", Whole(4, 64, log=True), 61),
    ],
)
def test_what_an_override_asks_for(value: str, dimension: object, count: int | None) -> None:
    found = space(f"a.b={value}", "seed=3")
    assert found.dimensions == {"a.b": dimension}
    assert found.constants == ("seed=3",)
    assert found.count == count


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("a=interval(5,1)", "the range is empty"),
        ("a=range(3,3)", "the range is empty"),
        ("a=interval(0,inf)", "finite numbers"),
        ("a=tag(log,interval(0,1))", "begins above 0, not at 0"),
        ("a=tag(log,int(interval(-1,3)))", "begins above 0, not at -1"),
        ("a=3", "nothing to search over"),
    ],
)
def test_what_makes_no_space(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space(override)


def test_a_space_without_a_continuous_range_has_so_many_points() -> None:
    assert space("a=1,2,3", "b=range(4)").count == 12
    assert space("a=1,2,3", "b=interval(0,1)").count is None


def test_overrides_of_a_point_keep_prefixes_and_the_order_as_typed() -> None:
    found = space("++operators.sine.k=interval(1,2)", "seed=1", "model.q=1,3")
    assert found.overrides({"model.q": "3", "++operators.sine.k": 1.23456789}) == (
        "seed=1",
        "++operators.sine.k=1.23457",
        "model.q=3",
    )


@given(st.floats(1e-12, 1e12))
def test_a_number_in_an_override_is_the_number_to_six_digits(value: float) -> None:
    # Half a unit in the sixth significant digit.
    assert float(text(value)) == pytest.approx(value, rel=5.1e-6)
    [back] = OverridesParser.create().parse_overrides([f"a={text(value)}"])
    assert back.value() == float(text(value))


def test_grids_hold_every_value() -> None:
    assert Whole(1, 7, 2).grid() == [1, 3, 5, 7]
    steps = Real(0.0, 0.75, 0.25).grid()
    assert steps == [0.0, 0.25, 0.5, 0.75]
    assert all(math.isclose(b - a, 0.25) for a, b in pairwise(steps))
