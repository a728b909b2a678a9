"""The update's forward and backward pass in three ways, on the same samples: `python -m benchmarks.update`.

- **trees**: what Sightline does; n responses branch from one copy of their prompt.
- **unshared**: the same code, but each response brings its own copy of the prompt and its image.
- **padded**: the model of transformers as it is, with scaled-dot-product attention, all sequences padded to one length.

The loss is a weighted sum of the log-probs of all response tokens. The three gradients are compared first. Then the
three run in alternation, and the medians of the ratios of each round are printed.

Utilisation is (model FLOPs of the way's own tokens) / (its seconds * FLOPs a second of a large matrix product in the
same number format on the same device). Model FLOPs are those of the matrix products, three times the forward pass:

    3 * (2 W T + 2 V K + 2 U S + 4 D A + 4 C B)

with W weights of the language model's linear layers and T its tokens; V weights of the output head and K response
tokens; U weights of the vision tower and S its patches; D heads times head size, summed over the layers, and A pairs of
a token and a token that it attends to; C and B the same for the tower, whose images attend to themselves.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from benchmarks.speed.report import machine_facts
from rl_core.config.model import TinyModel
from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.tiny import build_tiny_model
from tests.rl_core.models.builders import CORPUS, IMAGE_SIZES, Bench, relative_difference, roughen, take_gradients

FAMILIES = {"text": "qwen2_5", "image": "qwen2_5_vl"}
IMAGE_SIZES["benchmark"] = (168, 168)
LARGEST_DIFFERENCE = 1e-4  # of the gradients, as norms


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measurement: kind of prompt, responses of a prompt, and lengths in tokens."""

    kind: str
    n: int
    prompt: int
    response: int
    prompts: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--response", type=int, default=64, help="tokens of a response")
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--width", type=int, default=256, help="of the hidden states; heads have 32 numbers")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--model", type=Path, help="a language model's folder, in place of tiny random models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    facts = machine_facts("benchmarks.update", sys.argv[1:]) | {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
    }
    peak = product_flops(torch.device(options.device), getattr(torch, options.dtype))
    results = []
    for kind, family in FAMILIES.items():
        if kind == "image" and options.model:
            continue
        with tempfile.TemporaryDirectory() as folder:
            sides = Sides(options.model or _tiny_model(Path(folder), family, options), family, options)
            for n in (5, 8):
                for times in (1, 2, 4):
                    size = options.response
                    case = Case(kind=kind, n=n, prompt=times * size, response=size, prompts=options.prompts)
                    results.append(measured(case, sides, rounds=options.rounds, peak=peak))
                    print(json.dumps(results[-1]), flush=True)
    if options.output:
        options.output.write_text(json.dumps(facts | {"product_flops": peak, "results": results}, indent=1) + "\n")


def _tiny_model(folder: Path, family: str, options: argparse.Namespace) -> Path:
    heads = options.width // 32
    source = TinyModel(
        type="tiny",
        family=family,  # type: ignore[arg-type]
        hidden_size=options.width,
        num_layers=options.layers,
        num_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        intermediate_size=2 * options.width,
        vision_depth=4,
        vision_hidden_size=options.width,
    )
    build_tiny_model(source, folder, corpus=CORPUS, seed=1)
    return folder


class Sides:
    """The policy, and the same weights in transformers' own model."""

    def __init__(self, folder: Path, family: str, options: argparse.Namespace) -> None:
        self.bench = Bench.load(folder, dtype=options.dtype)
        self.bench.policy.to(options.device)
        factory = AutoModelForCausalLM if family == FAMILIES["text"] else AutoModelForImageTextToText
        self.stock: PreTrainedModel = factory.from_pretrained(folder, dtype=getattr(torch, options.dtype))
        roughen(self.stock)
        self.stock.to(options.device)

    def trees(self, case: Case) -> list[TreeInput]:
        """The prompts of a case with their responses."""
        shown = ["benchmark-1"] if case.kind == "image" else []
        text = case.prompt - (len(self.bench.prompt([0, 0], shown).token_ids) if shown else 0)
        lengths = [text - 1, 1] if shown else [text]
        return [
            self.bench.tree(lengths, [f"benchmark-{seed}"] if shown else [], [case.response] * case.n, seed=seed)
            for seed in range(case.prompts)
        ]

    def packed(self, trees: Sequence[TreeInput]) -> torch.Tensor:
        """Log-probs of all response tokens by the policy."""
        policy = self.bench.policy
        batch = pack_trees(trees, pixels=self.bench.pixels, model_config=policy.config, device=policy.device)
        log_probs: torch.Tensor = policy(batch, temperature=1.0).log_probs
        return log_probs

    def padded(self, trees: Sequence[TreeInput]) -> torch.Tensor:
        """The same by transformers, each response with its own copy of the prompt, in one padded batch."""
        config, device = self.stock.config, self.stock.device
        samples = [(tree.prompt, response) for tree in trees for response in tree.responses]
        rows = [torch.tensor([*prompt.token_ids, *response], dtype=torch.int64) for prompt, response in samples]
        ids = pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([[len(row)] for row in rows])
        inputs = {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths).long()}
        images = [image for prompt, _ in samples for image in self.bench.pixels.get(prompt.image_uids)]
        if images:
            inputs |= self.bench.pixels.forward_inputs(images, [], torch.device("cpu"))
            inputs["mm_token_type_ids"] = (ids == config.image_token_id).int()
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
        longest = max(len(response) for _, response in samples)
        logits = self.stock(**inputs, use_cache=False, logits_to_keep=longest + 1).logits[:, :-1].float()
        scores = torch.log_softmax(logits + self.bench.policy.logit_bias, dim=-1)
        targets = inputs["input_ids"][:, -longest:]
        return scores.gather(2, targets[..., None])[..., 0].flatten()

    def flops(self, case: Case, *, shares_prompts: bool) -> float:
        """Model FLOPs of a forward and a backward pass; see the module's docstring."""
        copies = 1 if shares_prompts else case.n
        per_prompt = copies * case.prompt + case.n * (case.response - 1)
        own = case.response - 1
        pairs = copies * case.prompt**2 / 2 + case.n * (own * case.prompt + own**2 / 2)
        text = self.stock.config.get_text_config()
        tower = getattr(self.stock.base_model, "visual", None)
        towers = linear_weights(tower) if tower is not None else 0
        body = linear_weights(self.stock.base_model) - towers
        total = 2.0 * body * per_prompt + 4 * text.num_hidden_layers * text.hidden_size * pairs
        total += 2 * self.stock.get_output_embeddings().weight.numel() * case.n * case.response
        if case.kind == "image":
            patches = len(self.bench.pixels.get(["benchmark-0"])[0].tensors["pixel_values"])
            vision = self.stock.config.vision_config
            total += copies * (2 * towers * patches + 4 * vision.depth * vision.hidden_size * patches**2)
        return 3 * case.prompts * total


def measured(case: Case, sides: Sides, *, rounds: int, peak: float) -> dict[str, Any]:
    trees = sides.trees(case)
    alone = [TreeInput(prompt=tree.prompt, responses=[one]) for tree in trees for one in tree.responses]
    ways: dict[str, tuple[nn.Module, Callable[[], torch.Tensor]]] = {
        "trees": (sides.bench.policy, lambda: sides.packed(trees)),
        "unshared": (sides.bench.policy, lambda: sides.packed(alone)),
        "padded": (sides.stock, lambda: sides.padded(trees)),
    }
    differences = gradient_differences(ways)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            seconds[name].append(timed(*ways[name]))
    times = {name: median(found) for name, found in seconds.items()}
    work = {name: sides.flops(case, shares_prompts=name == "trees") for name in ways}
    ratios = {
        name: median(slow / fast for slow, fast in zip(seconds[name], seconds["trees"], strict=True))
        for name in ("unshared", "padded")
    }
    return asdict(case) | {
        "unshared_to_trees": round(ratios["unshared"], 2),
        "padded_to_trees": round(ratios["padded"], 2),
        "seconds": {name: round(value, 4) for name, value in times.items()},
        "utilisation": {name: round(work[name] / times[name] / peak, 3) for name in ways},
        "gradient_difference": differences,
    }


def gradient_differences(ways: dict[str, tuple[nn.Module, Callable[[], torch.Tensor]]]) -> dict[str, float]:
    """The distance of each gradient from that of the trees, relative to its norm.

    Raises:
        RuntimeError: a float32 gradient differs by more than rounding.
    """
    gradients = {name: gradient(*way) for name, way in ways.items()}
    found = {name: relative_difference(gradients[name], gradients["trees"]) for name in ("unshared", "padded")}
    is_exact = next(ways["trees"][0].parameters()).dtype == torch.float32
    if is_exact and max(found.values()) > LARGEST_DIFFERENCE:
        raise RuntimeError(f"the gradients of the three ways differ: {found}")
    return found


def gradient(model: nn.Module, log_probs: Callable[[], torch.Tensor]) -> torch.Tensor:
    model.zero_grad(set_to_none=True)
    run(log_probs)
    return take_gradients(model).double().cpu()


def timed(model: nn.Module, log_probs: Callable[[], torch.Tensor]) -> float:
    model.zero_grad(set_to_none=True)
    is_on_gpu = next(model.parameters()).is_cuda
    start = time.perf_counter()
    run(log_probs)
    if is_on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def run(log_probs: Callable[[], torch.Tensor]) -> None:
    found = log_probs()
    (found * torch.linspace(-1.0, 1.0, len(found), device=found.device)).sum().backward()


def linear_weights(module: nn.Module) -> int:
    """Numbers in the weights of the matrix products: every weight of two or more dimensions but embeddings."""
    embeddings = {id(own.weight) for own in module.modules() if isinstance(own, nn.Embedding)}
    return sum(own.numel() for own in module.parameters() if own.ndim > 1 and id(own) not in embeddings)


def product_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOPs a second of a matrix product that is large for the device."""
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


if __name__ == "__main__":
    main()
