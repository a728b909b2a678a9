"""What `sightline evaluate` prints of a result."""

import io

import pytest
from rich.console import Console

from flows.commands.protocols import _print_protocol_result
from tests.rl_core.evaluation.builders import make_items
from tests.rl_core.evaluation.test_protocol_result import result_on


@pytest.mark.parametrize(("grades", "accuracy"), [("+-+-", "50.00%  (2/4 responses right)"), ("++??", "no result")])
def test_an_accuracy_is_shown_only_for_a_result(grades: str, accuracy: str) -> None:
    output = io.StringIO()
    _print_protocol_result(result_on(make_items(grades)), Console(file=output, width=200))
    text = output.getvalue()
    assert accuracy in text
    assert ("95 % interval" in text) == ("%" in accuracy)
    assert "100.00%" not in text
