"""Measures how well a person who only says right or wrong teaches a model to sort words that nobody judged.

    python -m benchmarks.judging --model smollm2

The person is simulated: six shelves of words, each word shown once, in an order of its own for each seed. After so many
judgements the words that were never shown are sorted. Chance is 0.17.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import fmean, median
from typing import Annotated

import torch
import typer

from llamagym_tui.demos.judged_items import own_prompt, shown_to_model
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.own_torch import set_threads
from llamagym_tui.engine.sorter import Reader, Sorter

SHELVES = {
    "animal": "badger beaver camel cat cow deer dog dolphin donkey duck eel falcon fox frog giraffe goat gorilla "
    "hamster hedgehog horse lion lizard mouse otter owl penguin rabbit sheep squirrel tiger turtle wolf",
    "food": "bacon bagel biscuit bread burger butter cake cheese chocolate cookie croissant curry dumpling honey "
    "jam lasagna muffin noodles omelette pancake pasta pie pizza pudding rice salad sandwich sausage soup "
    "steak stew yogurt",
    "tool": "anvil awl axe chisel clamp crowbar drill file hacksaw hammer hoe jigsaw ladder lathe mallet pickaxe "
    "pliers rake sander saw scissors screwdriver shovel sickle spade spanner tongs trowel tweezers vise "
    "wheelbarrow wrench",
    "clothing": "apron bathrobe belt blouse boots cap cardigan coat dress gloves hat hoodie jacket jeans jumper "
    "leggings mittens pajamas sandals scarf shirt shoes shorts skirt slippers socks suit sweater tie "
    "trousers uniform vest",
    "vehicle": "airplane ambulance bicycle boat bus canoe car caravan carriage cart ferry glider helicopter jeep "
    "kayak limousine minivan moped motorcycle raft rocket sailboat scooter ship sled submarine taxi "
    "tractor train tram truck yacht",
    "instrument": "accordion bagpipes banjo bassoon bugle cello clarinet cymbal drum fiddle flute guitar "
    "harmonica harp "
    "harpsichord keyboard lute lyre mandolin oboe organ piano piccolo saxophone tambourine triangle "
    "trombone trumpet tuba ukulele violin xylophone",
}
MANY = 10_000
"""Items among which the time of a judgement is measured."""
LOOKED_AT = (30, 60, 100, 150)
"""Judgements after which the other words are looked at."""


def taught(
    words: Sequence[tuple[str, str]], states: torch.Tensor, of_names: torch.Tensor, seed: int
) -> dict[int, float]:
    """The share of words never shown that are sorted right, by the number of judgements.

    Args:
        words: each with its shelf.
        states: (N, D) of the words.
        of_names: (A, D) of the shelves' names.
        seed: of the order.
    """
    shelves = list(SHELVES)
    order = random.Random(seed).sample(range(len(words)), len(words))
    shelf = [shelves.index(words[index][1]) for index in order]
    sorter = Sorter([words[index][0] for index in order], shelves)
    rows = dict(zip([*sorter.items, *shelves], [*states[order], *of_names], strict=True))
    sorter.read_all(lambda texts: torch.stack([rows[text] for text in texts]))
    found: dict[int, float] = {}
    for count in range(1, max(LOOKED_AT) + 1):
        shown = sorter.shown
        assert shown is not None
        is_right = shown.action == shelf[shown.item]
        sorter.judge(shown.action if is_right else None)
        if count in LOOKED_AT:
            rest = [item for item in range(len(words)) if item not in sorter.judged]
            chosen = sorter.chosen
            found[count] = fmean(int(chosen[item]) == shelf[item] for item in rest)
    return found


def judgement_ms(states: torch.Tensor, of_names: torch.Tensor) -> float:
    """Median processor time of a judgement among `MANY` items, in milliseconds.

    Args:
        states: (N, D) that the items have by turns.
        of_names: (A, D) of the shelves' names.
    """
    shelves = list(SHELVES)
    sorter = Sorter([str(item) for item in range(MANY)], shelves)

    def states_of(texts: Sequence[str]) -> torch.Tensor:
        if texts == shelves:
            return of_names
        return states[[int(text) % len(states) for text in texts]]

    sorter.read_all(states_of)
    took: list[float] = []
    for count in range(max(LOOKED_AT)):
        before = time.process_time()
        sorter.judge(count % len(shelves))
        took.append(1000 * (time.process_time() - before))
    return median(took)


def main(
    model: Annotated[str, typer.Option(help="Name or folder.")] = "smollm2",
    random_weights: Annotated[bool, typer.Option(help="Its shape with random weights.")] = False,
    seeds: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Print the mean over seeds."""
    set_threads(1)
    words = [(word, shelf) for shelf, of_shelf in SHELVES.items() for word in of_shelf.split()]
    loaded = load_model_and_tokenizer(model, "cpu")
    if random_weights:
        torch.manual_seed(0)
        for weight in loaded.model.causal_lm.parameters():
            with torch.no_grad():
                weight.normal_(std=0.02) if weight.dim() > 1 else weight.fill_(1.0)
    reader = Reader(loaded, own_prompt(tuple(SHELVES)))
    before = time.process_time()
    states = reader.states([shown_to_model(word) for word, _ in words])
    of_names = reader.states([shown_to_model(name) for name in SHELVES])
    print(f"{len(words)} words read in {time.process_time() - before:.1f} processor seconds")
    runs = [taught(words, states, of_names, seed) for seed in range(seeds)]
    for count in LOOKED_AT:
        shares = [run[count] for run in runs]
        print(f"{count} judgements: {fmean(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})")
    print(f"a judgement among {MANY:,} items takes {judgement_ms(states, of_names):.1f} ms")


if __name__ == "__main__":
    typer.run(main)
