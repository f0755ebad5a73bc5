"""Tables of a fold become paired differences by group; what does not pair is an error with the remedy."""

import math

import pytest

from onn_runner import comparison
from onn_runner.errors import RunError
from onn_runner.partition.base import Fold

HEADING = "fold,start,item,split,metric,value\n"


class Whole(list):
    def __init__(self, names):
        super().__init__(names)
        self.names = list(names)


class Source:
    """Items a1 a2 b1 c1 of groups a, b, c; group c has two whole originals."""

    groups = ("a", "a", "b", "c")
    names = ("a1", "a2", "b1", "c1")

    def __init__(self, wholes=None):
        self.wholes = {"a": ["a"], "b": ["b"], "c": ["c left", "c right"]} if wholes is None else wholes

    def whole(self, groups):
        return Whole([name for group in groups for name in self.wholes[group]]) if self.wholes else None


FOLD = Fold(0, (0, 1), (), (2, 3))


@pytest.fixture
def tables(tmp_path):
    mine = [("b1", "test", 3.0), ("c1", "test", ""), ("b", "photo", 1.0), ("c left", "photo", 2.0)]
    mine += [("c right", "photo", 4.0), ("a1", "fitted", 5.0), ("a2", "fitted", "inf")]
    ours, twin = tmp_path / "test_items.csv", tmp_path / "twin.csv"
    ours.write_text(HEADING + "".join(f"0,0,{item},{split},psnr,{value}\n" for item, split, value in mine))
    twin.write_text(HEADING + "".join(f"0,1,{item},{split},psnr,1.0\n" for item, split, _ in mine))
    others = tmp_path / "baseline_items.csv"
    others.write_text(
        "fold,baseline,item,split,metric,value\n0,blur,b1,test,psnr,2.5\n0,blur,c1,test,psnr,1.0\n"
        "0,none,b1,test,psnr,0.0\n0,none,c1,test,psnr,0.0\n"
    )
    return ours, twin, others


def test_every_split_is_paired_by_its_groups(tables):
    ours, twin, others = tables
    found = comparison.fold_differences(ours, {"conv": twin, "blur": others, "none": others}, FOLD, Source())
    assert found["conv"]["test/psnr"].groups == {"b": (2.0, 1)}
    assert found["conv"]["test/psnr"].left_out == 1
    assert found["conv"]["photo/psnr"].groups == {"b": (0.0, 1), "c": (4.0, 2)}
    assert found["conv"]["fitted/psnr"].groups == {"a": (4.0, 1)}
    assert found["blur"]["test/psnr"].groups == {"b": (0.5, 1)}
    assert found["none"]["test/psnr"].groups == {"b": (3.0, 1)}
    assert set(found["blur"]) == {"test/psnr"}


def test_tables_of_other_items_do_not_pair(tables):
    ours, twin, _ = tables
    twin.write_text(twin.read_text().replace("b1", "b2"))
    with pytest.raises(RunError, match=r"twin\.csv does not hold the items .* for test/psnr: remove both"):
        comparison.fold_differences(ours, {"conv": twin}, FOLD, Source())


@pytest.mark.parametrize("damage", ["fold,item\n0,a\n", HEADING + "0,0,b1,test,psnr,what\n"])
def test_a_damaged_table_is_named(tables, damage):
    ours, twin, _ = tables
    twin.write_text(damage)
    with pytest.raises(RunError, match=r"twin\.csv cannot be read .* remove it together with status\.json"):
        comparison.fold_differences(ours, {"conv": twin}, FOLD, Source())


def test_a_removed_table_is_named(tables):
    ours, twin, _ = tables
    twin.unlink()
    with pytest.raises(RunError, match=r"twin\.csv is gone: remove status\.json beside it"):
        comparison.fold_differences(ours, {"conv": twin}, FOLD, Source())


def test_folds_that_share_training_items_are_put_together_with_the_share_of_test_items(tables):
    ours, twin, _ = tables
    scored = comparison.fold_differences(ours, {"conv": twin}, FOLD, Source())
    folds = [FOLD, Fold(1, (1, 2), (), (0,))]
    found = comparison.compared(folds, {0: scored}, higher={"psnr": True}, source=Source())
    assert found["unit"] == "groups"
    test = found["to"]["conv"]["test/psnr"]
    assert test["folds"]["ratio"] == (2 / 2 + 1 / 2) / 2
    assert (test["left_out"], test["groups"]["better"], test["groups"]["n"]) == (1, 1, 1)
    assert found["to"]["conv"]["fitted/psnr"]["folds"]["ratio"] is None


def test_folds_that_share_no_training_item_have_a_plain_interval(tables):
    ours, twin, _ = tables
    scored = comparison.fold_differences(ours, {"conv": twin}, FOLD, Source())
    folds = [FOLD, Fold(1, (2, 3), (), (0, 1))]
    found = comparison.compared(folds, {0: scored}, higher={"psnr": True}, source=Source())["to"]["conv"]
    assert [found[key]["folds"]["ratio"] for key in ("test/psnr", "photo/psnr", "fitted/psnr")] == [0.0, 0.0, 0.0]


def test_a_fold_without_a_twins_score_is_left_out(tables):
    ours, twin, others = tables
    both = comparison.fold_differences(ours, {"conv": twin, "blur": others}, FOLD, Source())
    one = comparison.fold_differences(ours, {"blur": others}, FOLD, Source())
    found = comparison.compared([FOLD], {0: both, 1: one}, higher={}, source=Source())["to"]
    assert found["conv"]["test/psnr"]["folds"]["n"] == 1
    assert found["blur"]["test/psnr"]["folds"]["n"] == 2
    assert found["blur"]["test/psnr"]["groups"]["better"] is None
    assert comparison.compared([FOLD], {}, higher={}, source=Source()) == {"unit": "groups", "to": {}}


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        (Source({"a": ["x"], "b": ["y"], "c": ["z"]}), "photographs"),
        (Source(), "groups"),
        (Source({}), "groups"),
    ],
)
def test_what_a_group_is_called(source, unit):
    assert comparison.unit(source) == unit


def test_items_without_groups_are_items():
    source = Source({})
    source.groups = ("0", "1", "2", "3")
    assert comparison.unit(source) == "items"


def test_an_empty_value_is_not_a_number(tables):
    (_, value) = comparison.read_items(tables[0])["test/psnr"][1]
    assert math.isnan(value)


def test_a_split_is_told_which_items_belong_together():
    told = comparison.grouping(Source())
    assert told == {"groups": ["a", "a", "b", "c"], "originals": {"c left": "c", "c right": "c"}}


def test_items_of_their_own_need_no_groups():
    source = Source(wholes={})
    source.groups = source.names
    assert comparison.grouping(source) == {"groups": None, "originals": {}}
