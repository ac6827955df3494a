"""Actions as tools: each family's template offers them, and what it documents as a call is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import trl

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.tokens import tokenization
from llamagym_tui.engine.tokens.tokenization import PLAIN_TEMPLATE, ChatTokenizer
from llamagym_tui.errors import ConfigError, ModelLoadError
from llamagym_tui.game.tools import tools_of
from tests.engine.conftest import tiny_llama
from tests.engine.small_tokenizers import qwen_like

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
HERMES = (
    "<|im_start|>system\nYou may call functions: <tools>{% for tool in tools %}{{ tool.function | tojson }}{% endfor %}"
    "</tools><|im_end|>\n{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls is defined %}"
    "{% for call in m.tool_calls %}<tool_call>\n"
    '{"arguments": {{ call.function.arguments | tojson }}, "name": "{{ call.function.name }}"}'
    "\n</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Hermes' template for tools: the arguments come first."""
MISTRAL = (
    "{% set last = messages | selectattr('role', 'equalto', 'user') | list | last %}<s>{% for m in messages %}"
    "{% if m.role == 'user' %}{% if m is sameas last %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]"
    "{% endif %}[INST]{{ m.content }}[/INST]{% elif m.tool_calls is defined %}[TOOL_CALLS] ["
    "{% for call in m.tool_calls %}{{ (call.function | tojson)[:-1] }}, \"id\": \"{{ call.id }}\"}{% endfor %}]</s>"
    "{% elif m.role == 'system' %}{{ raise_exception('no system') }}{% else %}{{ m.content }}</s>{% endif %}"
    "{% endfor %}"
)  # fmt: skip
"""As Mistral's of version 3: the tools stand before the last message of the user, so history is rewritten."""
CHATML = ["<|im_start|>", "<|im_end|>"]
LLAMA = [
    "<|begin_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<|start_header_id|>", "<|end_header_id|>",
]  # fmt: skip
V3 = ["<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
V3 += ["[TOOL_CALLS]", "[ARGS]"]
QWEN_CALL = '<tool_call>\n{"name": "hit", "arguments": {}}\n</tool_call>'
LLAMA_CALL = '{"name": "hit", "parameters": {}}'
MISTRAL_CALL = '[TOOL_CALLS] [{"name": "hit", "arguments": {}, "id": "call00000"}]'
FAMILIES = {
    "Qwen2.5": ("qwen2_5", CHATML, "<|im_end|>", QWEN_CALL, ["Well.\n" + QWEN_CALL]),
    "Qwen3": ("qwen3", CHATML, "<|im_end|>", QWEN_CALL, [f"<think>\nstick?\n</think>\n\n{QWEN_CALL}"]),
    "Qwen3.5": (
        "qwen3_5_think", CHATML, "<|im_end|>", "<tool_call>\n<function=hit>\n</function>\n</tool_call>",
        ["why\n</think>\n\n<tool_call>\n<function=hit>\n</function>\n</tool_call>"],
    ),
    "Llama 3": (
        "llama3_2", LLAMA, "<|eot_id|>", LLAMA_CALL,
        ['<|python_tag|>{"name": "hit", "parameters": {}}', '{"name": "hit", "parameters": {"why": "low"}}'],
    ),
    "Hermes": (
        HERMES, CHATML, "<|im_end|>", '<tool_call>\n{"arguments": {}, "name": "hit"}\n</tool_call>', [QWEN_CALL],
    ),
    "Mistral": (
        MISTRAL, V3, "</s>", MISTRAL_CALL, ["[TOOL_CALLS]hit[ARGS]{}", "[TOOL_CALLS][" + QWEN_CALL[12:-13] + "]"],
    ),
}  # fmt: skip


class Calling(BlackjackAgent):
    actions_as_tools = True

    def get_system_prompt(self) -> str:
        return "You play Blackjack."


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own for each template would take seconds."""
    monkeypatch.setattr(tokenization, "template_fault", lambda tokenizer: None)


def tokenizer_of(template: str, special: list[str], end: str) -> Any:
    tokenizer = qwen_like()
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.eos_token = end
    tokenizer.bos_token = special[0]
    known = TEMPLATES / f"{template}.jinja"
    tokenizer.chat_template = known.read_text("utf-8") if len(template) < 40 else template
    return tokenizer


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_familys_template_offers_the_actions_and_its_calls_are_read(family: Any) -> None:
    template, special, end, call, others = family
    tokenizer = tokenizer_of(template, special, end)
    chat = ChatTokenizer(tokenizer, tools=tools_of(Calling()))
    opening = chat.opening("Play.", "Your total: 12.")
    prompt = tokenizer.decode([*opening.prefix, *opening.rest])
    assert '"name": "stick"' in prompt
    assert '"name": "hit"' in prompt
    assert "Your total: 12." in prompt
    plain = '{"action": 1}'
    canonical = chat.reply_ids(plain)
    assert tokenizer.decode(canonical) == call + end
    assert canonical[-1] in chat.end_ids

    def meant(text: str) -> str:
        return chat.meant(tokenizer(text + end, add_special_tokens=False)["input_ids"])

    assert chat.meant(canonical) == plain
    for other in others:
        assert meant(other) == plain
    agent = Calling()
    for broken in (
        call.replace("hit", "fly"),
        call.replace("hit", "stick") + "\n" + call,
        call[: call.index("hit") - 1],
        "",
    ):
        reading = agent.read(meant(broken))
        assert reading.failed, broken
    # Who answers in words, or as without tools, is understood, too.
    assert agent.read(meant("I hit.")).action == 1
    assert agent.read(meant('{"action": 0}')).action == 0
    assert chat.keeps_history == (template != MISTRAL)


def test_a_call_within_a_thought_is_none() -> None:
    tokenizer = tokenizer_of(HERMES, CHATML, "<|im_end|>")
    chat = ChatTokenizer(tokenizer, tools=tools_of(Calling()))
    text = f"<think>{QWEN_CALL}</think>I do not know."
    assert chat.meant(tokenizer(text)["input_ids"]) == text


def test_names_of_functions_are_letters_digits_and_underscores() -> None:
    class Spaced(Calling):
        action_names = ("go left", "go-right")

    tools = tools_of(Spaced())
    assert tools is not None
    assert [each["function"]["name"] for each in tools.schemas] == ["go_left", "go_right"]
    assert tools.meant(["go_right", "go_right"]) == '{"action": 1}'
    assert tools.meant(["go_right", "go_left"]) == ""


@pytest.mark.parametrize("names", [(), ("go left", "go_left"), ("?", "!"), ("左", "left")])
def test_actions_without_names_of_their_own_are_no_tools(names: tuple[str, ...]) -> None:
    nameless = type("Nameless", (Calling,), {"action_names": names})
    with pytest.raises(ConfigError, match=r"^Nameless offers its actions as tools, .* leave"):
        tools_of(nameless())


def test_a_template_without_tools_is_refused_in_a_sentence() -> None:
    tokenizer = qwen_like()
    tokenizer.chat_template = PLAIN_TEMPLATE
    with pytest.raises(ModelLoadError, match=r"^The chat template of this model has no tools"):
        ChatTokenizer(tokenizer, tools=tools_of(Calling()))


def test_a_policy_scores_and_says_calls_and_an_agent_in_a_loop_plays_by_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = tokenizer_of("qwen2_5", CHATML, "<|im_end|>")
    model = tiny_llama(len(tokenizer))
    torch.manual_seed(0)
    agent = Calling(model, tokenizer, generate_config_dict={"policy": "score"})
    for greedy in (True, False):
        action = agent.act((12, 7, 0), greedy=greedy)
        said = agent.current_episode_messages[-1]["content"]
        assert said == QWEN_CALL.replace("hit", agent.action_names[action])
        agent.assign_reward(0.0)
        agent.terminate_episode(train=False)
