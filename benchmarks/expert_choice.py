"""How often vLLM and transformers choose other experts for a token, and how far its log-probs then differ: `python -m
benchmarks.expert_choice --output benchmarks/results/expert_choice.json`. The models have as many experts as
Qwen3-30B-A3B, 128, and as Qwen3.5-35B-A3B, 256, of which a token takes eight, in four narrower layers with random
weights."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from benchmarks.speed.report import machine_facts
from rl_core.export.merged_check import set_environment
from rl_core.families.registry import family_of
from tasks.model_check.shrunk import roughen

LAYERS, CHOSEN, WIDTH, WORDS = 4, 8, 512, 512
MODELS: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"head_dim": 64, "num_experts": 128, "norm_topk_prob": True},
    "qwen3_5_moe_text": {
        "head_dim": 128, "num_experts": 256, "shared_expert_intermediate_size": 128, "linear_num_key_heads": 4,
        "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    },
}  # fmt: skip
"""[model_type] -> fields of its config."""
SEQUENCES, TOKENS = 8, 300

Run = tuple[list[torch.Tensor], torch.Tensor]
"""Of one sequence: the logits of each layer's router, [TOKENS, experts], and [TOKENS - 1] log-probs of its tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    found = machine_facts("benchmarks.expert_choice", sys.argv[1:])
    set_environment()
    generator = torch.Generator().manual_seed(1)
    sequences = torch.randint(2, WORDS, (SEQUENCES, TOKENS), generator=generator).tolist()
    for model_type, fields in MODELS.items():
        found[model_type] = {}
        for dtype in family_of({"model_type": model_type}).engine.cpu_dtypes:
            with tempfile.TemporaryDirectory() as folder:
                model = random_model(model_type, fields, dtype)
                model.save_pretrained(folder)
                pairs = zip(by_transformers(model, sequences), by_vllm(folder, dtype, sequences), strict=True)
                found[model_type][dtype] = compared(list(pairs))
            print(model_type, dtype, found[model_type][dtype], flush=True)
    if asked.output is not None:
        asked.output.write_text(json.dumps(found, indent=1) + "\n")


def random_model(model_type: str, fields: Mapping[str, Any], dtype: str) -> PreTrainedModel:
    """In a number format."""
    config = AutoConfig.for_model(
        model_type, vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=8,
        num_key_value_heads=2, num_experts_per_tok=CHOSEN, moe_intermediate_size=128, max_position_embeddings=4096,
        bos_token_id=None, eos_token_id=1, pad_token_id=None, **fields,
    )  # fmt: skip
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    roughen(model, width=WIDTH)
    return torch.nn.Module.to(model, getattr(torch, dtype)).eval()


@torch.no_grad()
def by_transformers(model: PreTrainedModel, sequences: Sequence[list[int]]) -> Iterator[Run]:
    """Each sequence alone."""
    logits = noted(model)
    for sequence in sequences:
        logits.clear()
        tokens = torch.tensor([sequence])
        every = model(tokens, use_cache=False).logits[0, :-1].float().log_softmax(dim=-1)
        yield list(logits), every.gather(1, tokens[0, 1:, None])[:, 0]


def by_vllm(folder: str, dtype: str, sequences: Sequence[list[int]]) -> Iterator[Run]:
    """Each sequence alone, as a prompt."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=folder, dtype=dtype, enforce_eager=True, enable_prefix_caching=False, skip_tokenizer_init=True,
        max_model_len=TOKENS + 1, max_num_batched_tokens=512, max_num_seqs=1, num_gpu_blocks_override=32,
    )  # fmt: skip
    (logits,) = engine.apply_model(noted)
    asked = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
    for sequence in sequences:
        logits.clear()
        (output,) = engine.generate([{"prompt_token_ids": sequence}], asked, use_tqdm=False)
        stored = output.prompt_logprobs
        yield logits[:LAYERS], torch.tensor([stored[n][sequence[n]].logprob for n in range(1, TOKENS)])


def noted(model: Any) -> list[torch.Tensor]:
    """A list that gets the logits of each router as it computes them."""
    logits: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.mlp.gate.register_forward_hook(lambda _, given, made: logits.append(made[0].float()))
    return logits


def compared(pairs: Sequence[tuple[Run, Run]]) -> Mapping[str, float]:
    """Shares of choices that differ, and differences of log-probs in nats."""
    others, gaps = [], []
    for (ours, our_log_probs), (theirs, their_log_probs) in pairs:
        others.append(torch.stack([chosen(one) != chosen(other) for one, other in zip(ours, theirs, strict=True)]))
        gaps.append((our_log_probs - their_log_probs).abs())
    differs = torch.stack(others).any(dim=-1)  # [SEQUENCES, LAYERS, TOKENS]
    gap, in_a_layer = torch.cat(gaps), differs.any(dim=1)[:, :-1].flatten()
    return {
        "choices": differs.numel(),
        "other": float(differs.float().mean()),
        "tokens_with_another": float(in_a_layer.float().mean()),
        "largest_gap": float(gap.max()),
        "mean_gap_with_another": float(gap[in_a_layer].mean()) if in_a_layer.any() else 0.0,
        "mean_gap_without": float(gap[~in_a_layer].mean()),
    }


def chosen(logits: torch.Tensor) -> torch.Tensor:
    """[TOKENS, CHOSEN] the experts of each token, in ascending order."""
    return logits.topk(CHOSEN, dim=-1).indices.sort(dim=-1).values


if __name__ == "__main__":
    main()
