"""Counts the rows of a split, and finds the problems that stop a preparation."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rl_core.config.data import DataConfig
from rl_core.data.manifest import LengthSummary, SplitSummary
from rl_core.data.ordering import check_source_weights
from rl_core.data.row_preparation import PreparedRow, RejectedRow

_NAMED_PROBLEMS = 10


@dataclass(kw_only=True, slots=True)
class SplitCounts:
    """The counts of a split, which grow row by row."""

    name: str
    source: str
    lengths: list[int] = field(default_factory=list)
    bad: list[RejectedRow] = field(default_factory=list)
    overlong: list[RejectedRow] = field(default_factory=list)
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
        problems += _weight_problems(data.source_weights, by_name["train"])
    held_out = by_name.pop("validation")
    for split in by_name.values():
        problems += _leaks(split, held_out)
    return problems


def _weight_problems(weights: Mapping[str, float], train: SplitCounts) -> list[str]:
    try:
        check_source_weights(weights, list(train.data_sources))
    except ValueError as error:
        return [f"train: {error}"]
    return []


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


def _named(rejected: list[RejectedRow]) -> Iterator[str]:
    for item in rejected[:_NAMED_PROBLEMS]:
        yield f"  {item.row}"
    if len(rejected) > _NAMED_PROBLEMS:
        yield f"  and {len(rejected) - _NAMED_PROBLEMS} more"


def _leaks(split: SplitCounts, held_out: SplitCounts) -> Iterator[str]:
    """Images, and prompts without images, that training and held-out rows share."""
    yield from _shared("image", split, split.image_rows, held_out.image_rows)
    yield from _shared("prompt", split, split.text_rows, held_out.text_rows)


def _shared(what: str, split: SplitCounts, rows: Mapping[str, int], held_out_rows: Mapping[str, int]) -> Iterator[str]:
    shared = [content for content in held_out_rows if content in rows]
    if not shared:
        return
    yield f"{split.name} and validation share {len(shared)} {what}(s); held-out rows must be unseen"
    for content in shared[:_NAMED_PROBLEMS]:
        yield f"  {what} {content}: {split.name} row {rows[content]}, validation row {held_out_rows[content]}"
    if len(shared) > _NAMED_PROBLEMS:
        yield f"  and {len(shared) - _NAMED_PROBLEMS} more"
