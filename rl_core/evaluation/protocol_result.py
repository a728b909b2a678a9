"""What a protocol measures of a model or of saved responses, with everything that the result depends on."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, computed_field

from rl_core.digests import digest_of
from rl_core.evaluation.comparison import Comparison, compare_groups
from rl_core.evaluation.items import EvaluationItem, read_items, write_items
from rl_core.evaluation.protocols.protocol import OWN_WORDS, Protocol
from rl_core.evaluation.result import ITEMS_FILE, EvaluationResult, item_shares, summarise
from rl_core.evaluation.statistics import mcnemar
from rl_core.files import atomic_write_json, committed_folder

RESULT_FILE = "verdict.json"


_NO_RESULT = "no result:"


class ProtocolResult(BaseModel, frozen=True):
    """The result of a protocol (its `Protocol.record`) on a subject, a model with its items and the versions of the
    engine's packages, or a file of responses with its hash. The remarks say why the accuracy may differ from a
    published one."""

    protocol: Mapping[str, Any]
    subject: Mapping[str, Any]
    remarks: tuple[str, ...]
    result: EvaluationResult

    @property
    def name(self) -> str:
        """Name of the protocol."""
        return str(self.protocol["name"])

    @property
    def is_none(self) -> bool:
        """Whether too many responses have no score, so that the numbers of the others are no result."""
        return any(remark.startswith(_NO_RESULT) for remark in self.remarks)

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def digest(self) -> str:
        """Digest of the protocol; results with different digests cannot be compared."""
        return digest_of(self.protocol)


def summarise_by_protocol(
    protocol: Protocol,
    items: Sequence[EvaluationItem],
    *,
    subject: Mapping[str, Any],
    remarks: Sequence[str] = (),
    was_asked_here: bool,
) -> ProtocolResult:
    """Sum up the items of a protocol, of a model that was asked here or of saved responses, whose prompt is not known.
    Raises ValueError when the items differ in their mode or in the number of responses, or no response has a score."""
    result = summarise(items)
    failed = sum(item.has_failed for item in items)
    counted = [*_count_remarks(protocol, result), *_failure_remarks(protocol, failed, len(items))]
    notes = [_prompt_remark(protocol, was_asked_here), *counted, *remarks]
    return ProtocolResult(protocol=protocol.record(), subject=subject, remarks=tuple(notes), result=result)


def write_protocol_result(folder: Path, result: ProtocolResult, items: Sequence[EvaluationItem]) -> None:
    """Replace `folder` by the result and its items, whole or not at all."""
    with committed_folder(folder) as temporary:
        write_items(temporary / ITEMS_FILE, items)
        atomic_write_json(temporary / RESULT_FILE, result.model_dump(mode="json"))


def read_protocol_result(folder: Path) -> tuple[ProtocolResult, list[EvaluationItem]]:
    """Read what write_protocol_result wrote. Raises ValueError when there is nothing."""
    try:
        values = (folder / RESULT_FILE).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no result of a protocol: it has no {RESULT_FILE}") from None
    return ProtocolResult.model_validate_json(values), read_items(folder / ITEMS_FILE)


def compare_protocol_results(
    first: tuple[ProtocolResult, Sequence[EvaluationItem]], second: tuple[ProtocolResult, Sequence[EvaluationItem]]
) -> Comparison:
    """Compare two results of one protocol, item by item. The interval is found by resampling; the p-value is McNemar's
    exact one where each item has one response. Raises ValueError when the protocols differ (the message names the parts
    that do), or the items, or one of them is no result."""
    for result, _ in (first, second):
        if result.is_none:
            raise ValueError(f"not comparable: {next(one for one in result.remarks if one.startswith(_NO_RESULT))}")
    if differing := _differing_parts(first[0], second[0]):
        raise ValueError(f"not comparable: the two results differ in {', '.join(differing)} of their protocols")
    try:
        found = compare_groups([item_shares(first[1])], [item_shares(second[1])])
    except ValueError as error:
        raise ValueError(f"not comparable: {error}") from None
    is_single = not any(item.sample_index for item in (*first[1], *second[1]))
    return dataclasses.replace(found, p_value=mcnemar(len(found.lost), len(found.gained))) if is_single else found


def _differing_parts(first: ProtocolResult, second: ProtocolResult) -> list[str]:
    keys = first.protocol.keys() | second.protocol.keys()
    return sorted(key for key in keys if first.protocol.get(key) != second.protocol.get(key))


def _prompt_remark(protocol: Protocol, was_asked_here: bool) -> str:
    if not was_asked_here:
        return "prompt: not known, the responses were saved elsewhere"
    if protocol.prompt_origin == OWN_WORDS:
        return f"prompt: {OWN_WORDS}, not the published text"
    return f"prompt: {protocol.prompt_origin}"


def _failure_remarks(protocol: Protocol, failed: int, total: int) -> list[str]:
    allowed = protocol.reward_config().max_failed_share
    if failed <= allowed * total:
        return []
    return [
        f"{_NO_RESULT} the reward failed for {failed} of {total} responses, more than reward.max_failed_share = "
        f"{allowed}, so the accuracy is that of a part of the items"
    ]


def _count_remarks(protocol: Protocol, result: EvaluationResult) -> list[str]:
    if protocol.num_items in (None, result.n):
        return []
    return [f"items: {result.n}, not the published {protocol.num_items}"]
