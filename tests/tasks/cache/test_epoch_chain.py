"""A chain is as good as the list of its links, and costs what is asked of it."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.cache.stages import EpochChain


def chain_of(length: int) -> tuple[EpochChain, list[int]]:
    """A chain whose digests tell what is before them, and the epochs that were computed."""
    computed: list[int] = []

    def link(epoch: int, before: str) -> tuple[str, str]:
        computed.append(epoch)
        return f"train-epoch-{epoch:03d}", f"{before[-20:]}/{epoch}"

    return EpochChain(length, first="cold", link=link), computed


@given(length=st.integers(0, 30), data=st.data())
def test_it_is_a_sequence(length: int, data: st.DataObject) -> None:
    links = list(chain_of(length)[0])
    chain, _ = chain_of(length)
    index = st.integers(-length, length - 1) if length else st.nothing()
    part = data.draw(st.slices(length))
    assert chain[part] == links[part]
    if length:
        number = data.draw(index)
        assert chain[number] == links[number] and links[number] in chain
    assert len(chain) == length
    assert ("train-epoch-001", "other") not in chain and f"train-epoch-{length + 1:03d}" not in dict(links)


def test_no_more_of_it_is_computed_than_is_asked_for() -> None:
    chain, computed = chain_of(10**11)
    assert len(chain) == 10**11
    chain[4], chain[:3]
    assert computed == [1, 2, 3, 4, 5]
    assert ("train-epoch-003", chain[2][1]) in chain
    for stranger in (("train-epoch-002", "other"), ("prepare", "digest"), ("train-epoch-²", "x"), "text", ()):
        assert stranger not in chain
    assert len(computed) == 5
