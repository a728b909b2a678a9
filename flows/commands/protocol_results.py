"""Results of evaluation protocols at a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.commands.tables import category_table, shown_share
from rl_core.evaluation.comparison import Comparison
from rl_core.evaluation.protocol_result import ProtocolResult
from rl_core.evaluation.result import EvaluationResult


def print_protocol_result(result: ProtocolResult, console: Console) -> None:
    """Print a result: its figures, and what a reader must know about them."""
    console.print(_figures(result.name, result.result))
    if result.result.categories:
        console.print(category_table(result.result, title="by category"))
    for remark in result.remarks:
        console.print(f"  {escape(remark)}", highlight=False, soft_wrap=True)
    judging = result.protocol["judging"]
    console.print(f"  rule: {escape(judging['rule'])}", highlight=False, soft_wrap=True)
    console.print(f"  {_versions(judging['versions'])}protocol digest {result.digest}", highlight=False)


def print_comparison(comparison: Comparison, against: str, console: Console) -> None:
    """Print whether the new responses are better than the responses of an earlier evaluation, whose folder is
    `against`."""
    low, high = comparison.ci95
    console.print(
        f"  against {against}: {comparison.first:.1%} -> {comparison.second:.1%}, difference "
        f"{comparison.difference:+.1%} (95 % {low:+.1%} to {high:+.1%}), p = {comparison.p_value:.3g}; "
        f"{len(comparison.gained)} items gained, {len(comparison.lost)} lost",
        highlight=False,
        soft_wrap=True,
    )


def _figures(name: str, result: EvaluationResult) -> Table:
    right = f"{round(result.accuracy * result.samples)}/{result.samples}"
    table = Table(title=name, title_justify="left", show_header=False)
    table.add_row("accuracy", f"{result.accuracy:.2%}  ({right} responses right)")
    for name, interval in (("95 % interval", result.ci95), ("by bootstrap", result.bootstrap95)):
        table.add_row(name, f"{interval[0]:.1%} to {interval[1]:.1%}")
    for name, pairs in (("pass", result.pass_at), ("majority", result.majority_at)):
        if pairs:
            table.add_row(f"{name}@k", ", ".join(f"{k}: {share:.1%}" for k, share in pairs))
    table.add_row("no answer read", shown_share(result.parse_failure_rate))
    table.add_row("cut at the limit", shown_share(result.truncation_rate))
    if result.failed_rewards:
        table.add_row("not scored", f"{result.failed_rewards}, counted as wrong")
    return table


def _versions(versions: Mapping[str, Any]) -> str:
    return "".join(f"{package} {number}, " for package, number in versions.items())
