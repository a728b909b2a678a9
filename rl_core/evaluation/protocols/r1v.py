"""What R1-V's two evaluation scripts have in common (`src/eval` of Deep-Agent/R1-V)."""

from pathlib import Path
from typing import Final

from rl_core.sources.columns import Columns

SCORERS: Final = Path(__file__).parent / "scorers"
SCORERS_PACKAGE: Final = f"{__package__}.scorers"

COLUMNS: Final = Columns(prompt_key="question", image_key="image_path", images_first=True, answer_key="ground_truth")
"""Of the published prompt files, whose items are one image and a question without a place for it."""

MAX_PROMPT_LENGTH: Final = 8192
"""The scripts have no limit; no published item comes near this one."""

MIN_PIXELS: Final = 4 * 28 * 28
MAX_PIXELS: Final = 16_384 * 28 * 28
"""The defaults of qwen-vl-utils and of the Qwen2-VL processor, which the scripts leave alone."""
