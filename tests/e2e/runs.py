"""Starting the command line as a person would, and reading what a run leaves."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory
from tests.e2e.planted_secrets import SECRETS
from tests.results import hashes

REPOSITORY = Path(__file__).parents[2]
SMALL = REPOSITORY / "tests" / "e2e" / "configs" / "small.yaml"
QUICKSTART = REPOSITORY / "configs" / "quickstart.yaml"
QUICKSTART_IN_SHORT = (
    "data.validation.size=50",
    "cold_start.steps=5",
    "cold_start.source.size=320",
    "reward={function: length, kwargs: {target_length: 2, max_length: 12}}",
    "evaluation.accuracy_key=overall",
)
"""Steps of the quickstart's size whose model has hardly learnt to end its responses: nearly all have all their tokens,
the others make the groups uneven."""
REAL_MODEL = REPOSITORY / "configs" / "word_problems" / "smollm2.yaml"
REAL_MODEL_IN_SHORT = (
    *("data.rollout_batch_size=4", "actor.global_batch_size=4", "rollout.max_response_length=32"),
    *("data.validation.kwargs.count=16", "cold_start.steps=2", "cold_start.batch_size=4", "trainer.max_steps=3"),
)
"""Three steps of a real model in bfloat16, and all other stages; `make models/smollm2-135m-instruct` makes it."""
RESULTS = (
    *("metrics.jsonl", "rollouts/*.parquet", "validations/*.parquet"),
    *("evaluations/**/*", "merged/*.safetensors", "checkpoints/**/*", "model/**/*.safetensors"),
)
"""What must be equal to the bit after a run that was killed and resumed (docs/architecture.md, "Resume is exact")."""


def environment(home: Path) -> dict[str, str]:
    """The environment of a run whose Prefect database lies in `home`."""
    return {**os.environ, **SECRETS, "PREFECT_HOME": str(home / "prefect"), "OMP_NUM_THREADS": "2"}


def run_arguments(home: Path, config: Path = SMALL, *overrides: str) -> list[str]:
    """Arguments of `sightline run` that keep everything it writes below `home`."""
    settings = (f"tracking.mlflow_uri=sqlite:///{home}/mlflow.db", *overrides)
    sets = [part for setting in settings for part in ("--set", setting)]
    return ["run", str(config), "--runs-dir", str(home / "runs"), *sets]


def command(*arguments: str, launcher: Sequence[str] = ("-m", "flows.cli")) -> list[str]:
    """The command line `sightline ARGUMENTS` through a launcher of this interpreter."""
    return [sys.executable, *launcher, *arguments]


def sightline(
    *arguments: str,
    home: Path,
    timeout: float = 280,
    check: bool = True,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `sightline ARGUMENTS` to its end and capture what it prints. `variables` is its environment where it is not
    that of `home`: with the address of a Prefect server, the run needs not start one of its own."""
    done = subprocess.run(
        command(*arguments),
        env=variables or environment(home),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"sightline {' '.join(arguments)} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def the_run(runs_dir: Path) -> RunDirectory:
    """The only run below a folder of runs."""
    (folder,) = [path for path in runs_dir.iterdir() if (path / "config.yaml").is_file()]
    return RunDirectory(folder)


def failed_rewards(run: RunDirectory) -> int:
    """Rewards that failed in training: a call that runs into its time limit on a busy machine costs its sample, and the
    run is another one from there."""
    return sum('"reward_failed"' in line for line in run.events.read_text().splitlines())


def fingerprint(run: RunDirectory) -> Mapping[str, str]:
    """Relative path -> SHA-256 of every result that must not depend on interruptions."""
    validates = load_config(run.config).trainer.val_freq > 0
    return hashes(run.root, [pattern for pattern in RESULTS if validates or not pattern.startswith("validations/")])
