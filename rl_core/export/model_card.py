"""The model card: what a merged model is, how good it is, and the lines to try it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.export.verification import Verification
from rl_core.redaction import redact

CARD_NAME = "README.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyRow:
    """One evaluation of a model: its name ("base, greedy"), items, accuracy and its 95 % interval (0 .. 1)."""

    name: str
    n: int
    accuracy: float
    ci95: tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """The contents of the card. With a `hub_name`, `owner/name` of the uploaded model, the examples use it in place of
    the folder."""

    run: str
    base: str
    step: int
    algorithm: str
    data: str
    data_fingerprint: str
    reward: str
    accuracy: Sequence[AccuracyRow]
    verification: Verification
    versions: Mapping[str, str]
    certificate: str
    hub_name: str | None = None


def write_model_card(folder: Path, facts: CardFacts) -> None:
    """Write the card into a merged folder."""
    (folder / CARD_NAME).write_text(redact(model_card(folder, facts)))


def model_card(folder: Path, facts: CardFacts) -> str:
    """The card of a merged folder: Markdown with the hub's header."""
    usage = usage_lines(folder, hub_name=facts.hub_name)
    tries = "\n\n".join(
        f"{title}:\n\n```{'python' if text.startswith('from ') else 'bash'}\n{text}\n```"
        for title, text in usage.items()
    )
    rows = "\n".join(
        f"| {row.name} | {row.n} | {row.accuracy:.3f} | {row.ci95[0]:.3f} - {row.ci95[1]:.3f} |"
        for row in facts.accuracy
    )
    verified = facts.verification
    differences = ", ".join(f"{name} {difference:.1e}" for name, difference in verified.largest_difference.items())
    versions = ", ".join(f"{name} {number}" for name, number in facts.versions.items())
    return f"""---
library_name: transformers
pipeline_tag: {_pipeline_tag(folder)}
tags: [reinforcement-learning, sightline]
---

# {facts.hub_name or facts.run}

Post-trained with reinforcement learning by Sightline.

| | |
|---|---|
| run | {facts.run}, step {facts.step} |
| base model | {facts.base} |
| algorithm | {facts.algorithm} |
| data | {facts.data} (fingerprint {facts.data_fingerprint}) |
| reward | {facts.reward} |
| versions | {versions} |
| certificate | {facts.certificate} |

## Accuracy on held-out items

| model | items | accuracy | 95 % interval |
|---|---|---|---|
{rows}

## Try it

{tries}

## Faithful to the trainer

Loaded in a fresh process, this folder gives the log-probs that the trainer stored for {verified.num_tokens} response
tokens; largest difference: {differences}.
"""


def usage_lines(folder: Path, *, hub_name: str | None = None) -> dict[str, str]:
    """Title -> the command or code to try the model in `folder`, or by its name on the hub."""
    name = hub_name or str(folder)
    imports, content, argument = "", '"How much is 7 times 8?"', "messages"
    if _pipeline_tag(folder) == "image-text-to-text":
        imports, argument = "from PIL import Image\n", "text=messages"
        image, text = '{"type": "image", "image": Image.open("image.png")}', '{"type": "text", "text": "How many?"}'
        content = f"[{image}, {text}]"
    python = f"""{imports}from transformers import pipeline

answer = pipeline({_pipeline_tag(folder)!r}, model={name!r})
messages = [{{"role": "user", "content": {content}}}]
print(answer({argument}, max_new_tokens=64, return_full_text=False))"""
    return {"With vLLM": f"vllm serve {shlex.quote(name)}", "With transformers": python}


def _pipeline_tag(folder: Path) -> str:
    architecture = json.loads((folder / "config.json").read_text())
    return "image-text-to-text" if "vision_config" in architecture else "text-generation"
