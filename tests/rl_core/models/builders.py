"""Small policies, images and trees for the tests of the models."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoTokenizer

from rl_core.config.model import ModelConfig, TinyModel
from rl_core.data.vision_tokens import VisionTokens
from rl_core.families import registry
from rl_core.families.patch_grid import PatchGrid
from rl_core.families.vision import VideoShape
from rl_core.models.packing import PackedTrees, TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel, load_policy
from rl_core.models.tiny import build_tiny_model
from rl_core.types import Prompt, VideoClip
from tests.rl_core.matrix import MATRIX

VISION_FAMILIES = tuple(name for name in MATRIX if registry.FAMILIES[name].vision is not None)
PATCH_GRIDS = tuple(name for name in VISION_FAMILIES if isinstance(registry.FAMILIES[name].vision, PatchGrid))
VIDEO_FAMILIES = tuple(name for name in VISION_FAMILIES if registry.FAMILIES[name].vision.video_text is not None)
TEXT_FAMILIES = tuple(name for name in MATRIX if name not in VISION_FAMILIES)
FAMILIES = VISION_FAMILIES + TEXT_FAMILIES

CORPUS = ("How many objects are there?", *(f"<answer>{number}</answer>" for number in range(10)))
PLAIN_TOKENS = 256  # the byte tokens: ids below it are text in every tiny model
ModelFolder = Callable[[str], Path]
"""Family -> Hugging Face folder: the fixture `model_folder`."""
IMAGE_SIZES = {"square": (84, 84), "wide": (168, 56), "tall": (28, 112), "small": (56, 56)}


def clip(name: str, *, frames: int = 4, fps: float = 2.0) -> VideoClip:
    """Frames of noise of a named size."""
    return VideoClip(frame_uids=tuple(f"{name}-frame{number}" for number in range(frames)), fps=fps)


def clip_shape(video: VideoClip) -> VideoShape:
    width, height = IMAGE_SIZES[video.frame_uids[0].split("-")[0]]
    return VideoShape(len(video.frame_uids), width, height, video.fps)


class RenderedImages:
    """Images of noise, drawn from their uid: `<name of a size>-<anything>`."""

    def __init__(self) -> None:
        self.rendered: list[str] = []

    def image(self, uid: str) -> Image.Image:
        self.rendered.append(uid)
        width, height = IMAGE_SIZES[uid.split("-")[0]]
        noise = np.random.default_rng(zlib.crc32(uid.encode())).integers(0, 256, (height, width, 3), dtype=np.uint8)
        return Image.fromarray(noise)


def write_small_model(folder: Path, family: str) -> Path:
    """A model of a few ten thousand weights; every mechanism of the family is in it."""
    sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    vision = {"vision_depth": 3, "vision_hidden_size": 32}
    source = TinyModel.model_validate({"type": "tiny", "family": family, **sizes, **vision})
    build_tiny_model(source, folder, corpus=CORPUS, seed=1)
    return folder


def model_config(folder: Path, **fields: object) -> ModelConfig:
    return ModelConfig.model_validate(
        {"source": {"type": "pretrained", "path": str(folder)}, "dtype": "float32", **fields}
    )


def roughen(model: torch.nn.Module, *, seed: int = 0) -> None:
    """Give every weight a size at which attention is far from uniform, no bias or norm is trivial, and a state is kept
    over many tokens."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith(".A_log"):
                parameter.copy_(0.5 * noise - 2.5)
            elif parameter.ndim > 1:
                parameter.copy_(noise / parameter[0].numel() ** 0.5)
            else:
                parameter.add_(0.2 * noise)


@dataclass
class Bench:
    """A policy with what packing needs."""

    policy: PolicyModel
    pixels: PixelCache
    vision: VisionTokens

    @classmethod
    def load(cls, folder: Path, **fields: object) -> "Bench":
        policy = load_policy(folder, model_config(folder, **fields))
        roughen(policy)
        vision = VisionTokens(folder, AutoTokenizer.from_pretrained(folder))
        return cls(policy=policy, pixels=PixelCache(folder, RenderedImages()), vision=vision)

    def place(self, kind: str) -> list[int]:
        """The tokens that a chat template writes for an `image` or a `video`."""
        text = getattr(registry.vision_of(self.policy.config.model_type), f"{kind}_text")
        return self.vision._tokenizer.encode(text, add_special_tokens=False)

    def prompt(
        self, text_lengths: Sequence[int], image_uids: Sequence[str], *, videos: Sequence[VideoClip] = (), seed: int = 0
    ) -> Prompt:
        """Runs of text with an image or, after all images, a video between each two; one run more than these, at least
        one token in all."""
        rng = np.random.default_rng(seed)
        runs = [rng.integers(0, PLAIN_TOKENS, length) for length in text_lengths]
        media = [self.vision.of_image(*IMAGE_SIZES[uid.split("-")[0]]) for uid in image_uids]
        media += [self.vision.of_video(clip_shape(clip)) for clip in videos]
        places = [self.place("image") for _ in image_uids] + [self.place("video") for _ in videos]
        pieces, engine_pieces = [runs[0]], [runs[0]]
        for tokens, place, run in zip(media, places, runs[1:], strict=True):
            (at,) = np.flatnonzero(np.isin(place, [self.vision.image_token_id, self.vision.video_token_id or -1]))
            pieces += [place[:at], tokens, place[at + 1 :], run]
            engine_pieces += [place, run]
        return Prompt(
            uid=f"prompt-{seed}",
            data_source="test",
            question="",
            text="",
            answer="",
            token_ids=np.concatenate(pieces).astype(np.int32),
            engine_token_ids=np.concatenate(engine_pieces).astype(np.int32),
            image_uids=tuple(image_uids),
            videos=tuple(videos),
        )

    def tree(
        self,
        text_lengths: Sequence[int],
        image_uids: Sequence[str],
        response_lengths: Sequence[int],
        *,
        videos: Sequence[VideoClip] = (),
        seed: int = 0,
    ) -> TreeInput:
        rng = np.random.default_rng([seed, 1])
        responses = [rng.integers(0, PLAIN_TOKENS, length).astype(np.int32) for length in response_lengths]
        prompt = self.prompt(text_lengths, image_uids, videos=videos, seed=seed)
        return TreeInput(prompt=prompt, responses=responses)

    def pack(self, trees: Sequence[TreeInput]) -> PackedTrees:
        return pack_trees(trees, pixels=self.pixels, model_config=self.policy.config, device=self.policy.device)

    def two_trees(self) -> PackedTrees:
        """Two responses, with an image where the family sees, and a single one without."""
        images = ["wide-1"] if hasattr(self.policy.config, "vision_config") else []
        return self.pack([self.tree([6] * (len(images) + 1), images, [5, 3]), self.tree([4], [], [2], seed=1)])


def relative_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float((actual - expected).norm() / expected.norm())


def take_gradients(model: torch.nn.Module) -> torch.Tensor:
    """All gradients as one vector (zeros where a weight has none); the model is left without."""
    pieces = [
        torch.zeros_like(weight).flatten() if weight.grad is None else weight.grad.flatten()
        for weight in model.parameters()
    ]
    model.zero_grad(set_to_none=True)
    return torch.cat(pieces)


def varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """What flash_attn_varlen_func is documented to compute; a causal mask is aligned to the bottom right, and a window
    is (keys before, keys after) the query's own place there."""
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    lengths_q, lengths_k = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()
    assert max(lengths_q) <= max_seqlen_q and max(lengths_k) <= max_seqlen_k
    outputs = []
    runs = zip(query.split(lengths_q), key.split(lengths_k), value.split(lengths_k), strict=True)
    for q, k, v in runs:
        mask = torch.ones(len(q), len(k), dtype=torch.bool)
        mask = mask.tril(len(k) - len(q)) if causal else mask
        mask = mask.triu(len(k) - len(q) - window_size[0]) if window_size[0] >= 0 else mask
        q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=softmax_scale, enable_gqa=True)
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)


def trained_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
