"""The page of the model families, from `rl_core/families`: `python -m sightline_tools.docs.models docs/models.md`."""

import json
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Final

from rl_core.families.family import Family
from rl_core.families.refused import REASONS
from rl_core.families.registry import FAMILIES

_RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "results"

_INTRODUCTION = """\
<!-- Written by `make docs`; edit rl_core/families instead. -->
# Models

`model.source` names a folder or a model of the hub of one of these families, or makes a tiny random model of one
(`{type: tiny, family: NAME}`). Each family is one file of `rl_core/families`, and
[CONTRIBUTING](../CONTRIBUTING.md#a-model-family) shows how to add another.

The tests make the certificate of each family on a CPU. `sightline doctor --model MODEL` makes that of any model, from a
folder or from the hub, which gives its config, tokenizer and processor alone. It takes the model's widths and flags,
one period of its kinds of layers and one layer more, two blocks of its vision tower, twice as many experts as a token
goes through, and random weights, so that a model of 27 billion is checked on a laptop. The first failure is reported
with its number, weight or token. Checked are:

- packed trees against single sequences in transformers: log-probs, gradients with recomputed activations, equal passes;
- the generator: every number of every weight arrives, norms have the trainer's epsilons, nothing in the trainer changes
  when vLLM starts, log-probs are the trainer's with three sets of weights, in which each weight moves, a cached prompt
  gives the same responses, and no token that stands for an image is sampled;
- three steps and a resume, the merged model in transformers and vLLM, LoRA in both forms, two ranks (`--devices 2`).

A plan allows prompt and response no more tokens than `original_max_position_embeddings` where a rotation changes with
the longest text of its batch (`longrope`, as in Phi-4-mini), or queries grow with their position
(`llama_4_scaling_beta`, as in Ministral 3), which vLLM leaves out.
A `dynamic` rotation is an ordinary one in both up to `max_position_embeddings`, which no plan exceeds.

A text model of transformers that is not in the table needs no file: the generic path trains it. A run refuses it until
its certificate is there, which is kept on the machine by the digest of its config.json and of the versions.

{experts}

In Gemma 3, and in the layers with a window of Gemma 4 26B and 31B, the tokens of an image see each other, the later
ones too. vLLM's attention for a CPU lets them see only those before them, without a word, which the certificate shows;
Sightline's generator adds what is missing (`rl_core/rollout/cpu/image_blocks.py`). vLLM without Sightline does not have
it on a CPU, so there a merged model of these families is verified in transformers alone. On a GPU they need
`model.attention: sdpa`. Of Gemma 4, text and images are trained; sound and videos are not.

A family of your own is a file like these, named by its path: `model.family: mine.py:FAMILY`, and
`sightline doctor --model MODEL --family mine.py:FAMILY` for the certificate, which belongs to the file's code too.
`sightline evaluate --model FOLDER` takes `--family` where the folder is not of a run. A run keeps a copy of the file.
"""


def page() -> str:
    """The page in Markdown."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.replace("{experts}", _experts())
    yield "| family | `model_type` | takes | published models whose sizes are known without a download |"
    yield "|---|---|---|---|"
    for family in FAMILIES.values():
        known = ", ".join(f"`{name}`" for name in family.published)
        name = f"[`{family.name}`](../rl_core/families/{family.name}.py): {_summary(family)}"
        yield f"| {name} | `{family.model_type}` | {_takes(family)} | {known} |"
    yield from _certificates()
    yield "\n## Not trained\n"
    yield "| `model_type` | why |"
    yield "|---|---|"
    for model_type, reason in REASONS.items():
        yield f"| `{model_type}` | {reason} |"


def _certificates() -> Iterator[str]:
    """The figures of a run of `benchmarks.certificates`."""
    measured = json.loads((_RESULTS / "certificates.json").read_text())
    yield f"\n## Measured\n\n`python -m benchmarks.certificates` on {measured['cpu']}:"
    yield "every essential check of a tiny model holds. Largest differences of log-probs in nats, and of gradients as a"
    yield "share of their norm. The last column is the held-out accuracy of the quickstart with a tiny model, where"
    yield "it was trained: of one seed, or the mean over several (`python -m benchmarks.learning quickstart-FAMILY`).\n"
    yield "| family | trees | gradients | generator | its number format | quickstart |"
    yield "|---|---|---|---|---|---|"
    for family in FAMILIES.values():
        found = measured["families"][family.name]
        assert {*found["verdicts"].values()} == {"ok"}, f"{family.name} has no certificate"
        figures = " | ".join(f"{found['largest'][name]:.0e}" for name in ("trees", "gradients", "generator"))
        yield f"| `{family.name}` | {figures} | {family.engine.cpu_dtypes[0]} | {_quickstart(family)} |"


def _quickstart(family: Family) -> str:
    """The last accuracies of the family's runs of `benchmarks.learning`; the quickstart itself has Qwen2.5-VL."""
    name = "quickstart" if family.name == "qwen2_5_vl" else f"quickstart-{family.name}"
    file = _RESULTS / "learning" / f"{name}.json"
    if not file.exists():
        return ""
    final = [curve["accuracy"][-1] for curve in json.loads(file.read_text())["curves"].values()]
    return f"{fmean(final):.3f}" if len(final) == 1 else f"{fmean(final):.3f} ({len(final)} seeds)"


def _experts() -> str:
    """The figures of a run of `benchmarks.expert_choice`."""
    found = json.loads((_RESULTS / "expert_choice.json").read_text())
    exact, rounded, carried = (
        found[name][dtype]
        for name, dtype in (("qwen3_moe", "float32"), ("qwen3_moe", "bfloat16"), ("qwen3_5_moe_text", "bfloat16"))
    )
    assert exact["other"] == 0.0, "in float32 both choose the same"
    paragraphs = (
        "A model with experts, such as Qwen3-30B-A3B or Qwen3.5-35B-A3B, is trained in the same way. LoRA adapts its "
        "linear layers and no expert, and on a CPU the generator has adapters merged alone. vLLM and the trainer "
        "choose the experts of a token each by itself, and the choice is not replayed. With random weights, in float32 "
        f"all of {exact['choices']:,} choices are equal. In bfloat16 {rounded['other']:.0%} differ in Qwen3 with 128 "
        f"experts, and the log-probs of its tokens by {_mean_gap(rounded):.3f} in the mean; in Qwen3.5 with 256, whose "
        f"layers carry what differs on to all later tokens, {carried['other']:.0%} and {_mean_gap(carried):.3f} "
        "(`python -m benchmarks.expert_choice`).",
        "In bfloat16 the certificate therefore compares a model in which each token goes through all experts, so that "
        "nothing is left to choose, and reports separately how much the choice adds. A run stops where "
        "`agreement/log_prob_gap_mean` exceeds 0.1: then raise `rollout.max_mean_log_prob_gap`, and set "
        "`algorithm.old_log_probs: recompute` and `algorithm.correction: {type: tis}`, which weighs every token by how "
        "much more probable it is to the trainer than it was to vLLM.",
    )
    return "\n\n".join(fill(paragraph, width=120, break_on_hyphens=False) for paragraph in paragraphs)


def _mean_gap(found: Mapping[str, float]) -> float:
    """Of all tokens, in nats."""
    share = found["tokens_with_another"]
    return share * found["mean_gap_with_another"] + (1.0 - share) * found["mean_gap_without"]


def _summary(family: Family) -> str:
    """The first sentence of the family's file."""
    text = import_module(f"rl_core.families.{family.name}").__doc__ or ""
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _takes(family: Family) -> str:
    kinds = ["text"]
    if family.vision is not None:
        kinds += ["images"] if family.vision.video_text is None else ["images", "videos"]
    missing = "" if "float32" in family.engine.cpu_dtypes else "; on a CPU in bfloat16 alone"
    is_whole = family.carries_state or (family.vision is not None and family.vision.sees_both_ways)
    missing += "; no sequence parallelism" if is_whole else ""
    return ", ".join(kinds) + missing + ("" if family.engine.adapters else "; LoRA merged in the generator alone")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
