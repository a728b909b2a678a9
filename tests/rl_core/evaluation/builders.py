"""Evaluation items for tests."""

from dataclasses import replace

from rl_core.evaluation.items import EvaluationItem

ITEM = EvaluationItem(
    uid="p0",
    data_source="test",
    image_uids=("i0",),
    question="How many?",
    prompt="<|im_start|>user\nHow many?",
    answer="3",
    response="<answer>3</answer>",
    parsed="3",
    parse_failed=False,
    is_right=True,
    components={"overall": 1.0, "accuracy": 1.0, "format": 1.0},
    length=5,
    finish_reason="stop",
    mode="greedy",
    sample_index=0,
    error=None,
)


def make_items(grades: str, **fields) -> list[EvaluationItem]:
    """One greedy item a sign: "+" is right, "-" is wrong, "?" has no score."""
    items = [
        replace(ITEM, uid=f"p{i}", image_uids=(f"i{i}",), is_right=sign == "+", **fields)
        for i, sign in enumerate(grades)
    ]
    nothing = {"is_right": None, "components": {}, "error": "HTTP 429", "parsed": None, "parse_failed": None}
    return [replace(item, **nothing) if sign == "?" else item for item, sign in zip(items, grades, strict=True)]
