"""Keeps the responses of an evaluation as they are generated, so that an interrupted evaluation continues where it
stopped. A response depends on its request's seed, prompt and weights, so it equals the one of an uninterrupted
evaluation, but for rounding (docs/architecture.md, "What equal means"). Scores are not kept: they cost little."""

import base64
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rl_core.files import atomic_write_bytes, cut_file
from rl_core.types import EnvironmentOpening, Generate, GenerationRequest, Insertion, Rollout, RolloutStream, Sampling

_LOG = logging.getLogger(__name__)
_ARRAYS = {"response_ids": np.int32, "log_probs": np.float32}


class ResponseFile:
    """A file of responses: a header with the `key`, a digest of everything that they depend on, then a line for each
    response. A file with another key is written from the start again."""

    def __init__(self, path: Path, *, key: str) -> None:
        self._path = path
        self._header = json.dumps({"key": key}).encode()

    def around(self, generate: Generate) -> Generate:
        """Wrap `generate`: yields the kept responses first, generates the missing ones, and keeps each."""

        def resumed(requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
            kept = self._open()
            missing = [request for request in requests if request.seed not in kept]
            if len(missing) < len(requests):
                _LOG.info("%d of %d responses were generated before", len(requests) - len(missing), len(requests))
            yield from (kept[request.seed] for request in requests if request.seed in kept)
            if missing:
                yield from self._keeping(generate(missing, sampling), missing)

        return resumed

    def remove(self) -> None:
        """Remove the file, once the evaluation is written and there is nothing to continue."""
        self._path.unlink(missing_ok=True)

    def _keeping(self, rollouts: Iterator[Rollout], requests: Sequence[GenerationRequest]) -> Iterator[Rollout]:
        seeds = {(request.prompt.uid, request.sample_index): request.seed for request in requests}
        with self._path.open("a", encoding="utf-8") as file:
            for rollout in rollouts:
                file.write(json.dumps({"seed": seeds[rollout.key], **_as_json(rollout)}) + "\n")
                file.flush()  # a killed process loses nothing that was flushed
                yield rollout

    def _open(self) -> dict[int, Rollout]:
        """[seed] -> kept response. The file is cut off at the first line that cannot be read: a killed process leaves
        an incomplete last line, and a power cut leaves blocks of zeros."""
        data = self._path.read_bytes() if self._path.is_file() else b""
        *lines, _ = data.split(b"\n")
        if not lines or lines[0] != self._header:
            if lines:
                _LOG.warning(
                    "%s belongs to another evaluation or to other software: all responses are generated again",
                    self._path,
                )
            atomic_write_bytes(self._path, self._header + b"\n")
            return {}
        kept = _read_until_torn(lines[1:])
        size = sum(len(line) + 1 for line in lines[: 1 + len(kept)])
        if size < len(data):
            _LOG.warning("%s cannot be read from line %d on; the rest is generated again", self._path, 2 + len(kept))
            cut_file(self._path, size)
        return dict(kept)


def _read_until_torn(lines: Sequence[bytes]) -> list[tuple[int, Rollout]]:
    kept = []
    for line in lines:
        try:
            record = dict(json.loads(line))
            kept.append((int(record.pop("seed")), _of_json(record)))
        except (ValueError, TypeError, KeyError):
            break
    return kept


def _as_json(rollout: Rollout) -> dict[str, Any]:
    arrays = {name: base64.b64encode(getattr(rollout, name).tobytes()).decode() for name in _ARRAYS}
    insertions = [put.as_record() for put in rollout.insertions]
    opening = rollout.opening and rollout.opening.as_record()
    return asdict(rollout) | arrays | {"insertions": insertions, "opening": opening}


def _of_json(record: dict[str, Any]) -> Rollout:
    arrays = {name: np.frombuffer(base64.b64decode(record[name]), dtype=kind) for name, kind in _ARRAYS.items()}
    insertions = tuple(Insertion.of_record(put) for put in record["insertions"])
    opening = EnvironmentOpening.of_record(record["opening"])
    return Rollout(**(record | arrays | {"insertions": insertions, "opening": opening}))
