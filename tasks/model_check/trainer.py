"""Checks of the trainer: packed trees against single sequences through transformers' own model."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from transformers import AutoProcessor, PreTrainedModel

from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE, REJECTED_FILE
from rl_core.export.merged_check import sequence_inputs, whole_attention
from rl_core.files import read_json
from rl_core.models.loading import has_vision, load_architecture, model_class
from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel, load_policy
from rl_core.training.determinism import use_full_float32
from rl_core.types import Group, Prompt, Rollout
from tasks.device_check.check import Finding, Setting, compared
from tasks.device_check.trial import Dtype, Trial, made_groups, prepare_trial
from tasks.model_check.checks import GRADIENTS, REPEATS, ROWS, TREES
from tasks.model_check.experts import without_choice

_LENGTHS: Final = (1, 40, 7, 2)
"""Tokens of the responses to each prompt: one, and more than a short window or convolution."""

_LARGEST: Final[dict[Dtype, float]] = {"float32": 2e-5, "bfloat16": 1.0}
_MEAN: Final[dict[Dtype, float]] = {"float32": 5e-6, "bfloat16": 0.03}
"""Bounds on differences of log-probs, nats."""

_GRADIENT: Final = 1e-4
"""Bound on the norm of a difference of gradients of a weight, as a share of its norm, or of `_UNEVEN` of the norm of
all gradients where it is smaller."""

_UNEVEN: Final = 0.01


def trainer_findings(setting: Setting) -> Iterator[Finding]:
    """Whether the trainer computes what transformers does."""
    use_full_float32()
    assert setting.model is not None, "a check of a given model"
    own = read_json(setting.model / "config.json")["dtype"]
    setting = setting if own == "float32" else without_choice(setting)
    trial = prepare_trial(setting, "float32", model={"gradient_checkpointing": True, "dtype": own})
    dtype = trial.config.model.dtype
    yield _rows(trial)
    groups = made_groups(trial, *_LENGTHS)
    folder = trial.run.initial_model
    images = ImageStore(trial.run.data / IMAGES_FILE)
    ours = _Ours(load_policy(folder, trial.config.model), PixelCache(folder, images))
    theirs = _Theirs.load(trial, images, logit_bias=ours.policy.logit_bias)
    has_gradients = dtype == "float32"
    with torch.set_grad_enabled(has_gradients):
        found = [_both(ours, theirs, group, backward=has_gradients) for group in groups]
    yield _values(found, groups, dtype)
    if has_gradients:
        yield _gradients(ours.policy.model, theirs.model)
    with torch.no_grad():
        passes = [torch.cat([ours.log_probs(group) for group in groups]) for _ in range(2)]
    yield compared(
        REPEATS,
        holds=torch.equal(*passes),
        measured=f"largest difference {float((passes[0] - passes[1]).abs().max()):.1e}",
        advice="something random is left in the model, such as dropout under a name of its own",
    )


def _rows(trial: Trial) -> Finding:
    """How many images the checked prompts have. A processor may refuse single sizes, and then names them."""
    images = sum(len(prompt.image_uids) for prompt in trial.prompts)
    refused = [json.loads(line)["reason"] for line in (trial.run.data / REJECTED_FILE).read_text().splitlines()]
    sees = has_vision(load_architecture(trial.run.initial_model))
    return compared(
        ROWS,
        holds=images > 0 or not sees,
        measured=f"{len(trial.prompts)} prompts with {images} images; {len(refused)} rows are refused"
        + (f", such as: {refused[0]}" if refused else ""),
        advice="no image can be made a prompt: the family's file and the model's processor do not fit together",
    )


@dataclass
class _Ours:
    policy: PolicyModel
    pixels: PixelCache

    def log_probs(self, group: Group) -> torch.Tensor:
        """[K] of a packed tree."""
        tree = TreeInput(prompt=group.prompt, responses=[rollout.response_ids for rollout in group.rollouts])
        packed = pack_trees([tree], pixels=self.pixels, model_config=self.policy.config, device=self.policy.device)
        found: torch.Tensor = self.policy(packed, temperature=1.0).log_probs
        return found


@dataclass
class _Theirs:
    """transformers' own model, which takes one sequence at a time."""

    model: PreTrainedModel
    processor: Any
    images: ImageStore
    logit_bias: torch.Tensor

    @classmethod
    def load(cls, trial: Trial, images: ImageStore, *, logit_bias: torch.Tensor) -> "_Theirs":
        folder = trial.run.initial_model
        architecture = load_architecture(folder)
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False) if has_vision(architecture) else None
        model = model_class(architecture).from_pretrained(
            folder,
            dtype=getattr(torch, trial.config.model.dtype),
            attn_implementation=whole_attention(architecture),
            trust_remote_code=False,
        )
        return cls(model.eval(), processor, images, logit_bias)

    def log_probs(self, group: Group) -> torch.Tensor:
        """[K] of each response in a sequence of its own, which has the prompt too."""
        return torch.cat([self._of_response(group.prompt, rollout) for rollout in group.rollouts])

    def _of_response(self, prompt: Prompt, rollout: Rollout) -> torch.Tensor:
        item = {
            "token_ids": prompt.token_ids.tolist(),
            "response_ids": rollout.response_ids.tolist(),
            "images": [self.images.image(uid) for uid in prompt.image_uids],
            "videos": [],
            "insertions": [],
        }
        inputs = sequence_inputs(self.model, self.processor, item, "cpu")
        length = len(rollout.response_ids)
        logits = self.model(**inputs, use_cache=False, logits_to_keep=length + 1).logits[0, -length - 1 : -1].float()
        every = torch.log_softmax(logits + self.logit_bias, dim=-1)
        return every.gather(1, inputs["input_ids"][0, -length:, None])[:, 0]


def _both(ours: _Ours, theirs: _Theirs, group: Group, *, backward: bool) -> tuple[np.ndarray[Any, Any], ...]:
    """The log-probs of a group by both; their gradients are those of a sum with drawn weights."""
    sides = []
    for side in (ours, theirs):
        found = side.log_probs(group)
        if backward:
            found.backward(torch.randn(len(found), generator=torch.Generator().manual_seed(0)))
        sides.append(found.detach().float().numpy())
    return tuple(sides)


def _values(found: Sequence[tuple[np.ndarray[Any, Any], ...]], groups: Sequence[Group], dtype: Dtype) -> Finding:
    gaps = [np.nan_to_num(np.abs(ours - theirs), nan=np.inf) for ours, theirs in found]
    every = np.concatenate(gaps)
    worst = max(range(len(gaps)), key=lambda number: gaps[number].max())
    place = f"response token {int(gaps[worst].argmax())} of prompt {groups[worst].prompt.uid}"
    images = len(groups[worst].prompt.image_uids)
    largest, mean = float(every.max()), float(every.mean())
    return compared(
        TREES,
        holds=largest <= _LARGEST[dtype] and mean <= _MEAN[dtype],
        measured=f"{len(every)} log-probs differ by at most {largest:.1e} (bound {_LARGEST[dtype]:.0e}), {mean:.1e} in "
        f"the mean, most at {place} with {images} images",
        advice="a layer of the model computes something else where prompts are shared: it cannot be trained",
        figures={"largest": largest, "mean": mean},
    )


def _gradients(ours: torch.nn.Module, theirs: torch.nn.Module) -> Finding:
    expected = {name: weight.grad for name, weight in theirs.named_parameters() if weight.grad is not None}
    actual = {name: weight.grad for name, weight in ours.named_parameters() if weight.grad is not None}
    total = float(torch.stack([gradient.norm() for gradient in expected.values()]).norm())
    errors = {
        name: float((actual[name] - gradient).norm() / max(float(gradient.norm()), _UNEVEN * total))
        if name in actual
        else np.inf
        for name, gradient in expected.items()
    }
    worst = max(errors, key=lambda name: errors[name])
    return compared(
        GRADIENTS,
        holds=errors[worst] <= _GRADIENT,
        measured=f"of {len(errors)} weights that of {worst} differs most, by {errors[worst]:.1e} of its norm (bound "
        f"{_GRADIENT:.0e})",
        advice="the backward pass of a layer is wrong where prompts are shared: the model cannot be trained",
        figures={"largest": errors[worst]},
    )
