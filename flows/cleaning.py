"""The runs that a cleaning removes, without the runs that an unfinished set of runs needs. Imports no Prefect."""

from datetime import datetime
from pathlib import Path

from flows.reproducing import BaselineSet
from flows.seed_group import SeedGroup
from tasks.housekeeping.removal import Cleaning, plan_cleaning
from tasks.housekeeping.rules import Rule, parse_age


def rule_of(*, older_than: str, failed: bool, superseded: bool) -> Rule:
    """The rule that a person asks for; an empty age is no age. Raises ConfigError for a rule without any condition."""
    return Rule(older_than=parse_age(older_than) if older_than else None, failed=failed, superseded=superseded)


def cleaning(rule: Rule, runs_dir: Path, now: datetime) -> Cleaning:
    """The runs that the rule would remove. Changes nothing."""
    in_use = BaselineSet.needed_runs(str(runs_dir)) | SeedGroup.needed_runs(str(runs_dir))
    return plan_cleaning(runs_dir, rule, now, in_use=in_use)
