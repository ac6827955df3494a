"""Whether conversations may share keys and values, found out on the loaded model before it plays.

What a plain forward of transformers gives is right by definition. Prefix cache, trees and ragged rows must give the
same beyond any local window; a model whose state is of another kind, whose positions are hidden in its masks, or whose
window is its own secret fails here, and each of its conversations is computed whole.
"""

import logging
from typing import Any

import torch
from torch import Tensor

from llamagym_tui.engine.model.caches import RaggedCache
from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.model.lean import is_llama_like
from llamagym_tui.engine.model.shape import context_of
from llamagym_tui.engine.tokens.token_tree import TokenTree, tree_rows

FEWEST = 48
"""Tokens of the comparison at least."""
BEYOND = 16
"""Tokens of the comparison past the end of a window."""
WORK = {"cpu": 4e11}
"""Weights times tokens of a forward of the comparison at most: on a processor with few cores some 10 s."""
WORK_OF_ACCELERATORS = 2e13
"""The same on any other device."""
TOLERANCE = 2e-3
"""Nats that log-probabilities may differ by with fp32: rounding."""
COARSE_TOLERANCE = 0.5
"""The same with coarser weights or products."""
FLAT_TOLERANCE = 1e-5
"""Difference of the lean path that is rounding, over the largest of its tensor."""
SMALL = 1e-3
"""Share of the largest gradient of all below which a tensor's own is not what a difference is measured by."""
log = logging.getLogger(__name__)


def checked_backbone(lm: Any) -> tuple[Backbone, str | None]:
    """A backbone that is right for a model, and why it shares nothing (None: it shares).

    Raises:
        ValueError: what the model predicts depends on tokens to come, or is not finite.
    """
    backbone = Backbone(lm, shares=False)
    is_exact = backbone.dtype == torch.float32 and not getattr(lm, "is_quantized", False)
    tolerance = TOLERANCE if is_exact else COARSE_TOLERANCE
    ids, is_enough = _trial(backbone)
    expected = _expected(backbone, ids, tolerance)
    if not is_enough:
        window = _window(lm.config)
        reason = f"trying out keys and values takes too long beyond its window of {window} tokens"
        return backbone, reason
    try:
        backbone.shares = True
        difference = _difference(backbone, ids, expected)
        if difference <= tolerance:
            backbone.flat_is_exact = is_exact and _flat_is_exact(backbone, ids)
            if backbone.flat_is_exact and _difference(backbone, ids, expected) > tolerance:
                backbone.flat_is_exact = False
                log.warning(
                    "Every forward takes the path of any model: the lean one reads shared keys wrongly"
                )
            return backbone, None
        reason = f"with shared keys and values its log-probabilities would be off by up to {difference:.2g} nats"
    except Exception as error:
        reason = f"it takes no shared keys and values ({type(error).__name__})"
    backbone.shares = False
    return backbone, reason


def _flat_is_exact(backbone: Backbone, ids: list[int]) -> bool:
    """Whether a model is computed flat where little is read of trees; of its family, one that is not is logged."""
    on_host = backbone.device.type == "cpu"
    if not (on_host and backbone.is_split and is_llama_like(backbone.lm.config)):
        return False
    try:
        difference = _flat_difference(backbone, ids)
    except Exception:
        log.warning("Updates take the path of any model: the lean one fails", exc_info=True)
        return False
    if difference > FLAT_TOLERANCE:
        log.warning(
            "Updates take the path of any model: the lean one would be off by %.2g of its gradient",
            difference,
        )
    return difference <= FLAT_TOLERANCE


def _flat_difference(backbone: Backbone, ids: list[int]) -> float:
    """Largest difference of log-probabilities and gradients to the model's own, over the largest of each tensor."""
    # A tree with all that can go wrong: a prefix before it, a stem in common, three branches that differ in length.
    third = len(ids) // 3
    prefix = ids[: third // 2]
    stem = ids[third // 2 : third]
    rest = ids[third:]
    tree = TokenTree()
    for branch in (rest, rest[::-1], stem[::-1]):
        tree.insert([*stem, *branch])
    paths = tree.paths()
    # Where the model's own forward, of one row for each path, has the token of each column of the tree.
    of_row = {
        column: (row, len(prefix) + at)
        for row, path in enumerate(paths)
        for at, column in enumerate(path)
    }
    trees = tree_rows([tree], backbone.device)
    columns = torch.tensor(range(len(stem) - 1, len(tree), 2))  # (M,): every other one is read
    read = torch.zeros_like(trees.ids, dtype=torch.bool).index_fill(1, columns, value=True)
    flat = backbone.encode_flat(prefix, trees, read)
    whole = backbone.encode_whole(
        [[*prefix, *(tree.ids[column] for column in path)] for path in paths]
    )
    rows, positions = torch.tensor([of_row[column] for column in columns.tolist()]).T
    weights = [weight for weight in backbone.lm.parameters() if weight.requires_grad]
    ours = _with_gradients(flat, torch.zeros_like(columns), columns, weights)
    theirs = _with_gradients(whole, rows, positions, weights)
    largest = max(float(each.abs().max()) for each in theirs)
    return max(
        float((one - other).abs().max()) / max(float(other.abs().max()), SMALL * largest)
        for one, other in zip(ours, theirs, strict=True)
    )


def _with_gradients(
    encoded: Encoded, rows: Tensor, columns: Tensor, weights: list[Tensor]
) -> list[Tensor]:
    """Log-probabilities at N places, and the gradients of a loss that reads them and the hidden states there."""
    logprobs = encoded.logits_at(rows, columns).log_softmax(-1)  # (N, V)
    hidden = encoded.hidden[rows, columns]  # (N, D)
    if not weights:
        return [logprobs]
    # Any loss would do that reads each of the N places, each in its own way.
    loss = logprobs[:, : len(logprobs)].diagonal().mean() + (hidden * hidden.roll(1, -1)).mean()
    gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    return [logprobs.detach(), *gradients]


def _window(config: Any) -> int:
    """The largest number of tokens after which some layer may look no further back; 0: none is named."""
    named = vars(config.get_text_config()).items()
    windows = [
        size for name, size in named if ("window" in name or "chunk" in name) and type(size) is int
    ]
    return max(windows, default=0)


def _trial(backbone: Backbone) -> tuple[list[int], bool]:
    """Ids to compare on, and whether they reach beyond every window that the masks here do not know."""
    config = backbone.lm.config.get_text_config()
    weights = sum(weight.numel() for weight in backbone.lm.parameters())
    affordable = int(WORK.get(backbone.device.type, WORK_OF_ACCELERATORS) / weights)
    longest = context_of(config) or 0
    if longest <= 0:  # some have -1 for no limit
        longest = 2**30
    window = _window(config)
    if window >= longest:  # it never slides
        window = 0
    wanted = min(max(FEWEST, window + BEYOND), longest)
    length = min(wanted, max(FEWEST, affordable), longest)
    is_known = window == (getattr(config, "sliding_window", None) or 0)
    ids = [(7 * at * at + 3 * at + 1) % backbone.vocabulary for at in range(length)]
    return ids, length == wanted or is_known


@torch.no_grad()
def _expected(plain: Backbone, ids: list[int], tolerance: float) -> dict[int, Tensor]:
    """(V,) log-probabilities by a plain forward at the places that are compared: in the middle, and at the end.

    Raises:
        ValueError: those of a shorter row with padding behind it differ, or some are not finite.
    """
    half = len(ids) // 2
    places = [half, half + 1, len(ids) - 3, len(ids) - 2]
    early = sorted({half * eighth // 8 - 1 for eighth in range(1, 9)})
    encoded = plain.encode_whole([ids])
    if encoded.hidden.shape[:-1] != (1, len(ids)):
        raise ValueError("it has no hidden state of each token that a value head could read")
    whole = _logprobs(encoded, [0] * (len(early) + len(places)), early + places)
    part = _logprobs(plain.encode_whole([ids, ids[:half]]), [1] * len(early), early)
    if not whole.isfinite().all():
        raise ValueError("its predictions are not finite numbers, so its weights are broken")
    if float((whole[: len(early)] - part).abs().max()) > tolerance:
        raise ValueError(
            "what it predicts depends on the tokens that come after, so it cannot write text on"
        )
    return dict(zip(places, whole[len(early) :], strict=True))


@torch.no_grad()
def _difference(shared: Backbone, ids: list[int], expected: dict[int, Tensor]) -> float:
    """Largest difference in nats: of trees behind a recorded prefix, and of ragged rows that grow token by token."""
    *prefix, first, second, third = ids
    end = len(prefix)
    half = len(ids) // 2
    device = shared.device

    # Trees behind a prefix: two rows, and a fork at the first token of the second one.
    forked = TokenTree.of([first, third])
    _, own = forked.insert([first, second])
    encoded = shared.encode_trees(prefix, tree_rows([TokenTree.of([second]), forked], device))
    differences = [
        _logprobs(encoded, [1, 1], [0, own]) - torch.stack([expected[end], expected[end + 1]])
    ]

    # Ragged rows: one goes on where the prefix ends, one in the middle of it, over what the row holds there.
    cache = RaggedCache(2, shared.layers)
    recorded = shared.record(prefix)
    begin = shared.record(ids[:half]) if shared.is_lean else None
    for row in range(2):
        cache.fill(row, recorded, end)
    for step in range(2):
        at = [half + step, end + step]
        columns = torch.tensor(at, device=device)[:, None]
        new = torch.tensor([ids[place] for place in at], device=device)
        encoded = shared.encode_next(new, columns, end + step + 1, cache, begin)
        differences.append(
            _logprobs(encoded, [0, 1], [0, 0]) - torch.stack([expected[place] for place in at])
        )
    return float(torch.cat(differences).abs().max().nan_to_num(float("inf")))


def _logprobs(encoded: Encoded, rows: list[int], columns: list[int]) -> Tensor:
    """(N, V) at N places."""
    at = torch.tensor([rows, columns], device=encoded.hidden.device)
    return encoded.logits_at(at[0], at[1]).log_softmax(-1)
