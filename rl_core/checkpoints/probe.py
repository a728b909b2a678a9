"""The probe: a few prompts and responses with the trainer's log-probs at the time when the checkpoint was saved.

It is plain JSON with images, so that a process without Sightline can compare another implementation of the model with
it (merged_check.py). Its log-probs are log_softmax(logits) in float32, without temperature and token ban, because every
implementation can compute these.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_core.distributed.ranks import TOPOLOGY_ALONE
from rl_core.files import read_json, relative_name
from rl_core.models.policy import PolicyModel
from rl_core.types import Float32Array, Group, Int32Array, Prompt, VideoClip

PROBE_NAME = "probe.json"
_PNG = b"\x89PNG"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeItem:
    """One prompt with one response.

    Attributes:
        name: `<prompt uid>/<sample index>`, for messages.
        token_ids: [P] int32 prompt, images expanded to their placeholder tokens.
        engine_token_ids: [E] int32 prompt with one placeholder for each image.
        response_ids, log_probs: [R] int32, and float32 log_softmax(logits) by the trainer.
        position_ids: [3, P] int64 for a prompt with videos, because implementations differ in the positions of the text
            after a video; None for any other prompt.
    """

    name: str
    token_ids: Int32Array
    engine_token_ids: Int32Array
    response_ids: Int32Array
    log_probs: Float32Array
    image_uids: tuple[str, ...] = ()
    videos: tuple[VideoClip, ...] = ()
    position_ids: npt.NDArray[np.int64] | None = None

    @property
    def shown_uids(self) -> tuple[str, ...]:
        """Uids of the images, then of the videos' frames."""
        return self.image_uids + tuple(uid for clip in self.videos for uid in clip.frame_uids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What is stored.

    Attributes:
        dtype: Number format of the trainer's weights.
        device: Name of the device that computed the log-probs.
        topology: The workers that trained together (Ranks.topology).
        images: Uid -> PNG or JPEG bytes of the items' images.
    """

    dtype: str
    device: str
    topology: str
    items: Sequence[ProbeItem]
    images: Mapping[str, bytes] = field(default_factory=dict)


def build_probe(
    groups: Sequence[Group],
    log_probs: Sequence[Sequence[Float32Array]],
    *,
    dtype: str,
    device: str,
    topology: str = TOPOLOGY_ALONE,
    encoded_image: Callable[[str], bytes],
    video_positions: Callable[[Prompt], npt.NDArray[np.int64]],
) -> Probe:
    """The probe of some groups.

    Args:
        log_probs: [group][rollout] -> [R], computed inside `plain_distribution` at temperature 1.
        encoded_image: Image uid -> PNG or JPEG bytes.
        video_positions: Prompt with videos -> [3, P] position ids.
    """
    items = [
        ProbeItem(
            name=f"{rollout.prompt_uid}/{rollout.sample_index}",
            token_ids=group.prompt.token_ids,
            engine_token_ids=group.prompt.engine_token_ids,
            response_ids=rollout.response_ids,
            log_probs=values,
            image_uids=group.prompt.image_uids,
            videos=group.prompt.videos,
            position_ids=video_positions(group.prompt) if group.prompt.videos else None,
        )
        for group, group_log_probs in zip(groups, log_probs, strict=True)
        for rollout, values in zip(group.rollouts, group_log_probs, strict=True)
    ]
    uids = {uid for item in items for uid in item.shown_uids}
    images = {uid: encoded_image(uid) for uid in sorted(uids)}
    return Probe(dtype=dtype, device=device, topology=topology, items=items, images=images)


@contextmanager
def plain_distribution(policy: PolicyModel) -> Iterator[None]:
    """Without the policy's ban on vision and padding tokens."""
    ban = policy.logit_bias.clone()
    policy.logit_bias.zero_()
    try:
        yield
    finally:
        policy.logit_bias.copy_(ban)


def write_probe(folder: Path, probe: Probe) -> None:
    """Write `probe.json` and the images into `folder`. Floats are written exactly."""
    folder.mkdir(parents=True, exist_ok=True)
    for uid, encoded in probe.images.items():
        (folder / _image_name(uid, encoded)).write_bytes(encoded)
    names = {uid: _image_name(uid, encoded) for uid, encoded in probe.images.items()}
    content = {
        "dtype": probe.dtype,
        "device": probe.device,
        "topology": probe.topology,
        "log_probs_are": "log_softmax(logits) in float32, without temperature and without banned tokens",
        "items": [_as_json(item, names) for item in probe.items],
    }
    (folder / PROBE_NAME).write_text(json.dumps(content, indent=1) + "\n")


def read_probe(folder: Path) -> Probe:
    """Read a probe, equal to the bit. Raises ValueError if it names a file outside its folder."""
    content = read_json(folder / PROBE_NAME)
    files = sorted({relative_name(name) for item in content["items"] for name in _files_of(item)})
    return Probe(
        dtype=content["dtype"],
        device=content["device"],
        topology=content["topology"],
        items=[_from_json(item) for item in content["items"]],
        images={Path(name).stem: (folder / name).read_bytes() for name in files},
    )


def differences(probe: Probe, log_probs: Sequence[Float32Array]) -> Float32Array:
    """|probe - log_probs|, with log_probs [item] -> [R], of all tokens of all items: [sum R]; NaN where either is
    NaN."""
    return np.concatenate([np.abs(item.log_probs - found) for item, found in zip(probe.items, log_probs, strict=True)])


def _image_name(uid: str, encoded: bytes) -> str:
    return f"{uid}.png" if encoded.startswith(_PNG) else f"{uid}.jpg"


def _as_json(item: ProbeItem, image_names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": item.name,
        "token_ids": item.token_ids.tolist(),
        "engine_token_ids": item.engine_token_ids.tolist(),
        "response_ids": item.response_ids.tolist(),
        "log_probs": item.log_probs.tolist(),
        "images": [image_names[uid] for uid in item.image_uids],
        "videos": [{"frames": [image_names[uid] for uid in clip.frame_uids], "fps": clip.fps} for clip in item.videos],
        "position_ids": None if item.position_ids is None else item.position_ids.tolist(),
    }


def _files_of(item: Mapping[str, Any]) -> list[str]:
    frames = [name for video in item["videos"] for name in video["frames"]]
    return [*item["images"], *frames]


def _uids(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(Path(name).stem for name in names)


def _from_json(item: Mapping[str, Any]) -> ProbeItem:
    positions = item["position_ids"]
    return ProbeItem(
        name=item["name"],
        token_ids=np.array(item["token_ids"], np.int32),
        engine_token_ids=np.array(item["engine_token_ids"], np.int32),
        response_ids=np.array(item["response_ids"], np.int32),
        log_probs=np.array(item["log_probs"], np.float32),
        image_uids=_uids(item["images"]),
        videos=tuple(VideoClip(frame_uids=_uids(video["frames"]), fps=video["fps"]) for video in item["videos"]),
        position_ids=None if positions is None else np.array(positions, np.int64),
    )
