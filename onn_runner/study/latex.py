"""Tables as LaTeX with booktabs: every cell is text of unknown origin, and what LaTeX would read as more is escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from onn_runner.report.table import Table

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "#": r"\#", "$": r"\$", "%": r"\%", "&": r"\&", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$", '"': "''",
    "`": r"\textasciigrave{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$",
}  # fmt: skip
HEAD = "% Needs \\usepackage{booktabs}; \\input this file where the tables shall stand.\n"
WITH_INTERVAL = re.compile(r"(?P<main>.+?) (?P<below>\[[^\[\]]*\])$")


def document(tables: Sequence[tuple[str, Table]]) -> str:
    """Floating tables, to be put into a document; `tables`: the name for \\label and the table."""
    return HEAD + "\n".join(_floating(name, one) for name, one in tables)


def _floating(name: str, table: Table) -> str:
    columns = "ll" if _has_words(table) else "l"
    columns += "r" * (len(table.headings) - len(columns))
    lines = [
        r"\begin{table}", r"\centering\scriptsize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{escaped(table.title)}}}\label{{tab:{name}}}", rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule", _row(table.headings, columns), r"\midrule",
    ]  # fmt: skip
    for position, row in enumerate(table.rows):
        if position in table.sections:
            lines.append(r"\midrule")
        lines.append(_row(row, columns))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        told = r"\par ".join(map(escaped, table.notes))
        lines.append(rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright\tiny {told}}}")
    return "\n".join([*lines, r"\end{table}", ""])


def _has_words(table: Table) -> bool:
    """Whether the second column holds text rather than figures."""
    return any(row[1][:1].isalpha() for row in table.rows if len(row) > 1)


def _row(cells: Sequence[str], columns: str) -> str:
    # Without the braces a first cell that begins with [ or * would be read as an argument of the row before.
    return "{}" + " & ".join(_cell(text, side) for text, side in zip(cells, columns, strict=True)) + r" \\"


def _cell(text: str, side: str) -> str:
    """An interval stands in small print below its mean."""
    found = WITH_INTERVAL.fullmatch(text)
    if found is None or side == "l":
        return escaped(text)
    main, below = (escaped(found[part]) for part in ("main", "below"))
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{{}}{main}\\{{}}{{\tiny {below}}}\end{{tabular}}"


def escaped(text: str) -> str:
    """`text` as LaTeX shows it; characters that pdfLaTeX has no glyph for become their nearest plain ones, or `?`."""
    whole = unicodedata.normalize("NFC", text)
    return "".join(
        _hyphen(whole[position - 1 : position], whole[position + 1 : position + 2]) if one == "-" else _character(one)
        for position, one in enumerate(whole)
    )


def _hyphen(before: str, after: str) -> str:
    """A minus before a number; two hyphens that do not become a dash."""
    if after.isdigit() and (not before or before in " [(,="):
        return "$-$"
    return "-{}" if after == "-" else "-"


def _character(one: str) -> str:
    if one in SPECIAL:
        return SPECIAL[one]
    if one.isspace():
        return " "
    if " " <= one <= "~" or ("¡" <= one <= "ÿ" and one.isalpha()):
        return one
    plain = unicodedata.normalize("NFKD", one).encode("ascii", "ignore").decode()
    return "".join(SPECIAL.get(letter, letter) for letter in plain if " " <= letter <= "~") or "?"
