"""Where a model family puts the tokens of images and videos in time."""

from collections.abc import Mapping, Sequence

import numpy as np
from transformers import PreTrainedConfig

from rl_core.models.pixels import VisionPixels
from rl_core.models.positions import VisionRun

_FRAMES_OF_A_STEP = 2


def vision_runs(
    images: Sequence[VisionPixels], videos: Sequence[VisionPixels], config: PreTrainedConfig
) -> Mapping[int, Sequence[VisionRun]]:
    """The runs of a prompt's images and videos by their placeholder token.

    Qwen2-VL counts the steps of a video one by one, Qwen2.5-VL by the seconds between them (arXiv:2502.13923, section
    2.1.2); Qwen3-VL writes the time as text before every step, which is a run of its own (arXiv:2511.21631).
    """
    return {
        config.image_token_id: [VisionRun(image.grid_thw) for image in images],
        config.video_token_id: [run for video in videos for run in _video_runs(video, config)],
    }


def _video_runs(video: VisionPixels, config: PreTrainedConfig) -> list[VisionRun]:
    steps, height, width = video.grid_thw
    if config.model_type.startswith("qwen3"):
        return [VisionRun((1, height, width))] * steps
    tokens_per_second = getattr(config.vision_config, "tokens_per_second", None)
    if tokens_per_second is None:
        return [VisionRun(video.grid_thw)]
    # In float32, as processors hand it to the models: the positions are cut to whole numbers.
    seconds = float(np.float32(_FRAMES_OF_A_STEP / video.fps))
    return [VisionRun(video.grid_thw, interval=seconds * tokens_per_second)]
