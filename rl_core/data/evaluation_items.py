"""Renders the items of a source for an evaluation outside a run: prompts in memory, images in a store."""

from collections.abc import Sequence
from dataclasses import dataclass

from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStoreWriter
from rl_core.data.row_preparation import Limits, PreparedRow, RejectedRow, prepare_rows
from rl_core.progress import Progress
from rl_core.sources.source import DataSource
from rl_core.types import Prompt

_NAMED_ROWS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedItems:
    """The items of a source: prompts in order, and the items that were left out because they cannot be asked."""

    prompts: Sequence[Prompt]
    left_out: Sequence[RejectedRow]

    def remark(self) -> str | None:
        """A sentence about the items that were left out and why; None if there are none."""
        if not self.left_out:
            return None
        first = "; ".join(str(row.row) for row in self.left_out[:_NAMED_ROWS])
        more = "" if len(self.left_out) <= _NAMED_ROWS else "; ..."
        return f"left out: {len(self.left_out)} item(s) that could not be asked ({first}{more})"


def render_items(
    source: DataSource, renderer: ChatRenderer, *, limits: Limits, images: ImageStoreWriter, progress: Progress
) -> RenderedItems:
    """Render every item of a source.

    Raises:
        ValueError: the source cannot be read, or none of its items can be asked; the message names the first ones.
    """
    reader = source.open()
    prompts: list[Prompt] = []
    left_out: list[RejectedRow] = []
    with progress.bar(f"prepare {reader.name}", reader.row_count) as advance:
        for row in prepare_rows(reader, renderer, limits=limits, images=images):
            if isinstance(row, PreparedRow):
                prompts.append(row.prompt)
            else:
                left_out.append(row)
            advance()
    rendered = RenderedItems(prompts=prompts, left_out=left_out)
    if not prompts:
        raise ValueError(f"no item of {reader.name} can be asked; {rendered.remark() or 'it is empty'}")
    return rendered
