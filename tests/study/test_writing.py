"""A report's files: what each holds, and that text of folders stays text in a spreadsheet, in Markdown and in LaTeX."""

import csv
import dataclasses
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from study_examples import write_run, write_sweep, write_troubled

from onn_runner.cli.report import chosen, found
from onn_runner.errors import ConfigError
from onn_runner.report.table import Table
from onn_runner.study import latex, tables
from onn_runner.study.gathering import gather
from onn_runner.study.records import Study
from onn_runner.study.writing import Findings, as_csv, latex_tables, markdown_text, method_rows, write

HOSTILE = (
    r"a_b & 50% of $x^2$ #1 {~} \input{/etc/passwd} <b>bold</b> |x| `ls` [l](javascript:alert) ± ↑ é ö 中 Ω ﬁ -5 -- ^^M"
)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    folder = tmp_path_factory.mktemp("study")
    write_troubled(folder / "troubled")
    write_sweep(folder / "more", ("quadratic",), (0, 1), twin="conv")
    return found(gather([folder]), None)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_the_csv_files_hold_every_number(findings: Findings, tmp_path: Path) -> None:
    write(tmp_path, findings)
    by_method = {row["method"]: row for row in rows_of(tmp_path / "table.csv")}
    one = next(s for s in findings.summaries if (s.label, s.key) == ("quadratic", "test/psnr"))
    assert float(by_method["quadratic"]["test/psnr mean"]) == one.mean
    assert float(by_method["quadratic"]["test/psnr low"]) == one.low
    assert by_method["quadratic"]["seeds"] == "0 1"
    assert by_method["conv"]["left_out"] == "1"
    assert by_method["self_onn"]["kind"] == "no whole run"
    assert by_method["self_onn"]["test/psnr mean"] == ""
    scores = [row for row in rows_of(tmp_path / "scores.csv") if row["method"] == "quadratic"]
    assert [float(r["value"]) for r in scores if (r["metric"], r["split"], r["seed"]) == ("psnr", "test", "0")] == list(
        one.by_seed[0]
    )
    tests = rows_of(tmp_path / "comparisons.csv")
    assert len(tests) == len(findings.comparisons)
    assert {row["baseline"] for row in tests} == {"conv"}


def test_what_is_left_out_is_listed_with_its_reason_and_command(findings: Findings, tmp_path: Path) -> None:
    write(tmp_path, findings)
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "8 runs left out of all means and tests" in text
    assert "| troubled/model-onn_seed-2 | interrupted | 1 of 3 folds done | onn-run model=onn seed=2 |" in text
    assert "| conv | 2 of 3 | 3 |" in text


def test_few_folds_are_said_to_show_little(findings: Findings) -> None:
    table = tables.comparison_table(findings.study, findings.comparisons)
    assert table is not None
    text = "3 folds: the signed-rank test cannot go below p = 0.25, 0.75 after Holm for 3 methods, whatever the scores"
    assert any(note.startswith(text) for note in table.notes)
    assert any(note.startswith("6 photographs: the signed-rank test cannot go below p = 0.031") for note in table.notes)


def test_what_is_not_paired_is_said_in_the_table(tmp_path: Path) -> None:
    write_run(tmp_path / "conv")
    write_run(tmp_path / "onn", "onn", fingerprint="other")
    some = found(gather([tmp_path]), None)
    table = tables.comparison_table(some.study, some.comparisons)
    assert table is not None
    assert table.rows[0][:2] == ("onn sine", "not paired: other data")


@pytest.mark.parametrize(
    ("better", "worse", "text"), [(14, 3, "14 of 17"), (9, 1, "9, worse on 1 of 17"), (None, None, "-")]
)
def test_equal_numbers_are_neither_better_nor_worse(
    findings: Findings, better: int | None, worse: int | None, text: str
) -> None:
    one = dataclasses.replace(findings.comparisons[0], n=17, better=better, worse=worse)
    table = tables.comparison_table(findings.study, [one])
    assert table is not None
    assert table.rows[0][3] == text


def test_one_method_has_no_table_of_differences(tmp_path: Path) -> None:
    some = found(gather([write_run(tmp_path / "run")]), None)
    assert [table.title for table in some.tables()] == ["1 method, 1 run: test scores", "costs"]


def test_a_sweep_has_a_table_for_its_end(tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep", ("conv", "onn"), (0, 1))
    table = tables.sweep_table(tmp_path / "sweep")
    assert table is not None
    assert [row[0] for row in table.rows] == ["onn sine", "conv", "untouched input"]
    assert re.fullmatch(r"\d\d\.\d\d ± \d\.\d\d", table.rows[0][3])
    (tmp_path / "empty").mkdir()
    assert tables.sweep_table(tmp_path / "empty") is None
    write_run(tmp_path / "half", done=1, status="interrupted")
    assert tables.sweep_table(tmp_path / "half") is None


def test_scores_are_chosen_by_metric_or_key(findings: Findings) -> None:
    study = findings.study
    assert list(chosen(study, ["psnr"]).metrics) == ["test/psnr", "photo/psnr"]
    assert list(chosen(study, ["test/ssim", "photo/psnr"]).metrics) == ["test/ssim", "photo/psnr"]
    with pytest.raises(ConfigError, match=r"unknown --metric 'psrn'. Did you mean psnr"):
        chosen(study, ["psrn"])


def test_no_text_is_a_formula() -> None:
    text = as_csv([["=1+1", "+x", "-x", "@x", "\t=x", "a\r\nb\x1b", "ordinary", -1.5, None, 'a "b", c']])
    assert next(csv.reader(io.StringIO(text))) == [
        "'=1+1", "'+x", "'-x", "'@x", "'=x", "a b\N{REPLACEMENT CHARACTER}", "ordinary", "-1.5", "", 'a "b", c',
    ]  # fmt: skip


def test_markdown_shows_text_as_it_is() -> None:
    shown = markdown_text("a_b _c_ *d* `e` <img src=x> [l](u) ![i][r] & \n# x \\")
    assert shown == r"a_b \_c\_ \*d\* \`e\` &lt;img src=x> [l]\(u) ![i]\[r] &amp; # x \\"


def hostile(study: Study) -> Study:
    """With a label, a reason and a note of everything that means something somewhere."""
    methods = tuple(
        dataclasses.replace(one, label=f"{text}{HOSTILE}")
        for one, text in zip(study.methods, ("[", "*", "", "=", "-"), strict=False)
    )
    failures = tuple(dataclasses.replace(run, reason=HOSTILE) for run in study.failures)
    return dataclasses.replace(study, methods=methods, failures=failures, notes=(HOSTILE,))


def test_latex_escapes_every_character_that_means_something() -> None:
    assert latex.escaped(r"50% & a_b #1 $x$ {y} ~ ^ \z") == (
        r"50\% \& a\_b \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )
    assert latex.escaped('-0.5 [-1, +2] a-b 2026-01 -- <|> "`') == (
        "$-$0.5 [$-$1, +2] a-b 2026-01 -{}- $<$$|$$>$ ''\\textasciigrave{}"
    )
    assert latex.escaped("± ↑ ↓ é Ä 中 ﬁ ² \n\x07") == r"$\pm$ $\uparrow$ $\downarrow$ é Ä ? fi 2  ?"


def test_a_first_cell_is_no_argument_of_the_row_before() -> None:
    table = Table("t", ("", "a"), (("[x]", "1"), ("*", "2")), (), ())
    assert r"{}[x] & 1 \\" in latex.document([("t", table)])


def test_intervals_stand_below_their_means() -> None:
    table = Table("t", ("", "a"), (("m", "21.7 ± 0.2 [20.8, 22.7]"),), (), ())
    assert r"{}21.7 $\pm$ 0.2\\{}{\tiny [20.8, 22.7]}" in latex.document([("t", table)])


def test_braces_are_balanced_whatever_the_text(findings: Findings) -> None:
    text = latex.document(latex_tables(found(hostile(findings.study), None)))
    bare = re.sub(r"\\[{}\\]", "", text)
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert r"\input{/" not in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
@pytest.mark.parametrize("strange", [False, True])
def test_the_tables_compile(findings: Findings, tmp_path: Path, strange: bool) -> None:
    study = hostile(findings.study) if strange else findings.study
    (tmp_path / "table.tex").write_text(latex.document(latex_tables(found(study, None))), encoding="utf-8")
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table}\end{document}"
    (tmp_path / "paper.tex").write_text(head)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


def test_method_rows_have_one_length(findings: Findings) -> None:
    assert len({len(row) for row in method_rows(findings)}) == 1
