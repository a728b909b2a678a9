"""A chain is as good as the list of its links, and costs what is asked of it."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.cache.stages import EpochChain


@given(length=st.integers(0, 30), data=st.data())
def test_it_is_a_sequence(length: int, data: st.DataObject) -> None:
    chain = EpochChain(length, training="digest")
    links = list(chain)
    part = data.draw(st.slices(length))
    assert chain[part] == links[part]
    if length:
        number = data.draw(st.integers(-length, length - 1))
        assert chain[number] == links[number] and links[number] in chain
    assert len(chain) == length == len(set(links))
    assert ("train-epoch-001", "other") not in chain and f"train-epoch-{length + 1:03d}" not in dict(links)


def test_no_more_of_it_is_computed_than_is_asked_for() -> None:
    chain = EpochChain(10**11, training="digest")
    assert len(chain) == 10**11
    assert ("train-epoch-003", chain[2][1]) in chain
    for stranger in (("train-epoch-002", "other"), ("prepare", "digest"), ("train-epoch-²", "x"), "text", ()):
        assert stranger not in chain


def test_the_epochs_of_another_training_are_others() -> None:
    assert not set(EpochChain(9, training="one")) & set(EpochChain(9, training="other"))
