"""Responses that somebody saved: reading them, and scoring them without a model."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.answers import answer_text, written
from rl_core.evaluation.items import EvaluationItem, graded_item
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.progress import Progress
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample
from rl_core.sources.rows import json_columns
from rl_core.types import Prompt

RESPONSE_KEYS = ("response", "model_output", "output", "prediction", "completion")
TRUTH_KEYS = ("ground_truth", "answer", "label")
UID_KEYS = ("uid", "id", "question_id")
QUESTION_KEYS = ("question", "problem", "prompt")
_MODE_KEY = "mode"
_CATEGORIES_KEY = "categories"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedOutput:
    """One saved response to an item: its `uid` or, where the file has none, the number of the row among the rows of its
    mode; its question, empty where the file has none; and the other columns of the row."""

    uid: str
    question: str
    answer: str
    response: str
    sample_index: int
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_saved_outputs(path: Path, *, mode: str) -> list[SavedOutput]:
    """Read a file of responses: JSON (a list, or an object with the list in `results`), JSONL, or Parquet, such as the
    items.parquet of an evaluation. A row holds the response (RESPONSE_KEYS; a list for several samples) and the truth
    (TRUTH_KEYS), perhaps an identity and the question. If there is a column `mode`, only the rows of `mode` are read.
    Raises ValueError where the file cannot be read or is empty, or a row, which is named, lacks a response or a
    truth."""
    rows = [(row, record) for row, record in enumerate(_records(path)) if record.get(_MODE_KEY, mode) == mode]
    if not rows:
        raise ValueError(f"{path} holds no {mode} response")
    seen: Counter[str] = Counter()
    outputs = []
    for number, (row, record) in enumerate(rows):
        try:
            outputs += _outputs_of(record, number, seen)
        except ValueError as error:
            raise ValueError(f"{path}, row {row}: {error}") from None
    return outputs


def _outputs_of(record: Mapping[str, Any], number: int, seen: Counter[str]) -> list[SavedOutput]:
    asked = record.get("question")
    # In R1-V's logs this is the whole item.
    item = {**asked, **record, "question": asked.get("question", "")} if isinstance(asked, Mapping) else dict(record)
    responses = _value(item, RESPONSE_KEYS, "response")
    truth = answer_text(written(_value(item, TRUTH_KEYS, "truth")))
    uid = str(next((item[key] for key in UID_KEYS if item.get(key) is not None), f"row-{number:06d}"))
    question = next((item[key] for key in QUESTION_KEYS if isinstance(item.get(key), str)), "")
    outputs = []
    for response in responses if isinstance(responses, list) else [responses]:
        if not isinstance(response, str):
            raise ValueError(f"the response is {type(response).__name__}, not text")
        outputs.append(
            SavedOutput(
                uid=uid,
                question=question,
                answer=truth,
                response=response,
                sample_index=seen[uid],
                extra=_extra(item),
            )
        )
        seen[uid] += 1
    return outputs


def _extra(item: Mapping[str, Any]) -> dict[str, Any]:
    """The columns other than the response. The categories in our own files count as columns too."""
    columns = json_columns({key: value for key, value in item.items() if key not in RESPONSE_KEYS})
    return columns | dict(columns.pop(_CATEGORIES_KEY, ()))


def _value(record: Mapping[str, Any], keys: Sequence[str], what: str) -> Any:
    for key in keys:
        if record.get(key) is not None:
            return record[key]
    raise ValueError(f"no {what} ({', '.join(keys)}); it has {', '.join(sorted(record))}")


def _records(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        found = _READERS[path.suffix](path)
    except KeyError:
        raise ValueError(f"{path}: saved responses are read from {', '.join(_READERS)}") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, list) or not all(isinstance(record, Mapping) for record in found):
        raise ValueError(f"{path} holds neither a list of rows nor an object with such a list in `results`")
    return found


def _from_json(path: Path) -> Any:
    found = json.loads(path.read_text(encoding="utf-8"))
    return found.get("results") if isinstance(found, Mapping) else found


def _from_jsonl(path: Path) -> Any:
    # Lines end with \n alone: str.splitlines would also cut at separators that a response may hold.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _from_parquet(path: Path) -> Any:
    return pq.read_table(path).to_pylist()


_READERS = {".json": _from_json, ".jsonl": _from_jsonl, ".parquet": _from_parquet}


_SOURCE = "saved outputs"
_NOTHING = np.zeros(0, dtype=np.int32)


def score_saved_outputs(
    outputs: Sequence[SavedOutput], protocol: Protocol, *, progress: Progress
) -> list[EvaluationItem]:
    """Score saved responses, in their order, in the isolated pool. The item of one without a score has the reason."""
    prompts = [_prompt(output) for output in outputs]
    with RewardPool(protocol.reward_config()) as pool, progress.bar(f"score by {protocol.name}", len(outputs)) as bar:
        futures = [
            pool.submit(RewardSample.of_text(prompt, output.response))
            for prompt, output in zip(prompts, outputs, strict=True)
        ]
        pool.flush()
        items = []
        for prompt, output, future in zip(prompts, outputs, futures, strict=True):
            item = graded_item(
                prompt,
                output.response,
                future.result(),
                mode=protocol.answering.mode,
                sample_index=output.sample_index,
                accuracy_key=protocol.judging.accuracy_key,
                categories=protocol.categories,
                has_parser=pool.has_parser(_SOURCE),
            )
            items.append(item)
            bar()
        return items


def _prompt(output: SavedOutput) -> Prompt:
    """The prompt for the reward. It was asked elsewhere, so it has no tokens here."""
    return Prompt(
        uid=output.uid,
        data_source=_SOURCE,
        question=output.question,
        text=output.question,
        answer=output.answer,
        token_ids=_NOTHING,
        engine_token_ids=_NOTHING,
        extra=output.extra,
    )
