"""Chooses items that groups of models answered differently, to be shown on the page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.evaluation.comparison import Comparison
from rl_core.evaluation.items import EvaluationItem, Mode
from tasks.comparison.groups import RunGroup
from tasks.comparison.page import FlippedItem, GroupAnswers, Said
from tasks.results.report_page import image_uri

Answers = Mapping[str, Sequence[EvaluationItem]]
"""[uid] -> responses of a model to the item."""


def flipped_items(
    groups: Sequence[RunGroup], mode: Mode, comparisons: Mapping[int, Comparison], *, count: int
) -> list[FlippedItem]:
    """Choose `count` items for each group: alternately items that it gained and that it lost, those with the largest
    difference first.

    Args:
        groups: All groups; the first is the reference.
        mode: The mode whose responses are shown.
        comparisons: [place of a group] -> its comparison with the reference.
        count: Items to choose for each group.
    """
    chosen = list(dict.fromkeys(uid for found in comparisons.values() for uid in _by_turns(found)[:count]))
    if not chosen:
        return []
    answers = [[_by_uid(run.trained[mode]) for run in group.evaluated] for group in groups]
    images = _open_images(groups)
    return [_flipped_item(uid, groups, answers, comparisons, images) for uid in chosen]


def _by_turns(found: Comparison) -> list[str]:
    return [uid for uid in chain.from_iterable(zip_longest(found.gained, found.lost)) if uid is not None]


def _by_uid(items: Sequence[EvaluationItem]) -> Answers:
    answers: dict[str, list[EvaluationItem]] = {}
    for item in items:
        answers.setdefault(item.uid, []).append(item)
    return answers


def _open_images(groups: Sequence[RunGroup]) -> ImageStore | None:
    """Every run has the images of its held-out rows, so the first run whose data is still there is enough."""
    paths = (run.run.data / IMAGES_FILE for group in groups for run in group.evaluated)
    path = next((path for path in paths if path.is_file()), None)
    return ImageStore(path) if path else None


def _flipped_item(
    uid: str,
    groups: Sequence[RunGroup],
    answers: Sequence[Sequence[Answers]],
    comparisons: Mapping[int, Comparison],
    images: ImageStore | None,
) -> FlippedItem:
    item = next(of_run[uid][0] for of_group in answers for of_run in of_group if uid in of_run)
    shown = [image for image in item.image_uids if images is not None and image in images]
    return FlippedItem(
        images=[image_uri(images.image(image)) for image in shown if images is not None],
        question=item.question.replace("<image>", "").strip(),
        truth=item.answer,
        groups=[
            _group_answers(group.label, [of_run[uid] for of_run in of_group if uid in of_run])
            for group, of_group in zip(groups, answers, strict=True)
        ],
        kinds=[
            f"{'gained' if found.flipped[uid] > 0 else 'lost'}-{place}"
            for place, found in comparisons.items()
            if uid in found.flipped
        ],
    )


def _group_answers(label: str, by_model: Sequence[Sequence[EvaluationItem]]) -> GroupAnswers:
    responses = [response for responses in by_model for response in responses]
    said = Counter((response.response, response.is_right) for response in responses)
    return GroupAnswers(
        label=label,
        right=sum(response.is_right for response in responses),
        models=len(responses),
        said=[Said(response=text, is_right=correct, times=times) for (text, correct), times in said.most_common()],
    )
