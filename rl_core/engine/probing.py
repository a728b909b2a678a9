"""Does a worker that has loaded a checkpoint compute what the trainer computed when it was saved?"""

from rl_core.checkpoints.probe import Probe, ProbeItem
from rl_core.types import Group, Prompt, Rollout


class ProbeMismatch(RuntimeError):
    """A loaded checkpoint does not give its probe's log-probs: weights, code or images are not those of its saving."""


def probe_groups(probe: Probe) -> list[Group]:
    """Each item of a probe as a group of one rollout, for a log-prob pass."""
    return [_group(item) for item in probe.items]


def _group(item: ProbeItem) -> Group:
    prompt = Prompt(
        uid=item.name,
        data_source="probe",
        question="",
        text="",
        answer="",
        token_ids=item.token_ids,
        engine_token_ids=item.engine_token_ids,
        image_uids=item.image_uids,
        videos=item.videos,
    )
    rollout = Rollout(
        prompt_uid=item.name,
        sample_index=0,
        response_ids=item.response_ids,
        log_probs=item.log_probs,
        text="",
        finish_reason="length",
        policy_version=0,
    )
    return Group(prompt=prompt, rollouts=[rollout])
