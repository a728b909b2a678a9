"""Prompt texts of the protocols, in our own words; the answer formats are the published ones.

The first two are the texts of configs/prompts/math.jinja and r1v.jinja, so that a model is measured with the prompt
that it was trained with.
"""

from typing import Final

BOXED: Final = (
    "{{ content }}\n"
    "Before you answer, work the problem out step by step inside <think> and </think>. "
    "After that, state your result once, inside \\boxed{}."
)

TAGGED: Final = (
    "{{ content }}\n"
    "Write your reasoning between <think> and </think>, then nothing but the result between <answer> and </answer>."
)

FIRST_THOUGHTS_THEN_NUMBER: Final = (
    "{{ content }} Think first, between <think> and </think>; then give the final answer, a number, between <answer> "
    "and </answer>."
)

THOUGHTS_AND_NUMBER: Final = (
    "{{ content }} Put your thinking between <think> and </think>, and the final answer, a number, between <answer> "
    "and </answer>."
)
