"""Counts the rows of a split, and finds the problems that stop a preparation."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rl_core.config.data import DataConfig
from rl_core.data.manifest import LengthSummary, SplitSummary
from rl_core.data.ordering import check_source_weights
from rl_core.data.row_preparation import PreparedRow
from rl_core.sources.rows import BadRow

_NAMED_PROBLEMS = 10


@dataclass(kw_only=True, slots=True)
class SplitCounts:
    """The counts of a split, which grow row by row."""

    name: str
    source: str
    lengths: list[int] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    overlong: list[BadRow] = field(default_factory=list)
    image_rows: dict[str, int] = field(default_factory=dict)  # image uid -> the first row with this image
    text_rows: dict[str, int] = field(default_factory=dict)  # prompt without images -> the first row with this prompt
    data_sources: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """Number of rows that were read."""
        return len(self.lengths) + len(self.bad) + len(self.overlong)

    def keep(self, item: PreparedRow) -> None:
        """Count a row that is kept."""
        prompt = item.prompt
        self.lengths.append(len(prompt.token_ids))
        self.data_sources[prompt.data_source] += 1
        for uid in prompt.shown_uids:
            self.image_rows.setdefault(uid, item.index)
        if not prompt.shown_uids:
            self.text_rows.setdefault(repr(prompt.text), item.index)

    def summary(self) -> SplitSummary:
        """The summary of the split for the manifest."""
        return SplitSummary(
            source=self.source,
            read=self.read,
            rows=len(self.lengths),
            rejected=len(self.bad),
            overlong=len(self.overlong),
            images=len(self.image_rows),
            data_sources=dict(self.data_sources),
            prompt_tokens=LengthSummary.of(self.lengths),
        )


def split_problems(splits: Sequence[SplitCounts], data: DataConfig) -> list[str]:
    """Everything that stops the preparation: a sentence for each problem, with the first of its rows below."""
    problems = [problem for split in splits for problem in _row_problems(split, data)]
    by_name = {split.name: split for split in splits}
    if data.source_weights is not None:
        try:
            check_source_weights(data.source_weights, list(by_name["train"].data_sources))
        except ValueError as error:
            problems.append(f"train: {error}")
    held_out = by_name.pop("validation")
    for split in by_name.values():
        problems += _shared("image", split, split.image_rows, held_out.image_rows)
        problems += _shared("prompt", split, split.text_rows, held_out.text_rows)
    return problems


def _row_problems(split: SplitCounts, data: DataConfig) -> Iterator[str]:
    bad_share = len(split.bad) / split.read if split.read else 0.0
    too_many_are_bad = bad_share > data.max_bad_share
    overlong_are_refused = bool(split.overlong) and data.overlong == "error"
    if too_many_are_bad:
        yield (
            f"{split.name}: {len(split.bad)} of {split.read} rows are unusable, more than data.max_bad_share "
            f"{data.max_bad_share:g} allows"
        )
        yield from _named(split.bad)
    if overlong_are_refused:
        yield (
            f"{split.name}: {len(split.overlong)} of {split.read} prompts are too long; raise "
            "data.max_prompt_length, lower data.max_pixels, or set data.overlong to filter"
        )
        yield from _named(split.overlong)
    if not split.lengths:
        yield f"{split.name}: no row is left of {split.read}"
        # Rows that were refused above are not named again.
        if not too_many_are_bad:
            yield from _named(split.bad)
        if not overlong_are_refused:
            yield from _named(split.overlong)


def _named(rows: Sequence[object]) -> Iterator[str]:
    for row in rows[:_NAMED_PROBLEMS]:
        yield f"  {row}"
    if len(rows) > _NAMED_PROBLEMS:
        yield f"  and {len(rows) - _NAMED_PROBLEMS} more"


def _shared(what: str, split: SplitCounts, rows: Mapping[str, int], held_out_rows: Mapping[str, int]) -> Iterator[str]:
    shared = [content for content in held_out_rows if content in rows]
    if shared:
        yield f"{split.name} and validation share {len(shared)} {what}(s); held-out rows must be unseen"
    yield from _named(
        [
            f"{what} {content}: {split.name} row {rows[content]}, validation row {held_out_rows[content]}"
            for content in shared
        ]
    )
