from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.sources.shards import check_shards, shards_pattern


def shards(numbers, count, *, split="train", width=5, ending=".jsonl"):
    return [Path(f"/data/{split}-{number:0{width}}-of-{count:0{width}}{ending}") for number in numbers]


@given(st.integers(1, 40), st.data())
def test_only_a_whole_set_of_shards_is_taken(count, data):
    """Counted from 0 or from 1."""
    first = data.draw(st.sampled_from([0, 1]))
    found = data.draw(st.sets(st.integers(first, first + count - 1), min_size=1))
    files = shards(found, count)
    if len(found) == count:
        check_shards(files)
        return
    with pytest.raises(ValueError, match=f"of {count} shards of train are missing: train-") as caught:
        check_shards(files)
    assert not any(file.name in str(caught.value) for file in files)


def test_the_missing_ones_are_named():
    with pytest.raises(ValueError, match=r"1 of 3 shards of train are missing: train-00001-of-00003\.jsonl; fetch"):
        check_shards(shards([0, 2], 3))
    with pytest.raises(
        ValueError, match=r"8 of 9 shards of a-b are missing: a-b-0-of-9\.parquet, .*a-b-5-of-9.*, \.\.\.;"
    ):
        check_shards(shards([2], 9, split="a-b", width=1, ending=".parquet"))
    with pytest.raises(ValueError, match=f"{10**60 - 1} of {10**60} shards"):
        check_shards(shards([0], 10**60))


@pytest.mark.parametrize(("numbers", "count", "stray"), [([0], 0, 0), ([0, 1, 5], 2, 5), ([0, 1, 2], 2, 2)])
def test_a_number_that_no_shard_has_is_refused(numbers, count, stray):
    with pytest.raises(ValueError, match=f"train has {count} shards by its names, and there is a number {stray}"):
        check_shards(shards(numbers, count))


def test_shards_that_would_be_read_twice_are_refused():
    with pytest.raises(
        ValueError, match="train is there in 00001 and in 00002 shards, so its rows would be read twice"
    ):
        check_shards([*shards([0], 1), *shards([0, 1], 2)])
    with pytest.raises(ValueError, match="these are the splits test, train"):
        check_shards([*shards([0], 1), *shards([0], 1, split="test")])


def test_the_pattern_of_a_shard_names_its_siblings():
    assert shards_pattern(*shards([1], 3)) == Path("/data/train-*-of-00003.jsonl")
    assert shards_pattern(Path("/data/train.jsonl")) is None
