"""Merged folders with a probe, made on the path that a training run takes."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from rl_core.checkpoints.probe import Probe, build_probe, plain_distribution, write_probe
from rl_core.config.model import TinyModel
from rl_core.families.registry import FAMILIES
from rl_core.models.loading import write_hf_folder
from rl_core.models.packing import TreeInput, prompt_positions
from rl_core.models.tiny import build_tiny_model
from rl_core.training.log_prob_pass import compute_log_probs
from rl_core.types import Group, Prompt
from tests.rl_core.builders import made_up_rollout
from tests.rl_core.models.builders import CORPUS, VIDEO_FAMILIES, VISION_FAMILIES, Bench, RenderedImages, clip


@dataclass(frozen=True)
class Merged:
    """A trained model's folder, the probe's folder, the probe, and what made it."""

    folder: Path
    probe_folder: Path
    probe: Probe
    bench: Bench
    groups: list[Group]


"""Family -> merged model: the fixture `merged`."""


def make_merged(root: Path, family: str) -> Merged:
    """In the first number format that vLLM has for the family on a CPU."""
    dtype = FAMILIES[family].engine.cpu_dtypes[0]
    source = TinyModel.model_validate({"type": "tiny", "family": family, "num_layers": 2, "vision_depth": 2})
    build_tiny_model(source, root / "initial", corpus=CORPUS, seed=1)
    bench = Bench.load(root / "initial", dtype=dtype)
    write_hf_folder(bench.policy.model, processor_folder=root / "initial", folder=root / "merged")
    groups = probe_groups(bench, family)
    probe = make_probe(bench, groups, dtype=dtype)
    write_probe(root / "probe", probe)
    return Merged(folder=root / "merged", probe_folder=root / "probe", probe=probe, bench=bench, groups=groups)


def probe_groups(bench: Bench, family: str) -> list[Group]:
    """Prompts with no, one and two images and with a video; ragged responses, one of a single token."""
    trees = [bench.tree([5], [], [4, 1], seed=1)]
    if family in VISION_FAMILIES:
        trees.append(bench.tree([3, 6], ["square-1"], [7], seed=2))
        trees.append(bench.tree([2, 3, 4], ["wide-1", "square-1"], [1, 5], seed=3))
    if family in VIDEO_FAMILIES:
        video = clip("small", frames=20, fps=0.7)  # its last step lies behind its width: implementations differ there
        trees.append(bench.tree([2, 3, 4], ["square-1"], [4], videos=[video], seed=4))
    return [group_of(tree) for tree in trees]


def make_probe(bench: Bench, groups: list[Group], *, dtype: str = "float32") -> Probe:
    with plain_distribution(bench.policy):
        log_probs = compute_log_probs(bench.policy, groups, pixels=bench.pixels, temperature=1.0, token_budget=64)

    def positions(prompt: Prompt) -> np.ndarray:
        images, videos = bench.pixels.get(prompt.image_uids), bench.pixels.get_videos(prompt.videos)
        return prompt_positions(prompt, images, videos, bench.policy.config)

    return build_probe(
        groups, log_probs, dtype=dtype, device="CPU", encoded_image=encoded_image, video_positions=positions
    )


def encoded_image(uid: str) -> bytes:
    buffer = BytesIO()
    RenderedImages().image(uid).save(buffer, "PNG")
    return buffer.getvalue()


def group_of(tree: TreeInput) -> Group:
    rollouts = [
        made_up_rollout(tree.prompt.uid, index, response, np.zeros(len(response), np.float32), version=1)
        for index, response in enumerate(tree.responses)
    ]
    return Group(prompt=tree.prompt, rollouts=rollouts)
