"""Which items are looked at: worst, median and best by the scores in test_items.csv."""

import pytest

from onn_runner.metric.image import Mse, Psnr
from onn_runner.report.ranking import chosen, ranking, read_items


class Undirected(Psnr):
    higher_is_better = None


def rows(*scores):
    return [(f"item{place}", {} if score is None else {"psnr": score}) for place, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], []),
        ([None], []),
        ([7.0], [("the only one", 0)]),
        ([7.0, 5.0], [("worst", 1), ("best", 0)]),
        ([7.0, 5.0, None, 6.0], [("worst", 1), ("median", 3), ("best", 0)]),
        ([4.0, 1.0, 3.0, 2.0], [("worst", 1), ("median", 3), ("median", 2), ("best", 0)]),
        ([1.0, 2.0, 3.0, 4.0, float("inf")], [("worst", 0), ("median", 1), ("median", 2), ("best", 4)]),
    ],
)
def test_the_ends_and_the_middle_are_chosen(scores, expected):
    assert [(item.rank, item.place) for item in chosen(rows(*scores), "psnr", higher=True)] == expected


def test_where_less_is_better_the_worst_is_the_largest():
    assert [item.place for item in chosen(rows(1.0, 3.0, 2.0), "psnr", higher=False)] == [1, 2, 0]


def test_items_are_ordered_by_the_monitored_metric_or_the_first_that_has_scores():
    metrics = {"mse": Mse(), "psnr": Psnr()}
    both = [("a", {"mse": 1.0, "psnr": 2.0})]
    assert ranking(both, "psnr", metrics) == "psnr"
    assert ranking(both, "loss", metrics) == "mse"
    assert ranking(rows(1.0), "mse", metrics) == "psnr"
    assert ranking([], "psnr", metrics) is None
    assert ranking(rows(1.0), "psnr", {"psnr": Undirected()}) is None


def test_items_of_one_name_stay_apart_and_undefined_scores_are_left_out(tmp_path):
    lines = ["fold,start,item,split,metric,value"]
    lines += ['0,0,"a, b",test,psnr,20.5', '0,0,"a, b",test,psnr,21.5', '0,0,"a, b",test,snr,', '0,0,"a, b",test,snr,3']
    lines += ["0,0,whole,photo,psnr,inf"]
    (tmp_path / "test_items.csv").write_text("\n".join(lines) + "\n")
    tables = read_items(tmp_path / "test_items.csv")
    assert tables["test"] == [("a, b", {"psnr": 20.5}), ("a, b", {"psnr": 21.5, "snr": 3.0})]
    assert tables["photo"] == [("whole", {"psnr": float("inf")})]
