"""The page of a study: what it holds, that text of folders stays text, and that a browser shows it without a word."""

import base64
import dataclasses
import hashlib
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from study_examples import write_run, write_sweep, write_troubled
from study_pictures import CLASSES, write_confusions, write_epochs, write_kept

from onn_runner.cli.report import chosen, found
from onn_runner.study import page_images
from onn_runner.study.gathering import gather
from onn_runner.study.page import named, page
from onn_runner.study.page_figures import shown_p
from onn_runner.study.page_tables import score_tables
from onn_runner.study.page_view import view
from onn_runner.study.records import Study

SECTIONS = ["scores", "comparisons", "curves", "folds", "costs", "images", "failures", "runs", "provenance"]
HOSTILE = (
    "</code><script>document.title='broken in'</script><img src=x onerror=\"document.title='broken in'\">"
    "&amp;\x00\x1b[2J\ud800"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def text_of(folders, metrics=("test/psnr",), **options):
    """With these scores alone, which have a figure each, or with all."""
    findings = found(chosen(gather(folders), metrics), None)
    return page(
        findings.study, findings.summaries, findings.comparisons, findings.costs, baseline=findings.baseline, **options
    )


def with_pictures(folder):
    """Epochs and kept items for every run of a sweep."""
    for number, run in enumerate(sorted(path.parent for path in folder.glob("*/config.yaml"))):
        write_epochs(run, seed=number)
        write_kept(run, noise=0.05 * (1 + number), seed=number)
    return folder


class Outline(HTMLParser):
    """Tags that are open at the end, ids, the text of elements by id of their section, sources."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.sources, self.tags, self.handlers = [], [], [], [], []
        self.alternatives = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.tags.append(tag)
        self.ids += [known["id"]] if "id" in known else []
        self.sources += [value for key, value in attributes if key in ("src", "href", "xlink:href", "action", "data")]
        self.handlers += [key for key in known if key.startswith("on")]
        if tag == "img":
            self.alternatives.append(known.get("alt"))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(text):
    """The outline, after what every page must be."""
    outline = Outline(text)
    assert outline.open == []
    assert not outline.handlers
    assert len(outline.ids) == len(set(outline.ids))
    assert all(source.startswith(("#", "data:image/png;base64,")) for source in outline.sources)
    assert {source[1:] for source in outline.sources if source.startswith("#")} <= set(outline.ids)
    assert all(outline.alternatives), "every image says what it shows"
    assert not {"link", "iframe", "object", "embed", "form", "base"} & set(outline.tags)
    assert outline.tags.count("script") == 1
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}';" in text
    assert "url(http" not in text
    assert "@import" not in text
    return outline


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return with_pictures(write_sweep(tmp_path_factory.mktemp("study") / "sweep"))


@pytest.fixture(scope="module")
def whole(study):
    return text_of([study], metrics=None, title="Three kinds of neurons")


def test_all_sections_are_there_and_filled(whole):
    outline = checked(whole)
    assert [name for name in outline.ids if name in SECTIONS] == SECTIONS
    assert "<title>Three kinds of neurons</title>" in whole
    assert whole.count('class="strip"') == 3
    assert whole.count('class="none"') == 1, "only that nothing failed"
    assert "Every run is whole and counted." in whole
    for run in ("model=conv seed=0", "model=onn seed=1", "model=quadratic seed=1"):
        assert f"<code>onn-run {run}</code>" in whole
    assert "0.1.0+0123456789" in whole
    assert "d1fb7375a7aa646d" in whole


def test_the_same_study_is_the_same_page(study, whole):
    assert text_of([study], metrics=None, title="Three kinds of neurons") == whole


def test_the_best_method_comes_first_and_numbers_are_those_of_the_figures(study):
    findings = found(gather([study]), None)
    shown = view(findings.study, findings.summaries, findings.comparisons, findings.costs, baseline=findings.baseline)
    means = [shown.summaries[row.label, "test/psnr"].mean for row in shown.trained()]
    assert means == sorted(means, reverse=True)
    assert [row.number for row in shown.rows] == list(range(1, len(shown.rows) + 1))
    (table,) = score_tables(shown)
    first = table.sections[0].lines[0]
    mean, std = (shown.summaries[first.label, "test/psnr"] for _ in range(2))
    assert first.cells[0].text == f"{mean.mean:.2f} ± {std.std:.2f}"
    assert first.cells[0].best
    assert [line.baseline for line in table.sections[0].lines].count(True) == 1


def test_lower_scores_that_are_better_come_first(study):
    findings = found(gather([study]), None)
    turned = dataclasses.replace(findings.study, metrics={"test/psnr": False})
    shown = view(turned, findings.summaries, (), (), baseline=None)
    means = [shown.summaries[row.label, "test/psnr"].mean for row in shown.trained()]
    assert means == sorted(means)
    assert shown.trained()[0].mark.place == 0


def test_a_troubled_study_says_what_is_not_counted_and_why(tmp_path):
    text = text_of([write_troubled(tmp_path / "sweep")])
    checked(text)
    failures = text.partition('id="failures"')[2].partition("</section>")[0]
    for word in ("interrupted", "killed", "unreadable", "refused", "waiting", "no such type: &#39;x&#39;"):
        assert word in failures, word
    assert "elsewhere" not in text
    assert "No run of this study has epochs in its tables." in text
    assert "The runs keep no outputs" in text


def test_one_run_with_one_fold_has_a_page(tmp_path):
    run = write_run(tmp_path / "run", folds=2, done=1)
    split = json.loads((run / "split.json").read_text())
    (run / "split.json").write_text(json.dumps(split | {"folds": split["folds"][:1]}))
    text = text_of([run])
    outline = checked(text)
    assert "comparisons" not in outline.ids
    assert "Scores of one fold" in text
    assert "±" not in text.partition('id="scores"')[2].partition("</section>")[0]


def test_a_study_without_a_whole_run_has_a_page(tmp_path):
    write_run(tmp_path / "run", done=1, status="interrupted")
    text = page(gather([tmp_path]), (), (), (), baseline=None)
    checked(text)
    assert "No run is whole, so there are no scores." in text
    assert "1 of 3 folds done" in text


def hostile(study_folder):
    """The study with every text of it turned against the page."""
    findings = found(chosen(gather([study_folder]), ["test/psnr"]), None)

    def renamed(label):
        return f"{label} {HOSTILE}"

    def turned(run):
        return dataclasses.replace(
            run, reason=HOSTILE, command=f"onn-run {HOSTILE}", code=HOSTILE, fingerprint=HOSTILE, name=HOSTILE
        )

    methods = tuple(
        dataclasses.replace(
            method,
            label=renamed(method.label),
            runs=tuple(map(turned, method.runs)),
            left_out=tuple(map(turned, method.runs)),
        )
        for method in findings.study.methods
    )
    metrics = {f"test/{HOSTILE}": True, **findings.study.metrics}
    other = [
        dataclasses.replace(one, label=renamed(one.label), key=f"test/{HOSTILE}")
        for one in findings.summaries
        if one.key == "test/psnr"
    ]
    study = dataclasses.replace(
        findings.study, methods=methods, failures=tuple(run for m in methods for run in m.left_out), metrics=metrics,
        notes=(HOSTILE, HOSTILE * 9), monitor=f"val/{HOSTILE}",
    )  # fmt: skip
    return page(
        study,
        [*other, *(dataclasses.replace(one, label=renamed(one.label)) for one in findings.summaries)],
        [
            dataclasses.replace(one, label=renamed(one.label), baseline=renamed(one.baseline), not_paired=HOSTILE)
            for one in findings.comparisons
        ],
        [dataclasses.replace(one, label=renamed(one.label), devices=(HOSTILE,)) for one in findings.costs],
        baseline=renamed(findings.baseline),
        title=HOSTILE,
    )


def test_text_of_folders_stays_text(study):
    text = hostile(study)
    outline = checked(text)
    assert outline.tags.count("script") == 1
    assert "\x00" not in text
    text.encode()
    assert text.count(html.escape("<script>document")) > 20


def test_folders_and_items_with_names_of_their_own_stay_text(tmp_path):
    name = "<img src=x onerror=alert(1)>"
    run = write_run(tmp_path / name / "run")
    split = json.loads((run / "split.json").read_text())
    split["names"] = [f"{name}{number}" for number in range(len(split["names"]))]
    (run / "split.json").write_text(json.dumps(split))
    write_kept(run)
    text = text_of([tmp_path / name])
    checked(text)
    assert html.escape(name) in text


def test_the_same_items_are_shown_of_all_methods_on_one_scale(study):
    findings = found(gather([study]), None)
    shown = view(findings.study, findings.summaries, findings.comparisons, findings.costs, baseline=findings.baseline)
    strips, trouble = page_images.strips(shown)
    assert trouble == []
    assert [item.rank for item in strips.items] == ["worst", "median", "best"]
    assert strips.kept == 12
    for item in strips.items:
        assert [tile.title for tile in item.tiles[:2]] == ["input", "target"]
        assert [tile.title for tile in item.tiles[2:]] == [f"{row.number} {row.label}" for row in shown.trained()]
        assert len({tile.png for tile in item.tiles}) == len(item.tiles)
        assert all(re.fullmatch(r"PSNR \d+\.\d\d dB", tile.caption) for tile in item.tiles[2:])
        assert {tile.size for tile in item.tiles} == {(16, 12)}


def test_captions_are_the_items_own_scores(study):
    findings = found(gather([study]), None)
    shown = view(findings.study, findings.summaries, (), (), baseline=None)
    strips, _ = page_images.strips(shown)
    item = strips.items[0]
    fold = int(re.match(r"fold (\d+)", item.where)[1])
    row = shown.trained()[0]
    table = (row.method.runs[0].folder / "test_items.csv").read_text().splitlines()
    (line,) = [one for one in table if one.startswith(f'{fold},0,"{item.name}",test,psnr')]
    assert item.tiles[2].caption == f"PSNR {float(line.rpartition(',')[2]):.2f} dB"


def test_methods_on_other_data_are_not_set_beside_them(tmp_path):
    sweep = with_pictures(write_sweep(tmp_path / "sweep", ("conv", "onn", "quadratic"), (0,)))
    other = sweep / "model-onn_seed-0"
    for path in other.glob("fold_*"):
        shutil.rmtree(path)
    write_kept(other, shape=(1, 8, 8))
    text = text_of([sweep])
    checked(text)
    assert "Without outputs of these items: onn sine." in text


def test_damaged_kept_items_are_told_and_do_not_stop_the_page(tmp_path):
    sweep = with_pictures(write_sweep(tmp_path / "sweep", ("conv", "onn"), (0,)))
    (sweep / "model-onn_seed-0" / "fold_01" / "pictures" / "kept.npz").write_bytes(b"PK damaged")
    (sweep / "model-conv_seed-0" / "fold_01" / "metrics.csv").write_bytes(b"\xff\x00,,\n1")
    text = text_of([sweep])
    checked(text)
    assert "model-onn_seed-0, fold 1: kept.npz cannot be read" in text


def test_values_that_are_not_finite_are_cyan_and_no_reason_to_fail(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run")
    write_kept(run, noise=np.inf)
    text = text_of([run])
    checked(text)
    assert text.count('class="strip"') == 3


@pytest.mark.parametrize("shape", [(3, 6, 5), (1, 40)])
def test_colours_and_signals(tmp_path, shape):
    run = write_run(tmp_path / "run")
    write_kept(run, shape=shape)
    text = text_of([run])
    checked(text)
    assert ('class="tiles signals"' in text) == (len(shape) == 2)


def test_classes_have_confusions_of_all_folds_and_seeds(tmp_path):
    sweep = write_sweep(tmp_path / "sweep", ("conv", "onn"), (0, 1))
    for number, run in enumerate(sorted(path.parent for path in sweep.glob("*/config.yaml"))):
        write_confusions(run, seed=number)
    text = text_of([sweep])
    checked(text)
    assert "<h2>Confusions</h2>" in text
    assert text.count('score">') == 2
    assert text.count(" of 360 right (") == 2 * 2, "twenty of three classes, three folds, two seeds; said and shown"
    assert "6 overflowing left out" in text
    assert text.count(html.escape(CLASSES[2], quote=False)) >= 4


def test_of_many_methods_the_best_and_the_baseline_are_told_apart(tmp_path):
    for number in range(12):
        write_run(tmp_path / f"run{number:02d}", "onn", effect=0.2 * number, optimizer__lr=0.001 * (number + 1))
    write_run(tmp_path / "conv", "conv", effect=-1.0)
    findings = found(gather([tmp_path]), None)
    shown = view(findings.study, findings.summaries, (), (), baseline=findings.baseline)
    coloured = [row.label for row in shown.rows if row.mark.place is not None]
    assert len(coloured) == 8
    assert coloured[-1] == findings.baseline == "conv, lr 0.01"
    assert coloured[:-1] == [row.label for row in shown.rows[:7]]
    assert len({row.mark.place for row in shown.rows}) == 9


def test_twins_and_untrained_baselines_stand_apart(tmp_path):
    write_run(tmp_path / "run", "onn", twin="conv")
    text = text_of([tmp_path])
    checked(text)
    scores = text.partition('id="scores"')[2]
    assert scores.index("onn sine") < scores.index("Twins, trained") < scores.index("Without training")


def test_a_page_is_named_after_the_folder_of_its_runs(tmp_path):
    write_run(tmp_path / "depth & width" / "run", folds=2)
    assert "<title>Study of depth &amp; width</title>" in text_of([tmp_path / "depth & width" / "run"])
    assert named(gather([write_sweep(tmp_path / "lr")])) == "Study of lr"
    folders = [write_sweep(tmp_path / name, ("conv",), (seed,)) for seed, name in enumerate(("a", "b", "c", "d"))]
    assert named(gather(folders[:2])) == "Study of a, b"
    assert named(gather(folders)) == "Study of a, b, c and 1 more"
    assert named(Study(methods=())) == "Study"


def test_p_values():
    assert [shown_p(p) for p in (None, 0.5, 0.0313, 0.0004, float("nan"))] == ["-", "0.5", "0.031", "< 0.001", "-"]


def browse(text, folder, *options, size="1200,900"):
    """(standard output, what the page wrote to the console) of a browser that opens it."""
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={size}", "--virtual-time-budget=5000",
        "--enable-logging=stderr", "--v=0", *options, path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode(), [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]


PROBE = """
<script>
const told = {
  images: Array.from(document.images).map(image => [image.complete, image.naturalWidth, image.clientWidth]),
  figures: Array.from(document.querySelectorAll("svg")).filter(svg => svg.getClientRects().length)
    .map(svg => [svg.getBoundingClientRect().width, svg.getBoundingClientRect().height]),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  buttons: Array.from(document.querySelectorAll(".buttons button")).map(button => button.textContent),
  pressed: document.querySelectorAll('.buttons button[aria-pressed="true"]').length,
  copies: Array.from(document.querySelectorAll("button.copy")).filter(button => !button.hidden).length,
  panels: Array.from(document.querySelectorAll(".panel")).map(panel => panel.hidden),
};
document.querySelectorAll(".buttons button")[1].click();
const copy = Array.from(document.querySelectorAll("button.copy")).at(-1);
copy.click();
told.after = Array.from(document.querySelectorAll(".panel")).map(panel => panel.hidden);
window.setTimeout(function () {
  told.copied = [copy.firstChild.nodeValue, String(window.getSelection()), copy.previousSibling.textContent];
  document.body.dataset.told = JSON.stringify(told);
}, 500);
</script>
</body>"""


def probed(text, folder, **options):
    """What a script in the page sees of it, its policy aside."""
    without = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert without != text
    dom, said = browse(without.replace("</body>", PROBE), folder, "--dump-dom", **options)
    assert said == []
    return json.loads(html.unescape(re.search(r'data-told="([^"]*)"', dom)[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to open the page with")
def test_a_browser_shows_every_image_and_nothing_runs_over(whole, tmp_path):
    told = probed(whole, tmp_path)
    assert len(told["images"]) == 1 + 3 * (2 + 2 * 3)
    assert all(complete and natural > 0 and shown > 0 for complete, natural, shown in told["images"])
    assert all(width > 300 and height > 50 for width, height in told["figures"])
    assert told["wide"] <= 0
    assert told["buttons"][:2] == ["PSNR [dB]", "SSIM"]
    assert {"MACs", "parameters", "training time"} <= set(told["buttons"])
    assert told["pressed"] == 2, "one score and one cost"
    assert told["copies"] == 6
    assert told["panels"].count(False) == 2
    assert told["after"][:2] == [True, False]
    word, selected, command = told["copied"]
    assert command.startswith("onn-run model=")
    # Whether a browser lets a page copy is the browser's matter: where not, the command is selected.
    assert word == "Copied" or (word, selected) == ("Press Ctrl+C", command)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to open the page with")
def test_a_browser_keeps_to_the_pages_policy_and_runs_no_text(study, tmp_path):
    text = hostile(study)
    dom, said = browse(text, tmp_path, "--dump-dom")
    assert said == [], "neither an error nor a breach of the policy"
    assert "broken in" not in re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1].partition("=")[0]
    assert 'class="choice chosen"' in dom, "its own script did run"
    told = probed(text, tmp_path, size="420,900")
    assert told["wide"] <= 0, "nor does it on a telephone"


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to open the page with")
def test_it_prints_on_a_few_sheets(whole, tmp_path):
    browse(whole, tmp_path, f"--print-to-pdf={tmp_path / 'page.pdf'}", "--no-pdf-header-footer")
    content = (tmp_path / "page.pdf").read_bytes()
    sheets = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 3 <= sheets <= 12
    (sides,) = set(re.findall(rb"/MediaBox\s*\[([^\]]*)\]", content))
    # A4 in points, as the browser rounds it.
    assert [round(float(side)) for side in sides.split()] in ([0, 0, 595, 842], [0, 0, 596, 842], [0, 0, 595, 841])
