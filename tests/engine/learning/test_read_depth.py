"""The layer at which a game is seen, measured on states that were made by hand."""

import torch

from llamagym_tui.engine.learning import foretelling
from llamagym_tui.engine.learning.read_depth import (
    DEMONSTRATED,
    Seen,
    Shown,
    Turns,
    demonstrated_by_layer,
    depth_of,
    explained_by_layer,
)
from llamagym_tui.engine.tokens.tokenization import Opening

PROMPTS = 80
LAYERS = (1, 2, 3)


def _turns() -> tuple[torch.Tensor, Turns]:
    """Two turns at each of 80 prompts, one by each of two actions; the right one is told by the second layer alone."""
    generator = torch.Generator().manual_seed(0)
    right = torch.arange(PROMPTS) // 4 % 2
    noise = torch.randn(3, PROMPTS, 6, generator=generator)
    noise[1, :, 0] = 8.0 * right - 4.0
    prompt = torch.arange(PROMPTS).repeat_interleave(2)
    action = torch.arange(2).repeat(PROMPTS)
    reward = (action == right[prompt]).float()
    prompts = [Opening((), (index,)) for index in range(PROMPTS)]
    return noise, Turns(prompts, prompt, torch.full_like(prompt, -1), action, reward, reward)


def test_the_layer_that_tells_which_action_pays_explains_the_reward_and_others_do_not() -> None:
    states, turns = _turns()

    first, second, third = explained_by_layer(LAYERS, states, turns)

    assert second.explained[0] > 0.7
    assert max(first.explained[0], third.explained[0]) < 0.2
    assert second.explained[1] == second.explained[0]  # the return is the reward
    assert second.explained[2] == 0.0  # nothing comes after


def test_the_layer_whose_states_tell_the_demonstrated_action_explains_it() -> None:
    states, turns = _turns()
    right = torch.arange(PROMPTS) // 4 % 2
    shown = Shown(turns.prompts, torch.arange(PROMPTS), right)

    seen = demonstrated_by_layer(LAYERS, states, shown)

    assert [each.layers for each in seen] == [1, 2, 3]
    assert seen[1].explained[0] > 0.9
    assert max(seen[0].explained[0], seen[2].explained[0]) < 0.2
    found = depth_of(seen, rewards_vary=False, values=DEMONSTRATED)
    assert found.layers == 2
    assert "% of the demonstrated action (all layers:" in found.reason
    same = shown._replace(action=torch.zeros_like(right))
    assert {each.explained for each in demonstrated_by_layer(LAYERS, states, same)} == {(0.0,)}


def test_a_reward_that_never_varies_is_explained_by_no_layer() -> None:
    states, turns = _turns()
    constant = torch.ones_like(turns.reward)

    seen = explained_by_layer(LAYERS, states, turns._replace(reward=constant, to_come=constant))

    assert {each.explained for each in seen} == {(0.0, 0.0, 0.0)}


def test_the_fewest_layers_are_read_that_tell_nine_tenths_of_what_the_best_ones_tell() -> None:
    seen = (Seen(4, (0.4, 0.89, 0.0)), Seen(6, (0.36, 0.9, 0.0)), Seen(10, (0.3, 1.0, 0.0)))
    assert (
        depth_of(seen, rewards_vary=True).layers == 6
    )  # 4 tell 0.89 of the return, 10 tell 0.75 of the reward
    assert depth_of(seen[::2], rewards_vary=True).layers is None


def test_all_layers_are_read_where_rewards_vary_and_none_foretells_them() -> None:
    seen = (Seen(4, (0.04, 0.9, 0.9)), Seen(10, (0.0, 0.9, 0.9)))
    assert depth_of(seen, rewards_vary=True).layers is None
    assert depth_of(seen, rewards_vary=False).layers == 4


def test_values_are_foretold_from_other_folds_alone() -> None:
    """Where a turn is like itself alone, the others foretell their own mean: an error of about 1 in units of spread."""
    values = torch.randn(200, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    every = torch.ones(200, dtype=torch.bool)

    alone = foretelling.errors(
        torch.eye(200, dtype=torch.float64), values, every, torch.arange(200) % foretelling.FOLDS
    )

    assert 0.9 < float(alone.mean()) < 1.1


def test_the_penalty_is_the_best_one_for_each_value() -> None:
    """A noisy value wants a large penalty, a smooth one a small penalty; both are foretold as well as they can be."""
    place = torch.linspace(0, 1, 200, dtype=torch.float64)
    noise = torch.randn(200, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    smooth = torch.sin(6 * place)
    values = torch.stack([smooth, smooth / 4 + noise], dim=1)
    kernel = (-(place[:, None] - place[None]).square() / 0.0005).exp()

    errors = foretelling.errors(
        kernel, values, torch.ones(200, dtype=torch.bool), torch.arange(200) % foretelling.FOLDS
    )

    assert float(errors[:, 0].mean()) < 0.01
    assert float(errors[:, 1].mean()) < 1.2  # 1.75 by the smallest penalty
