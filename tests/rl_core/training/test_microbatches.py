from hypothesis import given
from hypothesis import strategies as st

from rl_core.training.microbatches import split_into_microbatches, tree_tokens
from tests.rl_core.builders import drawn_groups, make_train_group

GROUPS = drawn_groups(make_train_group, prompt=20, response=15, samples=6, least=1, most=10)


@given(groups=GROUPS, budget=st.integers(1, 200))
def test_every_sample_lands_in_one_micro_batch_and_one_above_the_budget_is_a_single_sample(groups, budget):
    batches = split_into_microbatches(groups, token_budget=budget)
    found = [(p.prompt.uid, s.rollout.sample_index) for batch in batches for p in batch for s in p.samples]
    wanted = [(g.prompt.uid, s.rollout.sample_index) for g in groups for s in g.samples]
    assert sorted(found) == sorted(wanted)
    for batch in batches:
        if sum(tree_tokens(part) for part in batch) > budget:
            assert [len(part.samples) for part in batch] == [1]


def test_a_group_within_the_budget_stays_one_tree():
    group = make_train_group(lengths=(3, 3, 3), prompt_length=4)
    assert split_into_microbatches([group], token_budget=13) == [[group]]
    assert len(split_into_microbatches([group], token_budget=12)[0]) == 1
