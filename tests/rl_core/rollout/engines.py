"""Tiny policies of every family, prompts for them, engines on them, and the log-probs of transformers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from rl_core.config.model import LoraConfig, TinyModel
from rl_core.config.training import RolloutConfig
from rl_core.distributed.ranks import WHOLE, GeneratorRanks
from rl_core.families import registry
from rl_core.models.loading import banned_token_ids, load_processor, stop_token_ids
from rl_core.models.named_weights import named_hf_weights
from rl_core.models.pixels import PixelCache
from rl_core.models.tiny import build_tiny_model
from rl_core.randomness import keyed_seed
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.types import Float32Array, GenerationRequest, Prompt, Requests, Rollout, RolloutKey, Sampling
from tests.rl_core.matrix import MATRIX

FAMILIES = tuple(name for name in MATRIX if "float32" in registry.FAMILIES[name].engine.cpu_dtypes)
"""Those that vLLM computes in float32 on a CPU."""
VISION_FAMILIES = tuple(name for name in FAMILIES if registry.FAMILIES[name].vision is not None)
QUESTION = "How many objects are there? Reply with the number inside <answer></answer>."
MAX_PROMPT_LENGTH = 512
MAX_RESPONSE_LENGTH = 12
MAX_NUM_SEQS = 16


class DrawnImages:
    """An image store that draws noise: the uid "84x56-3" is the third image of 84 by 56 pixels."""

    def image(self, uid: str) -> Image.Image:
        size, seed = uid.split("-")
        width, height = map(int, size.split("x"))
        pixels = np.random.default_rng(int(seed)).integers(0, 256, (height, width, 3), dtype=np.uint8)
        return Image.fromarray(pixels)


@dataclass(frozen=True)
class TinyPolicy:
    """A tiny model's folder and the weights of its trainer, far enough from uniform to tell tokens apart."""

    family: str
    folder: Path
    model: PreTrainedModel

    @property
    def has_vision(self) -> bool:
        return registry.FAMILIES[self.family].vision is not None

    @cached_property
    def processor(self):
        return load_processor(self.folder)

    @cached_property
    def banned(self) -> tuple[int, ...]:
        return banned_token_ids(self.folder)

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        return stop_token_ids(self.folder)

    def prompt(self, uid: str, images: Sequence[str] = (), *, question: str = QUESTION) -> Prompt:
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": question}]
        chat = [{"role": "user", "content": content if self.has_vision else question}]
        text = self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        tokenizer = self.processor.tokenizer if self.has_vision else self.processor
        seen = self.processor(text=[text], images=[DrawnImages().image(u) for u in images]) if images else None
        engine_ids = np.array(tokenizer(text)["input_ids"], dtype=np.int32)
        return Prompt(
            uid=uid,
            data_source="test",
            question=question,
            text=text,
            answer="3",
            token_ids=np.array(seen["input_ids"][0], dtype=np.int32) if seen else engine_ids,
            engine_token_ids=engine_ids,
            image_uids=tuple(images),
        )

    def prompts(self) -> list[Prompt]:
        """Without, with one and with two images, for the families that see."""
        prompts = [self.prompt("text"), self.prompt("short", question="How many?")]
        if self.has_vision:
            prompts.append(self.prompt("one image", ["84x84-1"]))
            prompts.append(self.prompt("two images", ["84x84-2", "56x140-3"]))
            prompts.append(self.prompt("same image", ["84x84-1"], question="Are there many objects?"))
        return prompts

    def image_inputs(self, prompt: Prompt, sequence: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the model's forward takes besides `sequence`, [1, P + R] token ids."""
        if not prompt.image_uids:
            return {}
        images = [DrawnImages().image(uid) for uid in prompt.image_uids]
        made = self.processor(text=[self.processor.image_token * len(images)], images=images, return_tensors="pt")
        made["mm_token_type_ids"] = (sequence == self.model.config.image_token_id).int()
        takes = signature(self.model.forward).parameters.keys() - {"input_ids", "attention_mask"}
        return {name: made[name] for name in made if name in takes}

    def log_probs(self, prompt: Prompt, response: Sequence[int], *, temperature: float) -> Float32Array:
        """[R] log-probs of a response, by one float32 forward of transformers over prompt and response."""
        sequence = torch.tensor([[*prompt.token_ids.tolist(), *response]])
        with torch.no_grad():
            logits = self.model(sequence, use_cache=False, **self.image_inputs(prompt, sequence)).logits[0]
        logits = logits[len(prompt.token_ids) - 1 : -1]
        logits[:, list(self.banned)] -= 100.0
        every = (logits / temperature).log_softmax(dim=-1)
        return every.gather(1, torch.tensor(response)[:, None])[:, 0].numpy()

    def first_logits(self, prompt: Prompt) -> torch.Tensor:
        """[V] logits of the response's first token."""
        return self._last_hidden_state(prompt) @ self.model.get_output_embeddings().weight.T

    def head_row_in_favour(self, prompt: Prompt, *, logit: float) -> torch.Tensor:
        """[H] the row of the output head that gives its token this logit at the response's first place."""
        hidden = self._last_hidden_state(prompt)
        return logit * hidden / (hidden @ hidden)

    def _last_hidden_state(self, prompt: Prompt) -> torch.Tensor:
        sequence = torch.tensor([prompt.token_ids.tolist()])
        with torch.no_grad():
            return self.model.base_model(sequence, **self.image_inputs(prompt, sequence)).last_hidden_state[0, -1]


def make_requests(prompts: Sequence[Prompt], n: int, *, purpose: str = "test") -> list[GenerationRequest]:
    return [
        GenerationRequest(prompt=prompt, sample_index=i, seed=keyed_seed(7, purpose, prompt.uid, i))
        for prompt in prompts
        for i in range(n)
    ]


def training_sampling(temperature: float = 1.0) -> Sampling:
    return Sampling(temperature=temperature, max_tokens=MAX_RESPONSE_LENGTH)


def by_key(rollouts: Iterator[Rollout]) -> dict[RolloutKey, Rollout]:
    return {rollout.key: rollout for rollout in rollouts}


def assert_same_rollouts(first: dict[RolloutKey, Rollout], second: dict[RolloutKey, Rollout]) -> None:
    """Equal to the bit, tokens and log-probs."""
    assert first.keys() == second.keys()
    for key, rollout in first.items():
        np.testing.assert_array_equal(rollout.response_ids, second[key].response_ids, err_msg=str(key))
        np.testing.assert_array_equal(rollout.log_probs, second[key].log_probs, err_msg=str(key))


def assert_first_tokens_follow_the_distribution(engine: VllmEngine, policy: TinyPolicy) -> None:
    """Counts of the likeliest first tokens against their probabilities, by Pearson's statistic."""
    prompt, draws, temperature = policy.prompt("short", question="How many?"), 300, 0.2
    sampling = Sampling(temperature=temperature, max_tokens=1)
    first = [int(rollout.response_ids[0]) for rollout in engine.generate(make_requests([prompt], draws), sampling)]
    logits = policy.first_logits(prompt).detach()
    logits[list(policy.banned)] -= 100
    expected = draws * (logits / temperature).softmax(dim=0)
    top = [token for token in expected.topk(10).indices.tolist() if expected[token] > 5]
    statistic = sum((first.count(token) - float(expected[token])) ** 2 / float(expected[token]) for token in top)
    assert statistic < 29.6, "one seed in a thousand would exceed this for the 10 degrees of freedom at most"
    assert expected[top].sum() > draws / 2, "the control: the tokens counted make up most of the mass"


def perturbed(model: PreTrainedModel, *, scale: float) -> list[tuple[str, torch.Tensor]]:
    """The model's weights with noise on every one of them."""
    generator = torch.Generator().manual_seed(5)
    return [
        (name, weight + scale * weight.std() * torch.randn(weight.shape, generator=generator))
        for name, weight in named_hf_weights(model)
    ]


def build_folders(root: Path) -> dict[str, Path]:
    """A small model of each family of the matrix."""
    return {family: build_folder(root / family, family) for family in FAMILIES}


def build_folder(folder: Path, family: str, **sizes: int) -> Path:
    """A Hugging Face folder with enough tokens that end a response that some end at every length."""
    corpus = [QUESTION, *(f"<answer>{number}</answer>" for number in range(10))] * 3
    small = TinyModel(
        type="tiny", family=family, hidden_size=64, num_heads=2, num_key_value_heads=1, intermediate_size=128,
        num_layers=2, vision_depth=2, vision_hidden_size=64,
    )  # fmt: skip
    build_tiny_model(small.model_copy(update=sizes), folder, corpus=corpus, seed=1)
    ends = folder / "generation_config.json"
    fields = json.loads(ends.read_text()) if ends.exists() else {}
    ends.write_text(json.dumps(fields | {"eos_token_id": [*stop_token_ids(folder), *range(40)]}))
    return folder


def build_other(folder: Path, model_type: str, **fields: object) -> Path:
    """The folder of a small Llama as another text model of transformers, without weights."""
    kept = json.loads((build_folder(folder, "llama") / "config.json").read_text())
    kept = {name: value for name, value in kept.items() if name not in {"model_type", "architectures", "dtype"}}
    AutoConfig.for_model(model_type, **(kept | fields)).save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    return folder


def load_tiny_policy(family: str, folder: Path) -> TinyPolicy:
    factory = AutoModelForImageTextToText if family in VISION_FAMILIES else AutoModelForCausalLM
    model = factory.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
    return TinyPolicy(family=family, folder=folder, model=model)


def start_vllm(
    policy: TinyPolicy,
    *,
    videos_per_prompt: int = 0,
    ranks: GeneratorRanks = WHOLE,
    lora: LoraConfig | None = None,
    dtype: Literal["float32", "bfloat16"] = "float32",
    **settings: int,
) -> VllmEngine:
    config = {"max_response_length": MAX_RESPONSE_LENGTH, "max_num_seqs": MAX_NUM_SEQS} | settings
    spec = EngineSpec(
        model=policy.folder,
        rollout=RolloutConfig(**config),
        dtype=dtype,
        max_prompt_length=MAX_PROMPT_LENGTH,
        images_per_prompt=2,
        videos_per_prompt=videos_per_prompt,
        seed=1,
        lora=lora,
    )
    return VllmEngine(spec, PixelCache(policy.folder, DrawnImages()), ranks=ranks)


@dataclass(frozen=True)
class Running:
    """A tiny policy and vLLM with its weights."""

    policy: TinyPolicy
    engine: VllmEngine

    def sync(self) -> None:
        self.engine.load_weights(named_hf_weights(self.policy.model), policy_version=1)

    def generate(self, requests: Requests, sampling: Sampling) -> dict[RolloutKey, Rollout]:
        return by_key(self.engine.generate(requests, sampling))
