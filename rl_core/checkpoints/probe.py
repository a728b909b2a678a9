"""The probe: a few prompts and responses with the trainer's log-probs at the time when the checkpoint was saved.

It is plain JSON with images, so that a process without Sightline can compare another implementation of the model with
it (merged_check.py). Its log-probs are log_softmax(logits) in float32, without temperature and token ban, because every
implementation can compute these.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from rl_core.distributed.ranks import TOPOLOGY_ALONE
from rl_core.files import read_json, relative_name
from rl_core.models.policy import PolicyModel
from rl_core.types import Float32Array, Group, Insertion, Int64Array, Prompt, Rollout, VideoClip

PROBE_NAME = "probe.json"
_PNG = b"\x89PNG"


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What is stored.

    Attributes:
        dtype: Number format of the trainer's weights.
        device: Name of the device that computed the log-probs.
        topology: The workers that trained together (Ranks.topology).
        groups: Prompts and responses; `log_probs` of a rollout are log_softmax(logits) by the trainer. One that was
            read has only what a pass of the model needs.
        positions: Uid of a prompt with videos -> [3, P] int64 position ids, because implementations differ in those of
            the text after a video.
        images: Uid -> PNG or JPEG bytes of the images.
    """

    dtype: str
    device: str
    topology: str
    groups: Sequence[Group]
    positions: Mapping[str, Int64Array] = field(default_factory=dict)
    images: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def rollouts(self) -> list[Rollout]:
        """Those of all groups."""
        return [rollout for group in self.groups for rollout in group.rollouts]


def build_probe(
    groups: Sequence[Group],
    log_probs: Sequence[Sequence[Float32Array]],
    *,
    dtype: str,
    device: str,
    topology: str = TOPOLOGY_ALONE,
    encoded_image: Callable[[str], bytes],
    video_positions: Callable[[Prompt], Int64Array],
) -> Probe:
    """The probe of some groups.

    Args:
        log_probs: [group][rollout] -> [R], computed inside `plain_distribution` at temperature 1.
        encoded_image: Image uid -> PNG or JPEG bytes.
        video_positions: Prompt with videos -> [3, P] position ids.
    """
    uids = {uid for group in groups for uid in group.prompt.shown_uids}
    uids |= {uid for group in groups for rollout in group.rollouts for uid in rollout.image_uids}
    return Probe(
        dtype=dtype,
        device=device,
        topology=topology,
        groups=[_with_log_probs(group, found) for group, found in zip(groups, log_probs, strict=True)],
        positions={group.prompt.uid: video_positions(group.prompt) for group in groups if group.prompt.videos},
        images={uid: encoded_image(uid) for uid in sorted(uids)},
    )


def _with_log_probs(group: Group, log_probs: Sequence[Float32Array]) -> Group:
    pairs = zip(group.rollouts, log_probs, strict=True)
    return replace(group, rollouts=[replace(rollout, log_probs=found) for rollout, found in pairs])


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
        "items": [
            _as_json(group.prompt, rollout, names, probe.positions.get(group.prompt.uid))
            for group in probe.groups
            for rollout in group.rollouts
        ],
    }
    (folder / PROBE_NAME).write_text(json.dumps(content, indent=1) + "\n")


def read_probe(folder: Path) -> Probe:
    """Read a probe, equal to the bit. Raises ValueError if it names a file outside its folder."""
    content = read_json(folder / PROBE_NAME)
    items: list[dict[str, Any]] = content["items"]
    files = sorted({relative_name(name) for item in items for name in _files_of(item)})
    positions = {_uid_of(item): item["position_ids"] for item in items if item["position_ids"] is not None}
    return Probe(
        dtype=content["dtype"],
        device=content["device"],
        topology=content["topology"],
        # In the groups in which they were saved, because another packing rounds differently.
        groups=[_from_json(uid, list(of_prompt)) for uid, of_prompt in groupby(items, key=_uid_of)],
        positions={uid: np.array(values, np.int64) for uid, values in positions.items()},
        images={Path(name).stem: (folder / name).read_bytes() for name in files},
    )


def differences(probe: Probe, log_probs: Sequence[Float32Array]) -> Float32Array:
    """|probe - log_probs|, with log_probs [rollout] -> [R], of all tokens of all rollouts: [sum R]; NaN where either is
    NaN."""
    return np.concatenate([np.abs(one.log_probs - found) for one, found in zip(probe.rollouts, log_probs, strict=True)])


def _image_name(uid: str, encoded: bytes) -> str:
    return f"{uid}.png" if encoded.startswith(_PNG) else f"{uid}.jpg"


def _as_json(
    prompt: Prompt, rollout: Rollout, image_names: Mapping[str, str], positions: Int64Array | None
) -> dict[str, Any]:
    return {
        "name": f"{prompt.uid}/{rollout.sample_index}",
        "token_ids": prompt.token_ids.tolist(),
        "engine_token_ids": prompt.engine_token_ids.tolist(),
        "response_ids": rollout.response_ids.tolist(),
        "log_probs": rollout.log_probs.tolist(),
        "images": [image_names[uid] for uid in prompt.image_uids],
        "videos": [
            {"frames": [image_names[uid] for uid in clip.frame_uids], "fps": clip.fps} for clip in prompt.videos
        ],
        "position_ids": None if positions is None else positions.tolist(),
        "insertions": [
            put.as_record() | {"images": [image_names[uid] for uid in put.image_uids]} for put in rollout.insertions
        ],
    }


def _files_of(item: Mapping[str, Any]) -> list[str]:
    frames = [name for video in item["videos"] for name in video["frames"]]
    later = [name for put in item["insertions"] for name in put["images"]]
    return [*item["images"], *frames, *later]


def _uids(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(Path(name).stem for name in names)


def _uid_of(item: Mapping[str, Any]) -> str:
    return str(item["name"]).rpartition("/")[0]


def _from_json(uid: str, items: Sequence[Mapping[str, Any]]) -> Group:
    asked = items[0]
    prompt = Prompt(
        uid=uid,
        data_source="probe",
        question="",
        text="",
        answer="",
        token_ids=np.array(asked["token_ids"], np.int32),
        engine_token_ids=np.array(asked["engine_token_ids"], np.int32),
        image_uids=_uids(asked["images"]),
        videos=tuple(VideoClip(frame_uids=_uids(video["frames"]), fps=video["fps"]) for video in asked["videos"]),
    )
    rollouts = [
        Rollout(
            prompt_uid=uid,
            sample_index=int(item["name"].rpartition("/")[2]),
            response_ids=np.array(item["response_ids"], np.int32),
            log_probs=np.array(item["log_probs"], np.float32),
            text="",
            finish_reason="length",
            policy_version=0,
            insertions=tuple(Insertion.of_record(put) for put in item["insertions"]),
        )
        for item in items
    ]
    return Group(prompt=prompt, rollouts=rollouts)
