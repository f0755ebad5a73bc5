"""Paired comparisons with a baseline: which numbers are paired, what is averaged first, and what is not compared."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from study_examples import GROUPS, NAMES, PATCHES, split, write_run, write_sweep

from onn_runner import storage
from onn_runner.errors import ConfigError
from onn_runner.report import results as reporting
from onn_runner.study.comparing import BY_FOLD, BY_ITEM, CORRECTED_T, baseline_of, comparisons
from onn_runner.study.gathering import gather
from onn_runner.study.records import Comparison, Study
from onn_runner.study.scores import item_scores

EXACT = 1e-12
"""Double precision, sums of some dozen numbers."""


def compared(study: Study, baseline: str | None = None) -> dict[tuple[str, str, str], Comparison]:
    return {(one.label, one.key, one.test): one for one in comparisons(study, baseline_of(study, baseline))}


def table(study: Study, label: str) -> np.ndarray:
    """[seed, item] PSNR of every item, in the order of the items."""
    method = study.method(label)
    rows = []
    for run in method.runs:
        scores = {name: value for fold in item_scores(run, method).values() for name, value in fold["test/psnr"]}
        rows.append([scores[name] for name in NAMES])
    return np.array(rows)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return gather([write_sweep(tmp_path_factory.mktemp("study"), ("conv", "onn", "self_onn", "quadratic"), (0, 1, 2))])


def test_by_item_photographs_are_the_numbers_after_seeds_and_patches_were_averaged(study: Study) -> None:
    differences = table(study, "onn sine").mean(0) - table(study, "conv").mean(0)
    by_group = differences.reshape(len(GROUPS), PATCHES).mean(1)
    found = compared(study)["onn sine", "test/psnr", BY_ITEM]
    assert (found.unit, found.n, found.baseline) == ("photographs", 6, "conv")
    assert found.mean == pytest.approx(by_group.mean(), abs=EXACT)
    low, high = stats.t.interval(0.95, 5, loc=by_group.mean(), scale=stats.sem(by_group))
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert found.p == stats.wilcoxon(by_group).pvalue
    assert found.attainable == 2 / 2**6
    assert (found.better, found.worse) == ((by_group > 0).sum(), (by_group < 0).sum())


def test_by_fold_the_variance_is_corrected(study: Study) -> None:
    differences = table(study, "onn sine").mean(0) - table(study, "conv").mean(0)
    by_fold = np.array([differences[list(fold.test)].mean() for fold in split()])
    found = compared(study)["onn sine", "test/psnr", CORRECTED_T]
    # Each fold tests and trains on two photographs of six and the folds' training sets do not overlap.
    assert found.p == pytest.approx(stats.ttest_1samp(by_fold, 0).pvalue, abs=1e-9)
    assert (found.n, found.unit, found.attainable) == (3, "folds", None)
    rank = compared(study)["onn sine", "test/psnr", BY_FOLD]
    assert (rank.p, rank.attainable, rank.low) == (stats.wilcoxon(by_fold).pvalue, 0.25, None)


def test_overlapping_training_sets_widen_the_test_by_fold(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path, ("conv", "onn"), (0,), folds=6)])
    differences = (table(study, "onn sine") - table(study, "conv"))[0]
    by_fold = np.array([differences[list(fold.test)].mean() for fold in split(6)])
    # Four test items to sixteen training items: (1/6 + 1/4) of the variance instead of 1/6.
    statistic = by_fold.mean() / (by_fold.std(ddof=1) * np.sqrt(1 / 6 + 1 / 4))
    found = compared(study)["onn sine", "test/psnr", CORRECTED_T]
    assert found.p == pytest.approx(2 * stats.t.sf(abs(statistic), 5), abs=1e-9)
    assert found.low is not None
    assert found.mean is not None
    assert found.mean - found.low == pytest.approx(
        stats.t.ppf(0.975, 5) * by_fold.std(ddof=1) * np.sqrt(1 / 6 + 1 / 4), abs=1e-9
    )


def test_holm_adjusts_for_all_methods_by_score_and_test(study: Study) -> None:
    found = compared(study)
    labels = ("onn sine", "self_onn", "quadratic")
    for key in study.metrics:
        for test in (BY_ITEM, CORRECTED_T, BY_FOLD):
            raw, adjusted = ([getattr(found[label, key, test], name) for label in labels] for name in ("p", "p_holm"))
            assert min(adjusted) == pytest.approx(min(1.0, 3 * min(raw)), abs=EXACT)
    assert found["onn sine", "test/psnr", BY_FOLD].p_holm == 0.75
    assert {one.label for one in found.values()} == set(labels)


def test_the_difference_is_that_of_the_means_in_the_table(study: Study) -> None:
    from onn_runner.study.statistics import summary

    for key in study.metrics:
        ours, theirs = (summary(study.method(label), key).mean for label in ("quadratic", "conv"))
        assert ours is not None
        assert theirs is not None
        assert compared(study)["quadratic", key, CORRECTED_T].mean == pytest.approx(ours - theirs, abs=1e-9)


def test_another_baseline_turns_the_signs(study: Study) -> None:
    there, back = (
        compared(study, "onn")["conv", "test/psnr", BY_ITEM],
        compared(study)["onn sine", "test/psnr", BY_ITEM],
    )
    assert there.mean == pytest.approx(-(back.mean or 0), abs=EXACT)
    assert there.p == back.p


@pytest.mark.parametrize("asked", ["onn sine", "sine", "SINE", "onn"])
def test_a_baseline_is_found_by_a_part_of_its_label(study: Study, asked: str) -> None:
    assert baseline_of(study, asked).label == "onn sine"


def test_a_baseline_that_is_not_there_or_not_one_is_refused_with_the_labels(study: Study) -> None:
    with pytest.raises(ConfigError, match=r"unknown baseline 'cnv'. Did you mean conv\?.*quadratic"):
        baseline_of(study, "cnv")
    with pytest.raises(ConfigError, match="nn fits several methods: onn sine; self_onn"):
        baseline_of(study, "nn")


def test_the_default_baseline_is_the_convolution_then_a_twin_then_the_first(tmp_path: Path) -> None:
    for name, models, twin in (
        ("a", ("onn", "conv"), None),
        ("b", ("onn",), "conv"),
        ("c", ("onn", "quadratic"), None),
    ):
        write_sweep(tmp_path / name, models, (0,), twin=twin)
    chosen = [baseline_of(gather([tmp_path / name]), None).label for name in "abc"]
    assert chosen == ["conv", "conv (twin)", "onn sine"]


def test_twins_and_untrained_baselines_are_paired_from_their_own_tables(tmp_path: Path) -> None:
    study = gather([write_run(tmp_path / "run", "onn", twin="conv")])
    against_twin = compared(study)["onn sine", "test/psnr", BY_ITEM]
    expected = table(study, "onn sine").mean(0) - table(study, "conv (twin)").mean(0)
    assert against_twin.mean == pytest.approx(expected.mean(), abs=EXACT)
    against_none = compared(study, "untouched")["onn sine", "test/psnr", BY_ITEM]
    expected = table(study, "onn sine").mean(0) - table(study, "untouched input").mean(0)
    assert against_none.mean == pytest.approx(expected.mean(), abs=EXACT)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fingerprint": "other", "data__sigma": 50}, "other data"),
        ({"folds": 6}, "other folds"),
        ({"fingerprint": None}, "data without a fingerprint"),
    ],
)
def test_other_data_or_folds_are_not_paired(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    write_run(tmp_path / "conv")
    write_run(tmp_path / "onn", "onn", **changes)
    found = comparisons(study := gather([tmp_path]), baseline_of(study, None))
    assert {one.not_paired for one in found} == {reason}
    assert {(one.p, one.mean, one.n) for one in found} == {(None, None, 0)}


@pytest.mark.parametrize("content", ["", "fold,start\n", "x" * 50, 'fold,start,item,split,metric,value\n0,0,"a', None])
def test_a_damaged_or_missing_table_is_the_reason(tmp_path: Path, content: str | None) -> None:
    study = gather([write_sweep(tmp_path, ("conv", "onn", "quadratic"), (0,))])
    path = study.method("onn sine").runs[0].folder / "test_items.csv"
    path.unlink()
    if content is not None:
        path.write_text(content)
    found = compared(study)
    assert str(path) in found["onn sine", "test/psnr", BY_ITEM].not_paired
    # What is not tested is not counted in Holm's family.
    alone = found["quadratic", "test/psnr", BY_ITEM]
    assert alone.p_holm == alone.p


def test_a_torn_line_is_the_reason(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path, ("conv", "onn"), (0,))])
    path = study.method("conv").runs[0].folder / "test_items.csv"
    path.write_text(path.read_text()[:-30])
    assert "is damaged" in compared(study)["onn sine", "test/psnr", BY_FOLD].not_paired


def test_other_items_in_a_fold_are_the_reason(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path, ("conv", "onn"), (0, 1))])
    first, second = (run.folder / "test_items.csv" for run in study.method("onn sine").runs)
    second.write_text(second.read_text().replace("brick[0,0]", "brick[9,9]"))
    assert "other items in fold 0" in compared(study)["onn sine", "test/psnr", BY_ITEM].not_paired
    shutil.copy(second, first)
    assert compared(study)["onn sine", "test/psnr", BY_ITEM].not_paired == "other items in fold 0"


def test_items_without_a_finite_score_are_left_out_and_counted(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path, ("conv", "onn"), (0,))])
    path = study.method("conv").runs[0].folder / "test_items.csv"
    with path.open() as handle:
        lines = handle.readlines()
    lines[1] = lines[1].rpartition(",")[0] + ",\n"
    path.write_text("".join(lines))
    found = compared(study)["onn sine", "test/psnr", BY_ITEM]
    assert (found.left_out, found.n) == (1, 6)


def test_runs_of_earlier_versions_are_grouped_by_the_names_of_their_patches(tmp_path: Path) -> None:
    for name, stored in (("old", False), ("new", True)):
        write_sweep(tmp_path / name, ("conv", "onn"), (0,), stored_groups=stored)
    old, new = (compared(gather([tmp_path / name]))["onn sine", "test/psnr", BY_ITEM] for name in ("old", "new"))
    assert old == new


def test_items_whose_groups_nobody_knows_are_not_tested_by_item(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path, ("conv", "onn"), (0,), stored_groups=False)])
    for method in study.methods:
        for run in method.runs:
            results = json.loads((run.folder / "results.json").read_text())
            results["comparison"]["unit"] = "groups"
            storage.write_json(run.folder / "results.json", results)
    found = compared(gather([tmp_path]))
    assert found["onn sine", "test/psnr", BY_ITEM].not_paired == "its folder does not tell which items belong together"
    assert found["onn sine", "test/psnr", CORRECTED_T].p is not None


def test_a_score_that_no_item_has_is_compared_by_fold(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("conv", "onn"), (0,))
    for model, values in (("conv", (0.5, 0.6, 0.7)), ("onn", (0.6, 0.8, 0.75))):
        path = tmp_path / f"model-{model}_seed-0" / "results.json"
        results = json.loads(path.read_text())
        results["higher_is_better"]["f1"] = True
        for fold, value in zip(results["folds"], values, strict=True):
            fold["starts"][0]["test"]["test/f1"] = value
        results["cv"] = reporting.cross_validated(results["folds"])
        storage.write_json(path, results)
    found = compared(gather([tmp_path]))
    assert ("onn sine", "test/f1", BY_ITEM) not in found
    one = found["onn sine", "test/f1", CORRECTED_T]
    assert (one.n, one.better) == (3, 3)
    assert one.mean == pytest.approx(0.35 / 3, abs=EXACT)


def test_equal_scores_are_no_difference(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "conv")
    write_run(tmp_path / "b", "onn")
    shutil.copy(tmp_path / "a" / "test_items.csv", tmp_path / "b" / "test_items.csv")
    for one in compared(gather([tmp_path])).values():
        assert (one.mean, one.p, one.p_holm) == (0.0, 1.0, 1.0)
