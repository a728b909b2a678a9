"""`sightline evaluate` by protocols: saved responses, or any model."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.bars import LogLines, TerminalBars
from flows.cli_verdicts import print_comparison, print_verdict
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.verdict import Verdict, reach_verdict, read_verdict, write_verdict
from rl_core.evaluation.verdict_comparison import compare_verdicts
from rl_core.files import hash_file
from rl_core.progress import Progress

EVALUATIONS = Path("evaluations")
"""Where verdicts go when nothing else is said, relative to the working directory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtocolOrder:
    """What to measure by protocols.

    Attributes:
        protocols: Names, such as `geoqa-r1v@1`.
        prompt: A Jinja file with the prompt text to ask with, in place of the protocols' own words.
        out: Folder of the verdicts, one folder a protocol in it; below `evaluations/` when None.
        against: Folder of earlier verdicts to compare with.
    """

    protocols: Sequence[str]
    prompt: Path | None = None
    out: Path | None = None
    against: Path | None = None

    def resolved(self) -> list[Protocol]:
        """The protocols, asking what was ordered. Raises ValueError for an unknown name."""
        if not self.protocols:
            raise ValueError("name a protocol: --protocol geo3k-easyr1@1")
        protocols = [protocol_named(name) for name in self.protocols]
        return [protocol.with_prompt(self.prompt) for protocol in protocols] if self.prompt else protocols

    def folder(self, subject: str) -> Path:
        """Where the verdicts on `subject` go."""
        return self.out or EVALUATIONS / subject


def score_outputs(path: Path, order: ProtocolOrder, console: Console) -> int:
    """Score a file of responses by every protocol, print and write the verdicts.

    Raises:
        ValueError: the file cannot be used, or a protocol is not known.
    """
    from rl_core.evaluation.saved_outputs import read_saved_outputs
    from rl_core.evaluation.scoring import score_saved_outputs

    subject = {"outputs": str(path), "sha256": hash_file(path) if path.is_file() else None}
    for protocol in order.resolved():
        outputs = read_saved_outputs(path, mode=protocol.answering.mode)
        with progress_on(console) as progress:
            items = score_saved_outputs(outputs, protocol, progress=progress)
        verdict = reach_verdict(protocol, items, subject=subject, was_asked_here=False)
        folder = order.folder(path.stem) / protocol.name
        write_verdict(folder, verdict, items)
        show_verdict(verdict, folder, order, console)
    return 0


def show_verdict(verdict: Verdict, folder: Path, order: ProtocolOrder, console: Console) -> None:
    """Print a verdict, and its comparison with an earlier one where that was asked for."""
    print_verdict(verdict, console)
    if order.against is not None:
        earlier = order.against / verdict.name
        print_comparison(compare_verdicts(read_verdict(earlier), read_verdict(folder)), str(order.against), console)
    console.print(f"  written to {folder}\n", highlight=False, soft_wrap=True)


def progress_on(console: Console) -> AbstractContextManager[Progress]:
    """Bars in a terminal, lines elsewhere."""
    return TerminalBars(console) if console.is_terminal else nullcontext(LogLines(console))
