"""The table of GPUs is current, and each of its cells is a number of GPUs that fits and half of which does not."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from rl_core.families.registry import PUBLISHED
from rl_core.planning.memory_rules import MemoryLimit
from rl_core.planning.model_sizes import sizes_of_config
from sightline_tools.docs import gpu_table as table
from sightline_tools.docs.gpu_table import METHODS, MODELS, gpus_needed, with_table

PAGE = Path(__file__).parents[3] / "docs" / "memory.md"


def test_the_committed_page_is_current() -> None:
    page = PAGE.read_text()
    assert with_table(page) == page, "run make docs"


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no '<!-- gpu table"):
        with_table("# Memory")


def test_one_gpu_is_enough_for_the_promised_models() -> None:
    amp, bfloat16, _ = METHODS
    for method, model, card in ((amp, "3B", 80), (bfloat16, "3B", 40), (amp, "7B", 80)):
        found = gpus_needed(method, model, card)
        assert found is not None and found[0] == 1, (method.name, model, card)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_each_number_of_gpus_fits_by_the_rule_of_plan(method: table.Method) -> None:
    for model, (_, card) in zip(MODELS, method.easyr1, strict=True):
        found = gpus_needed(method, model, card)
        sizes = sizes_of_config(PUBLISHED[MODELS[model]])
        assert found is not None and sizes is not None
        assert MemoryLimit(gib=table.CARD_GIB[card], on_gpu=True).fits(found[1], sizes), (model, card)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_larger_model_never_needs_fewer_gpus_and_a_larger_card_never_more(method: table.Method) -> None:
    needed = {}
    for card in (24, 40, 80):
        for model in MODELS:
            found = gpus_needed(method, model, card)
            needed[model, card] = table.MOST_GPUS * 2 if found is None else found[0]
    for card in (24, 40, 80):
        by_model = [needed[model, card] for model in MODELS]
        assert by_model == sorted(by_model)
    for model in MODELS:
        assert needed[model, 24] >= needed[model, 40] >= needed[model, 80]


def test_a_model_that_fits_on_no_number_of_gpus_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_GPUS", 2)
    assert gpus_needed(METHODS[0], "72B", 24) is None
    assert "more than 2 x 80 GB; EasyR1 32" in table.gpu_table()


def test_plan_prints_it_without_a_config() -> None:
    done = CliRunner().invoke(app, ["plan", "--table"])
    assert done.exit_code == 0
    assert done.output.strip() == table.gpu_table()
