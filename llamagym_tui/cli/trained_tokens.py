"""`doctor --model`: prints which tokens of an example are trained, and what is to be known of the model's template.

No weights are loaded. Tokens and mask are those of a run, and a prompt has all earlier turns.
"""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from llamagym_tui.engine.learning.trl_training import NOT_TRAINED, examples
from llamagym_tui.engine.policy.weightless import WeightlessPolicy, load_chat
from llamagym_tui.engine.tokens.template_faults import template_faults
from llamagym_tui.engine.tokens.tokenization import MARK, shared
from llamagym_tui.game.chat import Conversation, assistant, opening, user
from llamagym_tui.game.environment import agent_env
from llamagym_tui.game.game import Game
from llamagym_tui.game.observed import action_named, reply_of
from llamagym_tui.protocol.inspected import token_text
from llamagym_tui.protocol.literal import echo, literal
from llamagym_tui.screens.conversation.inspector import visible
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup import catalog
from llamagym_tui.state.returns import counted

TURNS = 2
THOUGHT = "<think>\nLet me see.\n</think>\n\n"
COLOURS = {"read": "", "inserted": "yellow", "trained": "green"}
LEGEND = """
read      of the prompt; not in the loss
inserted  by the template, between a reply and the next observation; not in the loss
trained   sampled by the policy; in the loss, token by token, or whole where it is chosen among the legal replies
"""


def report(config: RunConfig) -> None:
    """Print which tokens of an episode are read, inserted and trained, and the faults of the template.

    Raises:
        ModelLoadError: the model cannot be read.
        EnvError: the environment cannot be played.
    """
    chat = load_chat(config.model)
    policy = WeightlessPolicy(chat, history=None)
    rows = examples(policy, _example(config, thought=""))
    faults = template_faults(chat, rows[0].input_ids)
    if "history" in faults:
        # It is mostly thoughts that such a template leaves out.
        rows = examples(policy, _example(config, THOUGHT.removeprefix(chat.opens)))
    count = counted(len(rows), "sequence")
    echo(f"The first turns of an episode, with all earlier ones in a prompt, in {count}:")
    console = Console(highlight=False)

    def show(mark: str, ids: Sequence[int]) -> None:
        tokens = "|".join(visible(token_text(chat.tokenizer, token)) for token in ids)
        line = f"{mark:<10}{tokens}"
        if console.is_terminal:
            console.print(literal(line), style=COLOURS[mark], markup=False, soft_wrap=True)
        else:
            echo(line)

    for row in rows:
        echo("")
        follows: Sequence[int] = ()
        tokens = zip(row.labels, row.input_ids, strict=True)
        for is_read, stretch in groupby(tokens, lambda each: each[0] == NOT_TRAINED):
            ids = [token for _, token in stretch]
            inserted = shared(ids, follows)
            if not is_read:
                show("trained", ids)
                # The template's beginning of whatever comes next.
                follows = chat.continuation(MARK, ended=True)
            else:
                if inserted:
                    show("inserted", ids[:inserted])
                show("read", ids[inserted:])
    echo(LEGEND, lines=True)
    for name, text in faults.items():
        echo(f"{name}: {text}")
    if not faults:
        echo("The template does nothing that training has to know.")


def _example(config: RunConfig, thought: str) -> Conversation:
    """The first turns of an episode in which the last of the legal actions is taken."""
    agent = catalog.player(catalog.agent_of(config))
    conversation = opening(agent.get_system_prompt())
    game = Game(agent, lambda: agent_env(agent))
    game.reset(config.seed)
    while not game.outcome.is_over and len(conversation) < 2 * TURNS:
        seen = game.look()
        name = (seen.actions or agent.action_names)[-1]
        conversation += [user(seen.text), assistant(thought + reply_of(agent, name))]
        game.step(action_named(agent, name))
    game.close()
    return conversation
