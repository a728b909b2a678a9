"""Training speed compared with TRL's GRPOTrainer: `python -m benchmarks.versus_trl`, or `make bench-trl`.

Prepares rows and cold-started weights once, then runs pairs of Sightline and TRL, the first of each pair in turn, every
run in a process of its own on the same processor cores, and writes benchmarks/results/versus_trl.json and .md.
docs/benchmarks.md says what is equal on both sides and why TRL is configured as it is.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.speed.comparison import Comparison
from benchmarks.speed.report import machine_facts, write_results
from benchmarks.speed.side import CONFIG, SideResult
from rl_core.config.loading import load_config
from rl_core.digests import digest_of

RESULTS = Path("benchmarks/results")


def main() -> None:
    arguments = parse_arguments()
    pin_to_cores(arguments.threads)
    facts = machine_facts("benchmarks.versus_trl", sys.argv[1:])
    work = prepared_work(arguments.work, arguments.threads)
    pairs = []
    pythons = {"sightline": sys.executable, "trl": str(arguments.trl_python)}
    for number, seed in enumerate(arguments.seeds):
        sides = {
            side: run_side(side, pythons[side], work=work, seed=seed, steps=arguments.steps, threads=arguments.threads)
            for side in sorted(pythons, reverse=number % 2 == 1)
        }
        pairs.append((sides["sightline"], sides["trl"]))
        print(f"seed {seed}: {Comparison(pairs[-1:]).speed_line()}", flush=True)
    write_results(Comparison(pairs), facts, RESULTS)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/versus-trl"))
    parser.add_argument("--trl-python", type=Path, default=Path(".venv-trl/bin/python"))
    return parser.parse_args()


def pin_to_cores(threads: int) -> None:
    """This process and its children run on the first `threads` cores that it may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def prepared_work(folder: Path, threads: int, settings: Sequence[str] = (), config: Path = CONFIG) -> Path:
    """The folder with rows and weights of the config as it is now; made when it is not there. `settings`, each
    KEY=VALUE, replace values of it."""
    work = folder / digest_of(load_config(config, settings))
    if not (work / "model" / "base").is_dir():
        print(f"preparing rows and cold-started weights in {work}", flush=True)
        run_module(sys.executable, "preparation", [str(config), str(work), *settings], threads=threads, log=None)
    return work


def run_side(
    side: str, python: str, *, work: Path, seed: int, steps: int, threads: int, more: Sequence[str] = ()
) -> SideResult:
    """Run one side in a process of its own, with these further options, and read what it leaves."""
    out = work / f"{side}-{seed}.json"
    options = {"--work": work, "--seed": seed, "--steps": steps, "--threads": threads, "--out": out}
    words = [*(str(word) for option in options.items() for word in option), *more]
    run_module(python, f"{side}_side", words, threads=threads, log=work / f"{side}-{seed}.log")
    return SideResult.read(out)


def run_module(python: str, module: str, words: Sequence[str], *, threads: int, log: Path | None) -> None:
    """Run benchmarks.speed.<module>. Raises CalledProcessError; what it printed is in the log."""
    command = [python, "-m", f"benchmarks.speed.{module}", *words]
    if log is None:
        subprocess.run(command, env=environment(threads), check=True)
        return
    with log.open("w") as file:
        subprocess.run(command, env=environment(threads), stdout=file, stderr=subprocess.STDOUT, check=True)


def environment(threads: int) -> Mapping[str, str]:
    """Offline, quiet, and with the same number of threads in every library."""
    count = str(threads)
    return os.environ | {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }


if __name__ == "__main__":
    assert platform.system() == "Linux", "the processes are pinned to cores, which only Linux offers"
    main()
