"""What a model's chat template and tokenizer do that training has to know, found by rendering small conversations.

Each fault says what is so, what that does to training, here and where a whole conversation is rendered at once (TRL,
verl, axolotl), and what to do.
"""

from string import Template

from llamagym_tui.engine.tokens.tokenization import MARK, PLAIN_TEMPLATE, ChatTokenizer, shared
from llamagym_tui.game.chat import assistant, system, user

SHOWN = 4
"""Tokens that are shown of a difference."""
FAULTS = {
    "no template": "The tokenizer has no chat template. TRL and verl refuse conversations. Here a plain template is "
    "used (System:, User:, Assistant:), which the model was not trained on. Take an instruction-tuned model, or set "
    "tokenizer.chat_template to what the model knows.",
    "two BOS": "The template writes $bos, and the tokenizer adds another one before any text. Whoever renders a "
    "conversation to text and encodes that trains on two. Here there is one. Encode rendered text with "
    "add_special_tokens=False.",
    "no BOS": "The tokenizer begins each text with $bos, and the template writes none. Conversations begin without it, "
    "here and wherever the template's ids are taken, though the model may know no text without it. If it was tuned "
    "with it, write bos_token at the beginning of the template.",
    "system refused": "The template refuses a system message, or leaves it out. apply_chat_template stops with an "
    "error, or the prompt is lost without a word. Here the system prompt begins the first user message. Elsewhere, "
    "write it there, too.",
    "system moved": "The template writes the system message into a user message: the first, or the last. The model "
    "reads it as the user's words; in the last, it moves with each turn, which rewrites the history. That is so here "
    "and elsewhere. Where a conversation has several turns, write your prompt into the first user message.",
    "no prompt": "The template ignores add_generation_prompt: a prompt ends without the header of a reply. The model "
    "writes the header itself, or goes on in another role. Here and elsewhere, a reply is sampled and trained right "
    "behind the user's message, and later prompts have the header in between. Write "
    "{% if add_generation_prompt %}{{ $header }}{% endif %} at the end of the template.",
    "no end": "The template ends a reply with no token of its own. Whoever trains on its text teaches no end, and "
    "replies run on. Here $end ends a reply, is sampled and is trained. Write eos_token behind a reply in the "
    "template.",
    "end unknown": "The template ends a reply with $end, and generation_config.json ends one with $stops. "
    "generate samples past the end of a turn, and so does vLLM unless that is the tokenizer's eos_token; what they "
    "write there is trained on. Here $end ends a reply, too. Add its id to eos_token_id in generation_config.json.",
    "other EOS": "The template ends a reply with $end, and the tokenizer's eos_token is $eos. A trainer that looks for "
    "eos_token leaves the ends of turns out of the loss, and the model learns no end. Here the sampled end is trained. "
    "Set eos_token to $end, or eot_tokens in axolotl.",
    "padding": "The token that pads, $pad, also ends a reply. A trainer that leaves every pad token out "
    "of the loss leaves the ends out, and replies run on. Here padding is known by its place. Set pad_token to a token "
    "that no message has.",
    "history": "The template writes earlier turns in another way once others follow. A whole conversation that is "
    "rendered has tokens that were not sampled, and TRL or verl trains on those. Here each turn is a sequence of its "
    "own, behind the prompt that was read. Elsewhere, train each turn by itself, or take a template that keeps what "
    "was said.",
    "drift": "Decoded and encoded again, the example has other tokens from '$drifted' on. Whoever passes text from "
    "sampling to training trains on tokens that were not sampled, with other log-probabilities. Here the sampled ids "
    "are kept. Elsewhere, pass token ids on.",
    "no markers": "The template has no {% generation %} markers. TRL's assistant_only_loss has a mask of zeros, unless "
    "TRL has a template of its own for the family. Here no marker is needed. For TRL, write {% generation %} before a "
    "reply and {% endgeneration %} behind its end.",
}
"""By the name of each fault, what is said of it; a $ is before what differs between models."""


def template_faults(chat: ChatTokenizer, ids: list[int]) -> dict[str, str]:
    """What is said of each fault of a model's template, by its name.

    Args:
        chat: of the model.
        ids: of an example, as it is trained on.
    """
    tokenizer = chat.tokenizer
    template = str(tokenizer.chat_template)
    is_own = not template.endswith(PLAIN_TEMPLATE)
    bos = [tokenizer.bos_token_id]
    opened = chat.render([user(MARK)], prompt=True)
    told = chat.render([system(MARK), user("")], prompt=True)
    replied = chat.render([user(MARK), assistant(MARK)], prompt=False)
    header = replied.removeprefix(opened).partition(MARK)[0]
    no_prompt = header.strip() and opened == chat.render([user(MARK)], prompt=False)
    end = chat.end_ids[0]
    # The last reply may have another end than earlier ones.
    behind = chat.ids(replied.rpartition(MARK)[2])
    has_end = not tokenizer.added_tokens_decoder.keys().isdisjoint(behind)
    again = chat.ids(tokenizer.decode(ids, skip_special_tokens=False))
    at = shared(ids, again)
    is_so = {
        "no template": not is_own,
        "two BOS": is_own and tokenizer(opened)["input_ids"][:2] == bos * 2,
        "no BOS": tokenizer("a")["input_ids"][:1] == bos and chat.ids(opened)[:1] != bos,
        "system refused": not chat.takes_system,
        "system moved": chat.takes_system and told.partition(MARK)[0] == opened.partition(MARK)[0],
        "no prompt": no_prompt,
        "no end": not has_end,
        "end unknown": has_end and end not in chat.model_ends,
        "other EOS": has_end and end != tokenizer.eos_token_id,
        "padding": tokenizer.pad_token_id in chat.end_ids,
        # A header that prompts lack is in earlier turns. Whatever else they have is told once prompts have it, too.
        "history": not chat.keeps_history and not no_prompt,
        "drift": again != ids,
        "no markers": is_own and "endgeneration" not in template,
    }
    named = tokenizer.convert_ids_to_tokens
    words = {
        "bos": tokenizer.bos_token,
        "eos": tokenizer.eos_token,
        "pad": tokenizer.pad_token,
        "header": repr(header),
        "end": named(end),
        "stops": ", ".join(map(named, chat.model_ends)) or "nothing",
        "drifted": tokenizer.decode(ids[at : at + SHOWN]),
    }
    return {name: Template(FAULTS[name]).substitute(words) for name in FAULTS if is_so[name]}
