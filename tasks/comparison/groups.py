"""Groups of runs to compare. Runs that differ only in the seed have one recipe and are one group."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_core.digests import digest_of
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import read_amendments
from tasks.cache.kept_files import input_digests
from tasks.cache.stages import dotted_settings, experiment_digest
from tasks.results.run_facts import RunFacts, algorithm_name

_NAMED_KEYS = 3
_ABSENT = "-"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunGroup:
    """Runs that repeat one experiment, sorted by seed; `failures` says for other seeds why their runs did not
    finish."""

    label: str
    runs: tuple[RunFacts, ...]
    failures: Mapping[int, str] = field(default_factory=dict)

    @property
    def evaluated(self) -> list[RunFacts]:
        """The runs that were evaluated."""
        return [run for run in self.runs if run.is_evaluated]


def group_runs(
    runs: Sequence[RunDirectory], named: Mapping[str, Sequence[RunDirectory]] | None = None
) -> list[RunGroup]:
    """The named groups, and one group for each recipe of the other runs, in the given order. A run that is also in a
    named group belongs only to that group. Raises ValueError where there is no run, a run is in two groups, or two
    groups have one name, and ConfigError where a run's config is refused."""
    groups = {label: [RunFacts(run) for run in folders] for label, folders in (named or {}).items()}
    taken = {run.run.root.resolve() for members in groups.values() for run in members}
    recipes: dict[str, list[RunFacts]] = {}
    for folder in dict.fromkeys(run.root for run in runs):
        if folder.resolve() not in taken:
            run = RunFacts(RunDirectory(folder))
            recipes.setdefault(digest_of([experiment_digest(run.config), other_causes(run)]), []).append(run)
    labels = label_groups([members[0] for members in recipes.values()])
    if clash := groups.keys() & set(labels):
        raise ValueError(f"two groups are called {min(clash)}")
    folders = [run.run.root.resolve() for members in groups.values() for run in members]
    if repeated := {folder.name for folder in folders if folders.count(folder) > 1}:
        raise ValueError(f"{min(repeated)} is named more than once in the groups")
    groups |= dict(zip(labels, recipes.values(), strict=True))
    if not groups:
        raise ValueError("name the runs to compare")
    return [
        RunGroup(label=label, runs=tuple(sorted(members, key=lambda run: run.config.seed)))
        for label, members in groups.items()
    ]


def label_groups(runs: Sequence[RunFacts]) -> list[str]:
    """A name for each run: the experiment if all experiments are different, else the algorithm if all algorithms are,
    else the values of the keys that differ."""
    for name_of in (lambda config: config.experiment, lambda config: algorithm_name(config.algorithm)):
        names = [name_of(run.config) for run in runs]
        if len(set(names)) == len(names):
            return names
    rows = list(what_differs(runs).items())
    if len(rows) == 1:
        return rows[0][1]
    labels = [
        ", ".join(f"{key.rpartition('.')[2]}={values[place]}" for key, values in rows[:_NAMED_KEYS])
        for place in range(len(runs))
    ]
    are_different = len(set(labels)) == len(labels)
    return labels if are_different else [f"{label} ({place})" for place, label in enumerate(labels, start=1)]


def what_differs(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """[dotted key, file of the config, or "history"] -> its value in each run, for those in which the runs differ,
    without the seed."""
    flat = [dotted_settings(run.config) | other_causes(run) for run in runs]
    keys = dict.fromkeys(key for one in flat for key in one if key != "seed")
    rows = {key: [_shown(one[key]) if key in one else _ABSENT for one in flat] for key in keys}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def other_causes(run: RunFacts) -> dict[str, str]:
    """What a run's numbers depend on besides its config: [file of the config] -> beginning of its digest, and under
    "history" the changes with which its training went on."""
    files = {name: f"contents {digest[:7]}" for name, digest in input_digests(run.run).items()}
    history = "; ".join(map(str, read_amendments(run.run)))
    return files | ({"history": history} if history else {})


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def protocols_of(runs: Sequence[RunFacts]) -> set[str]:
    """Digests of how a run of each config is evaluated. The files that they name may be gone by now."""
    return {
        digest_of(
            [
                run.config.evaluation.model_dump(mode="json", exclude={"categories"}),
                run.config.reward.model_dump(mode="json"),
                run.config.rollout.max_response_length,
            ]
        )
        for run in runs
    }
