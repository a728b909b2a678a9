"""Each named mistake can still be made: its text is in the sources, once."""

import pytest

from tests.mutations import MUTATIONS, REPOSITORY, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_of_a_mistake_is_in_the_sources_once(mutation: Mutation) -> None:
    assert (REPOSITORY / mutation.file).read_text().count(mutation.before) == 1
    assert (REPOSITORY / mutation.tests).exists()
