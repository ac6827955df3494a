"""What stands around a person's table, as text: drawing, choices, hint, score, and where the episodes went."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style

from llamagym_tui.demos.human_game import HumanGame
from llamagym_tui.returns import mean_return
from llamagym_tui.screens.play.policy_hint import PolicyHint
from llamagym_tui.screens.widgets.key_bar import KeyOf
from llamagym_tui.screens.widgets.literal import literal, literal_content, one_line
from llamagym_tui.screens.widgets.numbers import number

ASIDE = "$foreground 60%"
KEY = "bold reverse"


def header_text(title: str) -> Content:
    """Who plays what."""
    return Content.assemble(
        (" YOU PLAY ", "bold $background on $accent"),
        (f" {one_line(title)}", "bold"),
        (" · every finished episode becomes a demonstration", ASIDE),
    )


def drawing_text(game: HumanGame) -> Content:
    """The state, drawn."""
    return literal_content(game.drawing)


def choices_text(game: HumanGame, key: KeyOf, *, one_key: bool, writing: bool) -> Content:
    """The actions on their keys, and under them what a key does now.

    Args:
        game: the table.
        key: tells the key of a binding, from its id and the usual one.
        one_key: whether a key takes its action at once.
        writing: whether a sentence is being written.
    """
    now = _what_then(game, key) if writing else _what_now(game, key, one_key)
    return Content("\n").join([_actions(game, key), Content.styled(now, ASIDE)])


def _actions(game: HumanGame, key: KeyOf) -> Content:
    if game.over:
        result = f"The episode is over: return {number(game.score)}.  " if game.returns else ""
        return Content.assemble((result, "bold"), (f" {key('table.next', 'enter')} ", KEY), " next episode")
    row = Content("")
    for index, choice in enumerate(game.choices):
        chosen = choice == game.chosen
        name = f" ▶ {one_line(choice.name)} ◀" if chosen else f" {one_line(choice.name)}"
        cell = Content.assemble((f" {literal(choice.key)} ", KEY), (name, "bold" if chosen else ""))
        row += ("   " if row else "") + cell.stylize(Style.from_meta({"@click": f"screen.choose({index})"}))
    return row


def _what_now(game: HumanGame, key: KeyOf, one_key: bool) -> str:
    if game.over:
        if game.last is None:
            return ""
        if game.discarded:
            return f"Discarded: {key('table.keep', 'backspace')} keeps it after all."
        return f"Kept: {key('table.discard', 'backspace')} discards it."
    take = key("table.take", "enter")
    if game.chosen is not None:
        undo, why = key("table.undo", "backspace"), key("table.reason", "tab")
        return f"{take} or {literal(game.chosen.key)} takes it · {undo} undoes · {why} says why"
    return "a key takes its action at once" if one_key else f"a key chooses, the same key or {take} takes it"


def _what_then(game: HumanGame, key: KeyOf) -> str:
    take = key("table.take", "enter")
    if game.chosen is None:
        return f"write why; after {take} a key chooses"
    return f"write why; {take} takes the action with it"


def hint_text(game: HumanGame, policy: str) -> Content:
    """What policy and expert would do.

    Args:
        game: the table.
        policy: the policy's choice in words, or why it is not there.
    """
    told = f"policy: {one_line(policy)}"
    if game.has_expert:
        told += f"; expert: {one_line(game.hint()) or 'nothing to say here'}"
    return Content.styled(told, "$text-accent italic")


def score_text(game: HumanGame, hint: PolicyHint) -> Content:
    """The return of this episode, their mean so far, and how often the person did what the policy would have done."""
    told = f"this episode {number(game.score)}"
    if (mean := mean_return(game.returns)) is not None:
        plural = "" if mean.episodes == 1 else "s"
        total = number(sum(game.returns))
        told += f" · {mean.episodes:,} episode{plural}, sum {total}, mean return {number(mean.mean, 3)}"
    if hint.compared:
        told += f" · as the policy {hint.agreed} of {hint.compared}"
    return Content(told)


def saved_text(game: HumanGame, fault: str) -> Content:
    """Where the episodes went, or why they did not."""
    return Content(literal(_saved(game, fault)))


def _saved(game: HumanGame, fault: str) -> str:
    saved = game.writer.saved
    if fault:
        return fault
    if saved.fault:
        return f"{saved.waiting} not saved, kept in memory (ctrl+s tries again): {saved.fault}"
    if not saved.episodes:
        return f"Finished episodes are appended to {game.writer.path}"
    plural = "" if saved.episodes == 1 else "s"
    return f"{saved.episodes} episode{plural} saved to {game.writer.path}"
