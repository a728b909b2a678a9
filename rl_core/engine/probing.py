"""Does a worker that has loaded a checkpoint compute what the trainer computed when it was saved?"""

from collections.abc import Sequence
from itertools import groupby

from rl_core.checkpoints.probe import Probe, ProbeItem
from rl_core.types import Group, Prompt, Rollout


class ProbeMismatch(RuntimeError):
    """A loaded checkpoint does not give its probe's log-probs: weights, code or images are not those of its saving."""


def probe_groups(probe: Probe) -> list[Group]:
    """A probe's items for a log-prob pass, in groups as they were saved: packed otherwise, they round otherwise."""
    return [_group(uid, list(items)) for uid, items in groupby(probe.items, key=lambda item: _key(item)[0])]


def _key(item: ProbeItem) -> tuple[str, int]:
    uid, _, index = item.name.rpartition("/")
    return uid, int(index)


def _group(uid: str, items: Sequence[ProbeItem]) -> Group:
    asked = items[0]
    prompt = Prompt(
        uid=uid,
        data_source="probe",
        question="",
        text="",
        answer="",
        token_ids=asked.token_ids,
        engine_token_ids=asked.engine_token_ids,
        image_uids=asked.image_uids,
        videos=asked.videos,
    )
    return Group(prompt=prompt, rollouts=[_rollout(item) for item in items])


def _rollout(item: ProbeItem) -> Rollout:
    uid, index = _key(item)
    return Rollout(
        prompt_uid=uid,
        sample_index=index,
        response_ids=item.response_ids,
        log_probs=item.log_probs,
        text="",
        finish_reason="length",
        policy_version=0,
    )
