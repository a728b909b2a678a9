"""A step of a real model against TRL's: `python -m benchmarks.versus_trl_real`, after `make bench-trl` and `make real`.

SmolLM2-135M on word problems: 16 prompts with 8 responses of up to 128 tokens. TRL is first tried in several
settings, a step each: number format, samples of a micro-batch, and what generates (`generate` of transformers, its
continuous batching, or vLLM in TRL's process). The fastest then runs in pairs with Sightline, each side first in turn.
Sightline's first step is left out, because it holds the start of the generator; TRL's has nothing of note that its
second has not. Writes a file with `--output`.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from subprocess import CalledProcessError
from typing import NamedTuple

from benchmarks.speed.report import machine_facts
from benchmarks.versus_trl import pin_to_cores, prepared_work, run_side

CONFIG = Path("configs/word_problems/smollm2.yaml")
SETTINGS = ("rollout.max_response_length=128", "cold_start.steps=1", "cold_start.batch_size=1")


class Setting(NamedTuple):
    """Of TRL: number format, samples of a micro-batch, and what generates."""

    dtype: str
    micro_batch: int
    generation: str

    @classmethod
    def of(cls, text: str) -> "Setting":
        """Of "bfloat16,16,continuous"."""
        dtype, micro_batch, generation = text.split(",")
        return cls(dtype, int(micro_batch), generation)

    def __str__(self) -> str:
        return f"{self.dtype}, micro-batches of {self.micro_batch}, {self.generation}"


TRIED = ["bfloat16,16,padded", "bfloat16,32,padded", "bfloat16,16,continuous", "bfloat16,16,vllm", "float32,16,padded"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--tried", type=Setting.of, nargs="+", default=[Setting.of(each) for each in TRIED])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/versus-trl-real"))
    parser.add_argument("--trl-python", type=Path, default=Path(".venv-trl/bin/python"))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pin_to_cores(arguments.threads)
    facts = machine_facts("benchmarks.versus_trl_real", sys.argv[1:])
    work = prepared_work(arguments.work, arguments.threads, SETTINGS, CONFIG)

    def ours(seed: int) -> float:
        result = run_side(
            "sightline", sys.executable, work=work, seed=seed, steps=2, threads=arguments.threads, more=words
        )
        return result.seconds(2, 2)

    def theirs(seed: int, setting: Setting) -> float:
        changed = [*words, f"model.dtype={setting.dtype}", "--micro-batch", str(setting.micro_batch)]
        result = run_side(
            "trl",
            str(arguments.trl_python),
            work=work,
            seed=seed,
            steps=1,
            threads=arguments.threads,
            more=[*changed, "--generation", setting.generation],
        )
        return result.seconds(1, 1)

    words = ["--config", str(CONFIG), "--set", *SETTINGS]
    tried: dict[Setting, float] = {}
    for setting in arguments.tried:
        try:
            tried[setting] = theirs(1, setting)
        except CalledProcessError as error:
            print(f"TRL in {setting}: ends with exit code {error.returncode}, see the log in {work}", flush=True)
            continue
        print(f"TRL in {setting}: {tried[setting]:.1f} s a step", flush=True)
    fastest = min(tried, key=tried.__getitem__)
    found: dict[str, list[float]] = {"sightline": [], "trl": []}
    for number, seed in enumerate(arguments.seeds):
        for side in sorted(found, reverse=number % 2 == 1):
            found[side].append(ours(seed) if side == "sightline" else theirs(seed, fastest))
        print(f"seed {seed}: {found['sightline'][-1]:.1f} s a step, TRL {found['trl'][-1]:.1f} s", flush=True)
    ratios = [trl / sightline for sightline, trl in zip(found["sightline"], found["trl"], strict=True)]
    print(f"Sightline takes {median(ratios):.2f} times the samples a second of TRL (median of the pairs)")
    if arguments.output:
        result = facts | {
            "settings": SETTINGS,
            "trl_seconds_of_a_step_in_each_setting": {
                str(setting): round(tried[setting], 1) if setting in tried else "fails" for setting in arguments.tried
            },
            "trl_setting": str(fastest),
            "seconds_of_a_step": {side: [round(s, 1) for s in each] for side, each in found.items()},
            "ratios": [round(ratio, 2) for ratio in ratios],
            "ratio_median": round(median(ratios), 2),
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
