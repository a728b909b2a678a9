"""`sightline evaluate` of saved responses or any model: by protocols, or on the held-out rows of a config."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.commands.init import print_columns
from flows.commands.tables import category_table, shown_share
from flows.printing import print_line, table_of
from flows.process.bars import progress_on
from flows.process.temporary_folder import own_temporary_folder
from flows.request import resolve_run
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.digests import hash_file
from rl_core.evaluation.comparison import Comparison
from rl_core.evaluation.protocol_result import (
    ProtocolResult,
    compare_protocol_results,
    read_protocol_result,
    summarise_by_protocol,
    write_protocol_result,
)
from rl_core.evaluation.protocols.own import own_protocols
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.result import EvaluationResult
from rl_core.families.own import own_family
from rl_core.problem import raise_if_fatal
from rl_core.run_directory import RunDirectory
from rl_core.sources.file_kinds import FILE_KINDS
from rl_core.sources.local import LocalSource
from rl_core.sources.source import DataSource
from rl_core.user_code.function import file_named
from tasks.cache.kept_files import files_of_run
from tasks.cache.named_files import located_config
from tasks.new_config.writing import config_of_rows
from tasks.planning.trials import evaluation_problems

if TYPE_CHECKING:
    from rl_core.evaluation.model_evaluation import Dtype


EVALUATIONS = Path("evaluations")
"""Default folder of results, relative to the working directory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtocolRequest:
    """What to measure by protocols. `prompt` (a Jinja file) and `samples` (responses to each item) replace the
    protocols' own; `items` are texts `protocol=FILE` for protocols that have none on the hub, or for other items;
    relative image paths in such files start from `media_dir`. `limit` asks only the first items. `out` gets a folder
    for each protocol; `against` is such a folder to compare with. With a `config`, whose paths can be read from here,
    its held-out rows are asked in each of its passes, and nothing but `out` and `against` is given."""

    protocols: Sequence[str] = ()
    config: RunConfig | None = None
    prompt: Path | None = None
    samples: int | None = None
    items: Sequence[str] = ()
    media_dir: Path | None = None
    limit: int | None = None
    out: Path | None = None
    against: Path | None = None

    def resolved(self) -> list[Protocol]:
        """The protocols with `prompt` and `samples` in place. Raises ValueError for an unknown name."""
        if self.config is not None:
            return [*own_protocols(self.config)]
        if not self.protocols:
            raise ValueError("name a protocol: --protocol geo3k-easyr1@1")
        protocols = [protocol_named(name) for name in self.protocols]
        if self.prompt is not None:
            protocols = [protocol.with_prompt(self.prompt) for protocol in protocols]
        if self.samples is not None:
            protocols = [protocol.with_samples(self.samples) for protocol in protocols]
        return protocols

    def source_of(self, protocol: Protocol) -> DataSource:
        """The items to ask. Raises ValueError where the protocol has no items of its own and none are given."""
        if self.config is not None:
            return self.config.data.validation
        given = dict(text.partition("=")[::2] for text in self.items)
        if strangers := given.keys() - set(self.protocols):
            raise ValueError(f"--items {min(strangers)}=...: no such protocol was asked for; write PROTOCOL=FILE")
        if protocol.name in given:
            path, media_dir = given[protocol.name], None if self.media_dir is None else str(self.media_dir)
            return LocalSource(type="local", path=path, columns=protocol.columns, media_dir=media_dir, limit=self.limit)
        if protocol.items is None:
            raise ValueError(f"the items of {protocol.name} are files: give them as --items {protocol.name}=FILE")
        return protocol.items.model_copy(update={"limit": self.limit})

    def folder(self, subject: Path) -> Path:
        """Folder of the results on a model or on saved responses. It is named after the last two parts of a path, which
        distinguish the checkpoints of a run, the models of an owner, and files of equal names. Raises ValueError where
        the results would replace the results that they are to be compared with."""
        folder = self.out or EVALUATIONS / "-".join(subject.parts[-2:]).replace("@", "-")
        if self.against is not None and folder.resolve() == self.against.resolve():
            raise ValueError(f"--against {self.against}: the new results would replace it; give --out FOLDER")
        return folder


def config_to_ask(
    target: Path,
    overrides: Sequence[str],
    console: Console,
    *,
    reward: str | None,
    media_dir: Path | None,
    model: str,
    folder: Path,
) -> RunConfig:
    """The config, with paths that can be read from here, by which `model` answers the held-out rows of a config file or
    a run, or else all rows of the data `target`, whose guesses are printed; for these the prompt template is written
    into `folder`. A `reward` replaces the config's own. Raises ValueError where the config is refused or cannot ask or
    grade."""
    if _names_rows(target):
        media = None if media_dir is None else str(media_dir)
        found, config = config_of_rows(
            str(target), media_dir=media, reward=reward, model=model, folder=folder, overrides=overrides
        )
        print_columns(found, console)
        doubts = []
    else:
        if media_dir is not None:
            raise ValueError("--media-dir has no effect with a CONFIG: change data.validation.media_dir by --set")
        if reward is not None and (file := file_named(reward)) is not None:
            reward = f"{Path(file).absolute()}{reward.removeprefix(file)}"  # of the command line, and not of the config
        graded = [] if reward is None else [f"reward={{function: {json.dumps(reward)}}}"]
        resolved = resolve_run(target, [*graded, *overrides])
        files = resolved.files(is_frozen=True)
        config = located_config(resolved.config, files)
        doubts = files.problems()
    problems = [*evaluation_problems(config), *doubts]
    raise_if_fatal(problems)
    for problem in problems:
        print_line(console, str(problem), label="[yellow]warning[/yellow]")
    return config


def _names_rows(target: Path) -> bool:
    """Whether it names rows, on this machine or on the hub, and neither a config file nor a run."""
    is_folder = target.is_dir() and not RunDirectory(target).config.is_file()
    return is_folder or target.suffix.removeprefix(".") in FILE_KINDS or "@" in target.name


def score_outputs(path: Path, request: ProtocolRequest, console: Console) -> int:
    """Score a file of responses by every protocol, print and write the results. Raises ValueError for bad input."""
    from rl_core.evaluation.saved_outputs import read_saved_outputs, score_saved_outputs

    out = request.folder(path.with_suffix(""))
    subject = {"outputs": str(path), "sha256": hash_file(path) if path.is_file() else None}
    for protocol in request.resolved():
        outputs = read_saved_outputs(path, mode=protocol.answering.mode)
        with progress_on(console) as progress:
            items = score_saved_outputs(outputs, protocol, progress=progress)
        result = summarise_by_protocol(protocol, items, subject=subject, was_asked_here=False)
        folder = out / protocol.name
        write_protocol_result(folder, result, items)
        _show_protocol_result(result, folder, request, console)
    return 0


def evaluate_any_model(
    name: str, dtype: "Dtype | None", seed: int, request: ProtocolRequest, console: Console, *, family: str | None
) -> int:
    """Evaluate a model by every protocol, and print and write each result when it is there. `family` names its own, if
    that is none of Sightline; otherwise it is that of the run that has made it. Raises ValueError where the
    model or the items cannot be used, or a protocol is not known. Raises OSError where the hub has no such model, or
    cannot be reached."""
    protocols = request.resolved()
    out = request.folder(Path(name))
    sources = [request.source_of(protocol) for protocol in protocols]
    own_temporary_folder()
    with ExitStack() as stack:
        progress = stack.enter_context(progress_on(console))
        stack.enter_context(own_family(family or _family_of_run(Path(name))))
        with progress.wait("load PyTorch and its libraries"):
            from rl_core.evaluation.model_evaluation import Measurement, evaluate_model, find_model

        measurements = [
            Measurement(protocol=protocol, source=source) for protocol, source in zip(protocols, sources, strict=True)
        ]
        with progress.wait(f"get the model {name}"):
            model = stack.enter_context(find_model(name))
        results = evaluate_model(model, measurements, dtype=dtype or model.own_dtype(), seed=seed, progress=progress)
        for result, items in results:
            folder = out / result.name
            write_protocol_result(folder, result, items)
            _show_protocol_result(result, folder, request, console)
    return 0


def _family_of_run(model: Path) -> str | None:
    """What the config of the run names that a folder is of, or a checkpoint in it, as it can be read from here."""
    folders = (model, *model.absolute().parents[1:2])
    run = next((run for run in map(RunDirectory, folders) if run.config.is_file()), None)
    config = None if run is None else load_config(run.config)
    if run is None or config is None or config.model.family is None:
        return None
    return located_config(config, files_of_run(config, run, is_frozen=True)).model.family


def _show_protocol_result(result: ProtocolResult, folder: Path, request: ProtocolRequest, console: Console) -> None:
    _print_protocol_result(result, console)
    if request.against is not None:
        earlier = request.against / result.name
        print_comparison(
            compare_protocol_results(read_protocol_result(earlier), read_protocol_result(folder)),
            str(request.against),
            console,
        )
    print_line(console, f"  written to {folder}\n")


def _print_protocol_result(result: ProtocolResult, console: Console) -> None:
    console.print(_figures(result))
    if result.result.categories and not result.is_none:
        console.print(category_table(result.result, title="by category"))
    for remark in result.remarks:
        console.print(f"  {escape(remark)}", highlight=False, soft_wrap=True)
    judging = result.protocol["judging"]
    console.print(f"  rule: {escape(judging['rule'])}", highlight=False, soft_wrap=True)
    versions = "".join(f"{package} {number}, " for package, number in judging["versions"].items())
    console.print(f"  {versions}protocol digest {result.digest}", highlight=False)


def print_comparison(comparison: Comparison, against: str, console: Console) -> None:
    """Print whether the new responses are better than those of an earlier evaluation, in the folder `against`."""
    low, high = comparison.ci95
    console.print(
        f"  against {against}: {comparison.first:.1%} -> {comparison.second:.1%}, difference "
        f"{comparison.difference:+.1%} (95 % {low:+.1%} to {high:+.1%}), p = {comparison.p_value:.3g}; "
        f"{len(comparison.gained)} items gained, {len(comparison.lost)} lost",
        highlight=False,
        soft_wrap=True,
    )


def _figures(found: ProtocolResult) -> Table:
    table, result = table_of(title=found.name), found.result
    if found.is_none:
        table.add_row("accuracy", "no result")
    else:
        _add_accuracies(table, result)
    table.add_row("no answer read", shown_share(result.parse_failure_rate))
    table.add_row("cut at the limit", shown_share(result.truncation_rate))
    if result.failed_rewards:
        table.add_row("not scored", f"{result.failed_rewards} responses, left out")
    return table


def _add_accuracies(table: Table, result: EvaluationResult) -> None:
    counted = f"  ({round(result.accuracy * result.samples)}/{result.samples} responses right)"
    table.add_row("accuracy", f"{result.accuracy:.2%}{'' if result.failed_rewards else counted}")
    for name, interval in (("95 % interval", result.ci95), ("by bootstrap", result.bootstrap95)):
        table.add_row(name, f"{interval[0]:.1%} to {interval[1]:.1%}")
    for name, pairs in (("pass", result.pass_at), ("majority", result.majority_at)):
        if pairs:
            table.add_row(f"{name}@k", ", ".join(f"{k}: {share:.1%}" for k, share in pairs))
