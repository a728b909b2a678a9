"""Every key of EasyR1, in the order of its configuration."""

from collections.abc import Mapping
from typing import Any, Final

from sightline_tools.easyr1.key import Key
from sightline_tools.easyr1.keys_data import ALGORITHM, DATA
from sightline_tools.easyr1.keys_trainer import TRAINER
from sightline_tools.easyr1.keys_worker import WORKER

KEYS: Final[dict[str, Key]] = {key.name: key for key in (*DATA, *ALGORITHM, *WORKER, *TRAINER)}

ALWAYS: Final[Mapping[str, Any]] = {
    "data.video_max_frames": 768,
    "trainer.val_mode": "sampled",
    "algorithm.old_log_probs": "recompute",
}
"""Settings for what EasyR1 does without having a key for it: a video has up to 768 frames, validation samples as
`worker.rollout.val_override_config` says, and the ratio starts from log-probs that the actor computes."""
