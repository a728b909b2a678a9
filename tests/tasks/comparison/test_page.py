"""The comparison is one file that needs nothing beside it and says what the figures allow, no more."""

import re
from pathlib import Path

import pytest

from tasks.comparison.data import comparison_page
from tasks.comparison.groups import group_runs
from tasks.comparison.page import ComparisonPage, render_comparison
from tasks.comparison.record import own_page, write_comparison
from tests.tasks.finished_run import finish_run
from tests.tasks.results.test_report_page import assert_stands_alone

ODD = "+-" * 20
WORSE = "+---" * 10
BEST = "++++++++++++++++++-+" * 2


def page(tmp_path: Path, *by_group: list[str]) -> ComparisonPage:
    """A page of groups with one run a text."""
    runs = [
        finish_run(tmp_path, f"seed={seed}", f"rollout.n={place + 2}", base="-" * 40, trained=signs)
        for place, group in enumerate(by_group)
        for seed, signs in enumerate(group, start=1)
    ]
    return comparison_page(group_runs(runs), num_items=8)


def test_the_page_loads_nothing_from_outside_and_is_well_formed(tmp_path: Path) -> None:
    assert_stands_alone(render_comparison(page(tmp_path, [ODD, WORSE], [BEST, ODD], [ODD])))


def test_every_filter_has_its_label_its_items_and_its_rule(tmp_path: Path) -> None:
    html = render_comparison(page(tmp_path, [ODD], [BEST], [WORSE]))
    for kind in ("gained-1", "lost-2"):
        assert f'for="show-{kind}"' in html and f'id="show-{kind}"' in html
        assert f"#show-{kind}:checked ~ .gallery .item:not(.{kind})" in html
        assert re.search(rf'<article class="card item [^"]*{kind}', html)


def test_differences_intervals_p_values_and_flips_are_there(tmp_path: Path) -> None:
    shown = page(tmp_path, [ODD, WORSE], [BEST, BEST])
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", render_comparison(shown)))
    (row,) = shown.comparisons
    low, high = row.comparison.ci95
    assert f"{100 * row.comparison.difference:+.1f} points" in text
    assert f"{100 * low:+.1f} to {100 * high:+.1f} (p &lt; 0.001)" in text
    assert f"{100 * row.comparison.over_seeds.ci95[0]:+.1f} to" in text
    assert "50.0 %, 25.0 %" in text


@pytest.mark.parametrize(
    ("groups", "conclusion", "css_class"),
    [
        ([[ODD], [ODD]], "3 and 2 do not differ significantly on these items (+0.0 points); a group has", "open"),
        ([[ODD], [BEST]], "3 and 2 differ significantly on these items (+45.0 points); a group has one seed", "open"),
        ([[ODD, WORSE], [BEST]], "a group has one seed, so the seeds do not tell which way of", "open"),
        ([[ODD, ODD], [ODD, ODD]], "on these items (+0.0 points); no accuracy varies with the seed, so", "open"),
        ([[ODD, ODD], [BEST, BEST]], "on these items (+45.0 points); no accuracy varies with the seed, so", "open"),
        ([[ODD, WORSE], [BEST, ODD]], "The seeds do not tell whether 3 or 2 is better", "open"),
        ([[ODD, ODD, "+" + ODD[1:]], [BEST, BEST, "-" + BEST[1:]]], "3 is better than 2, whatever the seed", "higher"),
        ([[BEST, BEST, "-" + BEST[1:]], [ODD, ODD, "+" + ODD[1:]]], "3 is worse than 2, whatever the seed", "lower"),
    ],
)
def test_the_conclusion_claims_what_the_figures_show(
    tmp_path: Path, groups: list[list[str]], conclusion: str, css_class: str
) -> None:
    (row,) = page(tmp_path, *groups).comparisons
    assert conclusion in row.conclusion
    assert row.css_class == css_class


def test_what_a_model_said_is_text_and_never_markup(tmp_path: Path) -> None:
    html = render_comparison(page(tmp_path, [ODD], [BEST]))
    assert "&lt;answer&gt;3&lt;/answer&gt;" in html and "<answer>" not in html


def test_a_single_group_shows_each_seed_and_the_mean_of_all(tmp_path: Path) -> None:
    shown = page(tmp_path, [ODD, WORSE])
    html = render_comparison(shown)
    assert "mean 37.5 %, between seeds 25.0 to 50.0 %, 95 % over seeds 0.0 to 100.0 %" in html
    assert [chart.title for chart in shown.seed_charts] == ["seed 1", "seed 2"]
    assert "<h3>seed 2</h3>" in html and "Flipped items" not in html and "What differs" not in html
    assert_stands_alone(html)


def test_one_seed_is_called_one_seed(tmp_path: Path) -> None:
    shown = page(tmp_path, [ODD])
    assert shown.groups[0].over_seeds == "mean 50.0 %, one seed"
    assert shown.seed_charts == [] and "one seed" in render_comparison(shown)


def test_differences_of_recipes_are_in_every_sentence_about_a_cause_and_under_the_title(tmp_path: Path) -> None:
    shown = page(tmp_path, [ODD], [BEST])
    (row,) = shown.comparisons
    assert row.conclusion.endswith(": n 3 instead of 2.")
    html = render_comparison(shown)
    assert html.index("<code>rollout.n</code>") < html.index('<h2 id="accuracy">')
    assert "Before and after" in html


def test_the_page_of_another_comparison_stays(tmp_path: Path) -> None:
    one, two, three = (finish_run(tmp_path, f"rollout.n={n}", trained=ODD) for n in (2, 3, 4))
    out = tmp_path / "comparison.html"
    for runs, file in (((one, two), out), ((one, three), tmp_path / "comparison-2.html"), ((one, two), out)):
        groups = group_runs(runs)
        assert own_page(groups, out) == file
        write_comparison(groups, file, num_items=0)
