import json
from dataclasses import replace

import pytest

from rl_core.evaluation.protocol_result import (
    ProtocolResult,
    compare_protocol_results,
    read_protocol_result,
    summarise_by_protocol,
    write_protocol_result,
)
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.evaluation.protocols.registry import SUPERCLEVR_R1V
from tests.rl_core.evaluation.builders import make_items

SUBJECT = {"model": "somewhere"}


def result_on(items: list, protocol: Protocol = SUPERCLEVR_R1V) -> ProtocolResult:
    return summarise_by_protocol(protocol, items, subject=SUBJECT, was_asked_here=True)


def test_a_result_comes_back_as_it_was_written(tmp_path):
    items = make_items("+-+")
    result = result_on(items)
    write_protocol_result(tmp_path / "v", result, items)
    assert read_protocol_result(tmp_path / "v") == (result, items)
    written = json.loads((tmp_path / "v" / "verdict.json").read_text())
    assert written["digest"] == result.digest == SUPERCLEVR_R1V.digest()
    assert written["protocol"]["judging"]["rule"] == SUPERCLEVR_R1V.judging.rule


def test_a_folder_without_a_result_is_named(tmp_path):
    with pytest.raises(ValueError, match="holds no result of a protocol"):
        read_protocol_result(tmp_path)


def test_remarks_name_the_prompt_and_the_number_of_items(tmp_path):
    items = make_items("+" * 200)
    assert result_on(items).remarks == (
        "prompt: the project's own words, in the published format, not the published text",
    )
    assert result_on(items[:-1]).remarks[1] == "items: 199, not the published 200"
    (tmp_path / "p.jinja").write_text("{{ content }}")
    assert (
        result_on(items, SUPERCLEVR_R1V.with_prompt(tmp_path / "p.jinja"))
        .remarks[0]
        .startswith("prompt: the text of p.jinja, sha256 ")
    )
    saved = summarise_by_protocol(SUPERCLEVR_R1V, items, subject=SUBJECT, remarks=("2 left out",), was_asked_here=False)
    assert saved.remarks == ("prompt: not known, the responses were saved elsewhere", "2 left out")


def test_two_results_compare_item_by_item():
    first, second = make_items("++--+"), make_items("+--++")
    found = compare_protocol_results((result_on(first), first), (result_on(second), second))
    assert (found.n, found.first, found.second, found.difference, found.p_value) == (5, 0.6, 0.6, 0.0, 1.0)
    assert (found.gained, found.lost) == (("p3",), ("p1",))
    low, high = found.ci95
    assert low < 0 < high


def test_results_that_are_not_comparable_are_refused():
    items = make_items("+-")
    other_words = replace(SUPERCLEVR_R1V, prompt="{{ content }} Count.", max_pixels=10)
    with pytest.raises(ValueError, match="differ in max_pixels, prompt of their protocols"):
        compare_protocol_results((result_on(items), items), (result_on(items, other_words), items))
    with pytest.raises(ValueError, match="not comparable: the items differ: 2 and 3 items"):
        compare_protocol_results((result_on(items), items), (result_on(make_items("+-+")), make_items("+-+")))


def test_a_result_of_which_too_much_has_no_score_is_none_and_compares_with_nothing():
    scored, half = make_items("+-+-"), make_items("+-??")
    assert not result_on(scored).is_none and result_on(half).is_none
    for pair in ((scored, half), (half, scored)):
        with pytest.raises(ValueError, match="not comparable: no result: the reward failed for 2 of 4 responses"):
            compare_protocol_results(*((result_on(items), items) for items in pair))
