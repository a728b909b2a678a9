"""Ten mistakes that would train something else in silence, and the tests that must notice each.

    python -m tests.mutations            # all of them
    python -m tests.mutations mask probe # some

Each mutation is one replacement of text in a copy of the sources; its tests run against the copy and must fail. The
same tests pass on the unchanged sources (the control, run first).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """A mistake: `before` becomes `after` in `file`, and `tests` must turn red."""

    name: str
    file: str
    before: str
    after: str
    tests: str


MUTATIONS = (
    Mutation(
        name="advantage-sign",
        file="rl_core/algorithms/estimators/grpo.py",
        before="(rewards - rewards.mean()) / (",
        after="(rewards.mean() - rewards) / (",
        tests="tests/rl_core/algorithms",
    ),
    Mutation(
        name="mask",
        file="rl_core/models/cpu/short_tree.py",
        before=".triu_(1)",
        after=".triu_(2)",
        tests="tests/rl_core/models/test_plain.py",
    ),
    Mutation(
        name="denominator",
        file="rl_core/algorithms/aggregation.py",
        before="1.0 / totals.tokens)",
        after="1.0 / int(counts.sum()))",
        tests="tests/rl_core/algorithms/test_aggregation.py",
    ),
    Mutation(
        name="token-ban",
        file="rl_core/rollout/vllm_arguments.py",
        before="non_blocking=True)] += BANNED_LOGIT_BIAS",
        after="non_blocking=True)] += 0.0",
        tests="tests/rl_core/rollout/test_vllm_engine.py",
    ),
    Mutation(
        name="no-sync",
        file="rl_core/workers/local_worker.py",
        before="if generator.policy_version == version and self._synced_changes == trainer.weight_changes:",
        after="if self._synced_changes is not None:",
        tests="tests/rl_core/loop/test_step.py",
    ),
    Mutation(
        name="no-cache-reset",
        file="rl_core/rollout/vllm_engine.py",
        before="        self._drop_caches()\n",
        after="",
        tests="tests/rl_core/rollout/test_vllm_engine.py",
    ),
    Mutation(
        name="seed-reuse",
        file="rl_core/rollout/requests.py",
        before='"rollout", step, prompt.uid, index)',
        after='"rollout", step, index)',
        tests="tests/rl_core/rollout/test_requests.py",
    ),
    Mutation(
        name="old-log-probs",
        file="rl_core/algorithms/policy_loss.py",
        before="self.log_probs - self.old_log_probs",
        after="self.log_probs - self.log_probs.detach()",
        tests="tests/rl_core/algorithms/test_against_golden.py",
    ),
    Mutation(
        name="probe",
        file="rl_core/checkpoints/probe.py",
        before="replace(rollout, log_probs=found)",
        after="replace(rollout, log_probs=rollout.log_probs)",
        tests="tests/rl_core/workers/test_checkpoint.py",
    ),
    Mutation(
        name="loader-cursor",
        file="rl_core/data/loader.py",
        before='self._move_to(state["epoch"], state["position"])',
        after='self._move_to(state["epoch"], 0)',
        tests="tests/rl_core/data/test_loader.py",
    ),
)


def run_tests(folder: Path, tests: str) -> int:
    """Exit status of pytest on `tests`, with the sources of `folder` before the installed ones."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode


def copy_sources(folder: Path) -> None:
    """What the tests need: packages, tests, configs and the project file."""
    for name in ("rl_core", "tasks", "flows", "sightline_tools", "tests", "configs"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(REPOSITORY / "pyproject.toml", folder)


def survives(mutation: Mutation) -> bool:
    """Whether the tests stay green with the mutation, which is bad. Raises ValueError when its text has gone."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        copy_sources(folder)
        if run_tests(folder, mutation.tests) != 0:
            raise ValueError(f"{mutation.name}: {mutation.tests} is red without the mutation")
        file = folder / mutation.file
        text = file.read_text()
        if text.count(mutation.before) != 1:
            raise ValueError(f"{mutation.name}: {mutation.file} must hold {mutation.before!r} once")
        file.write_text(text.replace(mutation.before, mutation.after))
        return run_tests(folder, mutation.tests) == 0


def main() -> None:
    """Run the mutations named on the command line, or all; exit 1 when one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    survivors = []
    for mutation in MUTATIONS:
        if names and mutation.name not in names:
            continue
        verdict = "SURVIVED" if survives(mutation) else "caught"
        print(f"{mutation.name:16} {verdict:9} {mutation.tests}", flush=True)
        survivors += [mutation.name] if verdict == "SURVIVED" else []
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
