"""What EasyR1's validation passes have in common (`examples/config.yaml` and `workers/reward` of hiyouga/EasyR1)."""

from typing import Final

from rl_core.evaluation.protocols.protocol import Answering, Judging

ANSWERING: Final = Answering(temperature=0.6, top_p=0.95, n=1, max_response_length=2048)
MAX_PROMPT_LENGTH: Final = 2048
MIN_PIXELS: Final = 262_144
MAX_PIXELS: Final = 4_194_304

_GRADER_CODE = ("rl_core.rewards.forms", "rl_core.rewards.grading")
_GRADER_PACKAGES = ("mathruler", "pylatexenc", "sympy")

BOXED: Final = Judging(
    function="math",
    kwargs={"grader": "mathruler"},
    code=("rl_core.rewards.builtin.math", *_GRADER_CODE),
    packages=_GRADER_PACKAGES,
    rule="white space around <, > and / goes; the last \\boxed{} is graded by mathruler; over all items",
)

TAGGED: Final = Judging(
    function="r1v",
    kwargs={"grader": "mathruler"},
    code=("rl_core.rewards.builtin.r1v", *_GRADER_CODE),
    packages=_GRADER_PACKAGES,
    rule="the first one-line <answer></answer>, else the whole response, is graded by mathruler; over all items",
)
