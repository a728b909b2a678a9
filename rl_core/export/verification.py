"""Verifies a merged model: it must load in transformers and in vLLM, and reproduce the checkpoint's probe."""

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_core.config.tolerances import Tolerance
from rl_core.export import merged_check
from rl_core.families.registry import vision_of
from rl_core.files import plain_path, read_json
from rl_core.wording import exit_words, last_statement

_logger = logging.getLogger(__name__)

ENGINES = ("transformers", "vllm")
_KEPT_CHARACTERS = 4000


class MergeNotVerified(RuntimeError):
    """A merged folder does not load or reproduce the probe's log-probs; the message says where they differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """The number of compared response tokens, and the largest difference by engine."""

    num_tokens: int
    largest_difference: Mapping[str, float]


def engines_here(folder: Path) -> Sequence[str]:
    """Those that can show on this machine whether a merged folder is right. On a CPU vLLM alone, without
    rl_core.rollout.cpu.image_blocks, lets the tokens of an image see only those before them."""
    import torch  # here, because a model card needs this module but not torch

    vision = vision_of(read_json(folder / "config.json")["model_type"])
    is_one_way = vision is not None and vision.sees_both_ways and not torch.cuda.is_available()
    return ENGINES[:1] if is_one_way else ENGINES


def verify_merged(
    folder: Path, probe_folder: Path, tolerance: Tolerance, *, engines: Sequence[str] | None = None
) -> Verification:
    """Compute the log-probs of the checkpoint's probe with each engine, or those of `engines_here`, in a fresh process
    that does not import Sightline, and compare: on a CPU at the same time, since most of it is importing libraries, on
    a GPU one after the other, with half of the memory each. A model that is larger lies on several GPUs, in the
    machine's memory and on the disk. Raises MergeNotVerified where an engine does not load the folder, or the log-probs
    differ by more than the tolerance. Whatever ends this early, such as Ctrl-C, ends the processes."""
    import torch

    engines = engines_here(folder) if engines is None else engines
    at_once = 1 if torch.cuda.is_available() else len(engines)
    results = []
    for first in range(0, len(engines), at_once):
        with ExitStack() as stack:
            checks = [
                stack.enter_context(_check_running(folder, probe_folder, tolerance, engine))
                for engine in engines[first : first + at_once]
            ]
            results += [result() for result in checks]
    for result in results:
        _logger.info("%s", merged_check.report(result))
    return Verification(
        num_tokens=results[0]["num_tokens"],
        largest_difference={result["engine"]: result["largest_difference"] for result in results},
    )


@contextmanager
def _check_running(
    folder: Path, probe_folder: Path, tolerance: Tolerance, engine: str
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Run a check; yields the function that waits for its result. The end of the block ends the process."""
    script = str(Path(merged_check.__file__))
    with tempfile.TemporaryDirectory() as scratch, plain_path(folder) as plain:
        errors, result_file = Path(scratch) / "errors", Path(scratch) / "result.json"
        # With -P and the scratch folder nothing of this project is on the search path of the process.
        command = [sys.executable, "-P", script, str(plain.absolute()), str(probe_folder.absolute())]
        command += [repr(tolerance.largest), repr(tolerance.mean), "--engine", engine, "--result", str(result_file)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(
                command,
                cwd=scratch,
                env=environment | {"PYTHONSAFEPATH": "1"},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            ) as process,
        ):

            def result() -> dict[str, Any]:
                status = process.wait()
                if not result_file.exists():
                    end = errors.read_text(errors="replace")[-_KEPT_CHARACTERS:]
                    printed = last_statement(end) or "it wrote nothing"
                    failed = MergeNotVerified(f"{engine} cannot load or run {folder} ({exit_words(status)}): {printed}")
                    failed.add_note(end)  # for a log with its traceback
                    raise failed
                found: dict[str, Any] = json.loads(result_file.read_text())
                if not found["is_equal"]:
                    report = merged_check.report(found)
                    raise MergeNotVerified(f"{folder} does not reproduce the log-probs of {probe_folder}\n{report}")
                return found

            try:
                yield result
            finally:
                process.kill()
                process.wait()  # Popen itself does not after Ctrl-C
