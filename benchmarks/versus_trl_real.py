"""A step of a real model beside TRL's: `python -m benchmarks.versus_trl_real`, after `make bench-trl` and `make real`.

SmolLM2-135M on word problems: 16 prompts with 8 responses of up to 128 tokens. TRL is first tried in each number format
with micro-batches of several sizes, a run each, and its fastest setting then runs in pairs with Sightline, either side
first in turn. A run's first step, which has start-up costs, is left out. Writes a file with `--output`.
"""

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.speed.report import machine_facts
from benchmarks.versus_trl import pin_to_cores, prepared_work, run_side

CONFIG = Path("configs/word_problems/smollm2.yaml")
SETTINGS = ("rollout.max_response_length=128", "cold_start.steps=1", "cold_start.batch_size=1")
FORMATS = ("bfloat16", "float32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int, default=2, help="of each run; the first is left out")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[16, 32, 64], help="samples, tried with TRL")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/versus-trl-real"))
    parser.add_argument("--trl-python", type=Path, default=Path(".venv-trl/bin/python"))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pin_to_cores(arguments.threads)
    facts = machine_facts("benchmarks.versus_trl_real", sys.argv[1:])
    work = prepared_work(arguments.work, arguments.threads, SETTINGS, CONFIG)

    def seconds(side: str, seed: int, *, dtype: str = "bfloat16", micro_batch: int = 0) -> float:
        """Of a step: the median of those after the first."""
        words = ["--config", str(CONFIG), "--set", *SETTINGS, f"model.dtype={dtype}"]
        result = run_side(
            side,
            str(arguments.trl_python) if side == "trl" else sys.executable,
            work=work,
            seed=seed,
            steps=arguments.steps,
            threads=arguments.threads,
            more=[*words, "--micro-batch", str(micro_batch)] if micro_batch else words,
        )
        return median(result.seconds(step, step) for step in range(2, arguments.steps + 1))

    tried = {}
    for dtype, micro_batch in product(FORMATS, arguments.micro_batches):
        tried[dtype, micro_batch] = seconds("trl", 1, dtype=dtype, micro_batch=micro_batch)
        print(f"TRL in {dtype}, micro-batches of {micro_batch}: {tried[dtype, micro_batch]:.1f} s a step", flush=True)
    dtype, micro_batch = min(tried, key=tried.__getitem__)
    found: dict[str, list[float]] = {"sightline": [], "trl": []}
    for number, seed in enumerate(arguments.seeds):
        for side in sorted(found, reverse=number % 2 == 1):
            of_trl = {"dtype": dtype, "micro_batch": micro_batch} if side == "trl" else {}
            found[side].append(seconds(side, seed, **of_trl))
        print(f"seed {seed}: {found['sightline'][-1]:.1f} s a step, TRL {found['trl'][-1]:.1f} s", flush=True)
    ratios = [theirs / ours for ours, theirs in zip(found["sightline"], found["trl"], strict=True)]
    print(f"Sightline takes {median(ratios):.2f} times the samples a second of TRL (median of the pairs)")
    if arguments.output:
        result = facts | {
            "settings": SETTINGS,
            "trl_seconds_of_a_step_in_each_setting": {
                f"{dtype}, {size}": round(s, 1) for (dtype, size), s in tried.items()
            },
            "trl_setting": f"{dtype}, micro-batches of {micro_batch}",
            "seconds_of_a_step": {side: [round(s, 1) for s in each] for side, each in found.items()},
            "ratios": [round(ratio, 2) for ratio in ratios],
            "ratio_median": round(median(ratios), 2),
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
