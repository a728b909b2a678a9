"""A step's rollouts come back equal, from bytes that depend on nothing else."""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.records.rollout_files import _SCHEMA, read_rollouts, write_rollouts
from rl_core.types import Group, Score, TrainGroup, TrainSample
from tests.rl_core.builders import make_group, make_prompt, make_rollout, make_train_group


@pytest.fixture
def groups() -> list[Group]:
    return [make_group(uid, lengths=(1, 2, 3)) for uid in ("b", "a")]


def scores_of(groups: list[Group], *, keys: tuple[str, ...]) -> dict[tuple[str, int], Score]:
    scores = {r.key: Score(components=dict.fromkeys(keys, 0.1), parsed="3") for g in groups for r in g.rollouts}
    return scores | {("a", 2): Score(components={}, error="timeout after 10 s")}


TRAINED = [make_train_group("b", lengths=(1, 2, 3))]
"""The first group; the second was dropped."""


def test_equal_rollouts_give_equal_bytes(tmp_path, groups):
    """Whatever the order in which the scores arrived and their components were named."""
    for name, keys in (("a", ("overall", "format")), ("b", ("format", "overall"))):
        scores = dict(sorted(scores_of(groups, keys=keys).items(), reverse=name == "b"))
        write_rollouts(tmp_path / name, groups, scores, TRAINED, step=7)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("place", [0.1, 0.2, 0.3])
def test_a_changed_byte_is_noticed(tmp_path, groups, place):
    path = tmp_path / "file"
    write_rollouts(path, groups, scores_of(groups, keys=("overall",)), TRAINED, step=7)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises((OSError, pa.ArrowInvalid)):
        read_rollouts(path)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Group], dict[tuple[str, int], Score], list[TrainGroup]]:
    """Groups of ragged rollouts with drawn scores; some rollouts have no score, and some are not in the loss."""
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    components = st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3)
    scores: dict[tuple[str, int], Score] = {}
    groups, trained = [], []
    for number in range(draw(st.integers(0, 4))):
        rollouts = [
            dataclasses.replace(
                make_rollout(f"uid-{number}", index),
                text=draw(st.text(st.characters(codec="utf-8"), max_size=3)),
                response_ids=generator.integers(0, 2**31 - 1, length, dtype=np.int32),
                log_probs=generator.normal(size=length).astype(np.float32),
            )
            for index, length in enumerate(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
        ]
        parsed = st.none() | st.text(max_size=2)
        scores |= {each.key: Score(components=draw(components), parsed=draw(parsed)) for each in rollouts}
        groups.append(Group(prompt=make_prompt(f"uid-{number}"), rollouts=rollouts))
        samples = [
            TrainSample(
                rollout=each,
                advantages=generator.normal(size=len(each.response_ids)).astype(np.float32),
                old_log_probs=each.log_probs,
                in_loss=draw(st.booleans()),
            )
            for each in rollouts
        ]
        if draw(st.booleans()):
            trained.append(TrainGroup(prompt=groups[-1].prompt, samples=samples))
    return groups, scores, trained


@given(step=steps())
@settings(deadline=None, max_examples=40)
def test_the_bytes_are_those_of_a_table_that_is_made_row_by_row(step):
    groups, scores, trained = step
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write_rollouts(path, groups, scores, trained, step=3)
        rows = [dataclasses.asdict(record) for record in read_rollouts(path)]
        sink = pa.BufferOutputStream()
        schema = pa.schema([one for one in _SCHEMA if one.name not in ("insertions", "environment", "opening")])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, compression="zstd", write_page_checksum=True)
        assert path.read_bytes() == sink.getvalue().to_pybytes()
    advantages = {s.rollout.key: s.advantages.tolist() for g in trained for s in g.samples if s.in_loss}
    rollouts = [each for group in groups for each in group.rollouts]
    assert [row["response_ids"] for row in rows] == [each.response_ids.tolist() for each in rollouts]
    assert [row["log_probs"] for row in rows] == [each.log_probs.tolist() for each in rollouts]
    assert [row["components"] for row in rows] == [
        dict(sorted(scores[each.key].components.items())) for each in rollouts
    ]
    assert [row["advantages"] for row in rows] == [advantages.get(each.key) for each in rollouts]
