"""The report is one file that needs nothing beside it and shows what it was given."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.sax.saxutils import escape

import pytest
from PIL import Image

from rl_core.evaluation.comparison import compare_answers
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.result import CategoryRow, EvaluationResult
from tasks.results.report_charts import MOST_SERIES, Chart, Series, draw
from tasks.results.report_page import (
    Fact,
    GalleryItem,
    PhaseMemory,
    ReportPage,
    TimeShare,
    WorkerRow,
    image_uri,
    render,
)
from tasks.results.worker_rows import Bar, Timeline
from tests.rl_core.evaluation.builders import make_items

REWARD = Chart(
    title="Reward", caption="Mean.", series=[Series(label="reward", steps=[1, 2, 3], values=[0.1, 0.5, 0.9])]
)
EMPTY = Chart(title="KL", caption="None.", series=[Series(label="kl", steps=[], values=[])])


class References(HTMLParser):
    """Collects every address that a browser would load, and checks that tags close in order."""

    VOID = {"meta", "link", "img", "input", "br"}

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        values = dict(attrs)
        self.loaded += [values[name] for name in ("src", "srcset", "poster") if values.get(name)]
        self.loaded += [values["href"]] if tag == "link" else []
        self.ids += [values["id"]] if "id" in values else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def answered(is_right: bool, **fields: str) -> EvaluationItem:
    return make_items("+" if is_right else "-", **{"answer": "3", "response": "<answer>3</answer>"} | fields)[0]


def item(*, base: bool, trained: bool, question: str = "How many?") -> GalleryItem:
    return GalleryItem(
        images=[image_uri(Image.new("RGB", (84, 84), "red"))],
        shown={},
        base=answered(base, question=question),
        trained=answered(trained, question=question),
    )


def measured(accuracy: float, *ci95: float) -> EvaluationResult:
    return EvaluationResult(
        mode="greedy", n=400, samples=400, accuracy=accuracy, ci95=ci95, bootstrap95=ci95, pass_at=(), majority_at=(),
        parse_failure_rate=0.125, truncation_rate=0.0, mean_length=6.25, reward_mean=0.0, failed_rewards=0,
        categories=(),
    )  # fmt: skip


def page(**changes) -> ReportPage:
    low, high = measured(0.2, 0.16, 0.24), measured(0.975, 0.95, 0.99)
    values = {
        "run": "quickstart-0123456789ab",
        "experiment": "quickstart",
        "finished_at": "2026-01-01 00:00 UTC",
        "base": low,
        "trained": high,
        "verdict": "Held-out accuracy rose from 20.0 % to 97.5 %.",
        "outcome": "higher",
        "look_at": ["From step 3 on nothing was learned: the reward is 0 for every response."],
        "changes": [],
        "comparison": compare_answers(*({f"{n}": n < right for n in range(400)} for right in (80, 390))),
        "facts": [Fact(label="Steps", value="64")],
        "charts": [REWARD, EMPTY],
        "evaluations": [("base", low)],
        "stages": [TimeShare(name="prepare", seconds=30.0), TimeShare(name="merge", seconds=90.0, note="reused")],
        "phases": [TimeShare(name="generate", seconds=0.5)],
        "memory": [PhaseMemory(name="generate", forecast=1.5, measured=None)],
        "losses": "Workers were lost 3 times on machine-7.",
        "workers": [
            WorkerRow(name="0", host="here", device="CPU", shares={"training": 0.75, "idle": 0.25}, memory=1.5),
            WorkerRow(name="1", host="there", device="CPU", shares={"training": 0.5, "idle": 0.5}, memory=None),
        ],
        "timeline": Timeline(
            first_step=2,
            last_step=4,
            seconds=6.25,
            workers=[[Bar(work="update", begin=0.0, length=0.5)], [Bar(work="generate", begin=0.25, length=0.5)]],
        ),
        "gallery": [item(base=False, trained=True), item(base=True, trained=False)],
        "commands": {"Serve it": "vllm serve merged"},
        "config": "experiment: quickstart\n",
        "versions": {"torch": "2.13.0"},
    }
    return ReportPage(**(values | changes))


def test_unknown_figures_are_left_out_of_the_report() -> None:
    html, less = render(page()), render(page(memory=[], workers=[], timeline=None, gallery=[]))
    for part in ('id="memory"', 'id="workers"', "Steps 2 to 4: who did what when, over 6.2 s"):
        assert part in html and part not in less, part
    assert "<h3>Reward</h3>" in html and "<h3>KL</h3>" not in html, "a chart without points"
    assert "tracking.gallery_items" in less


def test_the_accuracy_of_each_validation_set_is_shown() -> None:
    row = CategoryRow(column="data_source", value="charts", n=7, accuracy=0.5, ci95=(0.25, 0.75))
    result = measured(0.2, 0.16, 0.24).model_copy(update={"categories": (row,)})
    html = render(page(evaluations=[("base", result)]))
    assert "<td>charts</td><td>base</td><td>greedy</td>" in html and "charts" not in render(page())
    assert_stands_alone(html)


def assert_stands_alone(html: str) -> None:
    """Of a page of any kind: it is well-formed, and loads nothing."""
    references = References()
    references.feed(html)
    assert references.open == [], "every tag closes"
    assert len(references.ids) == len(set(references.ids))
    assert all(address.startswith("data:") for address in references.loaded)
    assert "<script" not in html and "@import" not in html and "url(http" not in html


def test_the_page_is_well_formed_and_loads_nothing_from_outside() -> None:
    assert_stands_alone(render(page(charts=[REWARD, Chart(title="More", caption="", series=REWARD.series)])))


def test_the_page_shows_both_accuracies_and_their_comparison() -> None:
    text = re.sub(r"<[^>]+>", "", render(page()))
    assert "20.0→97.5 %" in text
    assert "16.0 % to 24.0 %" in text and "95.0 % to 99.0 %" in text
    assert "310 items became right, 0 became wrong (McNemar p &lt; 0.001)" in text.replace("<", "&lt;")


def test_responses_without_a_score_are_counted_next_to_the_accuracy() -> None:
    unscored = measured(0.975, 0.95, 0.99).model_copy(update={"failed_rewards": 3})
    html = render(page(trained=unscored, evaluations=[("trained", unscored)]))
    assert "400 items, 3 not scored, 95 % confidence" in html
    assert '<td class="number">400 (3 not scored)</td>' in html


def test_only_a_better_model_is_shown_in_green() -> None:
    for outcome in ("higher", "lower", "open"):
        html = render(page(outcome=outcome))
        assert f'class="to {outcome}"' in html and f'class="track to {outcome}"' in html
    green = re.findall(r"([^{}]*)\{[^{}]*var\(--good\)[^{}]*\}", html)
    assert [rule.strip() for rule in green] == [".headline .to.higher", ".track.higher i", ".yes .grade"]


def test_why_a_run_may_have_learned_nothing_stands_above_its_figures() -> None:
    html = render(page()).partition("</style>")[2]
    verdict, remark = html.index("Held-out accuracy rose"), html.index("From step 3 on nothing was learned")
    assert verdict < remark < html.index("Held-out accuracy</p>") < html.index("Steps</span>")
    assert 'class="look"' not in render(page(look_at=[]))


def test_changes_while_a_run_was_made_are_listed() -> None:
    assert "What changed while it ran" not in render(page())
    assert "trainer.save_freq 8 instead of 16" in render(page(changes=["trainer.save_freq 8 instead of 16"]))


def test_what_a_model_said_is_text_and_never_markup() -> None:
    html = render(page(gallery=[item(base=False, trained=True, question="<script>alert(1)</script>")]))
    assert "<script" not in html
    assert "&lt;answer&gt;3&lt;/answer&gt;" in html


def test_an_item_that_is_opened_shows_its_prompt_as_it_was_sent_and_the_answers_while_training() -> None:
    history = [
        (5, answered(False, response="<b>4</b>")),
        (7, replace(answered(False), response="5", is_right=None)),
        (10, answered(True, response="3")),
    ]
    html = render(page(gallery=[replace(item(base=False, trained=True), while_training=history)]))
    folded = re.search(r"<details class=\"history\">(.*?)</details>", html, re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", folded[1])
    prompt = " ".join(escape(answered(False).prompt).split())
    shown = (
        f"open The prompt as it was sent {prompt} While training "
        "step 5 ✗ wrong &lt;b&gt;4&lt;/b&gt; step 7 not scored 5 step 10 ✓ right 3"
    )
    assert " ".join(text.split()) == shown
    assert_stands_alone(html)
    assert "While training" not in render(page())


def test_charts_take_their_colours_from_the_page_and_are_reproducible() -> None:
    svg = draw(REWARD)
    assert svg == draw(REWARD)
    assert "var(--series-1)" in svg and "var(--muted)" in svg and "#010101" not in svg
    assert svg.startswith("<svg") and "viewBox" in svg and "<metadata" not in svg


def test_shares_are_drawn_as_percent_and_bounds_with_their_label() -> None:
    series = [Series(label="accuracy", steps=[1, 2], values=[0.2, 0.8])]
    assert "40%" in draw(Chart(title="A", caption="", series=series, unit="share"))
    assert "bound 2e-05" in draw(Chart(title="B", caption="", series=series, bound=(2e-5, "bound 2e-05"), log=True))


def test_a_band_is_drawn_and_every_line_has_a_colour_of_its_own() -> None:
    line = Series(label="one", steps=[1, 2], values=[0.2, 0.8])
    banded = Series(label="one", steps=[1, 2], values=[0.2, 0.8], band=([0.1, 0.7], [0.3, 0.9]))
    plain, with_band = (draw(Chart(title="A", caption="", series=[one])) for one in (line, banded))
    assert with_band.count("var(--series-1)") > plain.count("var(--series-1)")
    lines = [Series(label=f"{n}", steps=[1, 2], values=[0, n]) for n in range(MOST_SERIES)]
    drawn = draw(Chart(title="B", caption="", series=lines))
    assert all(f"var(--series-{n})" in drawn for n in range(1, MOST_SERIES + 1))
    with pytest.raises(ValueError):
        draw(Chart(title="C", caption="", series=[*lines, line]))


def test_large_images_are_reduced_and_small_ones_kept() -> None:
    small, large = image_uri(Image.new("RGB", (84, 60))), image_uri(Image.effect_noise((2000, 1000), 50))
    assert small.startswith("data:image/png;base64,")
    assert len(large) < 4 / 3 * 320 * 160 * 3 + 2000
    opened = image_uri(Image.effect_noise((2000, 1000), 50), largest=640)
    assert opened.startswith("data:image/jpeg;base64,") and len(opened) < 4 / 3 * 640 * 320


def test_the_values_of_each_step_can_be_read_off_a_chart() -> None:
    accuracy = [
        Series(label="a<b", steps=[1, 2, 4], values=[0.25, 0.5, 0.75]),
        Series(label="c", steps=[4], values=[1.0]),
    ]
    svg = draw(Chart(title="A", caption="", series=accuracy, unit="share"))
    assert re.findall(r"<title>(.*?)</title>", svg, re.DOTALL) == [
        "step 1\na&lt;b: 25.0%",
        "step 2\na&lt;b: 50.0%",
        "step 4\na&lt;b: 75.0%\nc: 100.0%",
    ]
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg.partition('class="readings"')[2])
    strips = [(float(x), float(width)) for x, width in found]
    assert all(x + width == pytest.approx(after, abs=0.15) for (x, width), (after, _) in pairwise(strips))
    lines = re.findall(r'd="(M [^"]*)"[^>]*style="fill: none; stroke: var\(--series-1\)', svg)
    points = [float(x) for x, _ in re.findall(r"([\d.]+) ([\d.]+)", lines[0])]
    assert all(x <= point <= x + width for (x, width), point in zip(strips, points, strict=True))


def test_the_chart_of_a_long_run_keeps_its_size() -> None:
    line = Series(label="a", steps=range(5000), values=[0.5] * 5000)
    assert draw(Chart(title="A", caption="", series=[line])).count("<title>") <= 200


def test_a_line_that_covers_another_is_dashed() -> None:
    lines = [
        Series(label=label, steps=[1, 2], values=[1, 1], is_dashed=dashed) for label, dashed in (("a", 0), ("b", 1))
    ]
    dashed, plain = (draw(Chart(title="A", caption="", series=shown)) for shown in (lines, lines[:1]))
    assert "stroke-dasharray" in dashed and "stroke-dasharray" not in plain


def test_lost_workers_are_counted_where_there_are_any() -> None:
    assert "Workers were lost 3 times on machine-7." in render(page())
    assert "lost" not in render(page(losses="")).partition("Workers</h2>")[2].partition("</div>")[0]


def test_a_conversation_is_shown_with_what_its_tools_gave():
    look = {"name": "zoom", "arguments": "{}", "result": "[image crop-1] <b>", "outcome": "answered"}
    turns = (
        {"role": "assistant", "content": "I look"},
        {"role": "tool", "calls": [look], "image_uids": ["crop-1"]},
        {"role": "assistant", "content": "<answer>3</answer>"},
    )
    crop = image_uri(Image.new("RGB", (9, 9), "blue"))
    one = item(base=False, trained=True)
    html = render(page(gallery=[replace(one, shown={"crop-1": crop}, trained=replace(one.trained, turns=turns))]))
    places = [html.index(text) for text in ("I look", "[image crop-1] &lt;b&gt;", crop, "&lt;answer&gt;3")]
    assert places[:3] == sorted(places[:3])
    assert html.count("&lt;answer&gt;3&lt;/answer&gt;") == render(page(gallery=[one])).count(
        "&lt;answer&gt;3&lt;/answer&gt;"
    )
    References().feed(html)
