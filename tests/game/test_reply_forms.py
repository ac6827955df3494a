"""One table of replies as models write them, each with its right reading: the index of an action, or none.

The forms of tool calls are those of the families' own templates, with their special tokens and as they are decoded
without them.
"""

from __future__ import annotations

import pytest
from gymnasium.spaces import Text

from llamagym_tui.agents.generic import GenericAgent
from llamagym_tui.agents.textworld import TextWorldAgent
from llamagym_tui.game.actions import FAILED, ActionReading, parted, read_action

NAMES = ("stick", "hit")
STICK = '<tool_call>\n{"name": "act", "arguments": {"action": 0}}\n</tool_call>'
HIT = '<tool_call>\n{"name": "act", "arguments": {"action": 1}}\n</tool_call>'

TOOL_CALLS = [
    # Hermes, and Qwen 2.5 and 3
    (HIT, 1),
    ('<tool_call>\n{"name": "act", "arguments": {"action": "stick"}}\n</tool_call>', 0),
    ('<tool_call>{"arguments": {"action": 1}, "name": "act"}</tool_call>', 1),
    ('<tool_call>\n{"name": "hit", "arguments": {}}\n</tool_call>', 1),
    ('<scratch_pad>Goal: {"action": 0}?</scratch_pad>\n' + HIT, 1),
    ('<think>\n{"action": 0} loses.\n</think>\n\n' + HIT, 1),
    ("<tool_call>\n{'name': 'act', 'arguments': {'action': 1}}\n</tool_call>", 1),
    ('{"name": "act", "arguments": {"action": 1', 1),
    # Qwen 2 and Qwen 3 Coder
    ('✿FUNCTION✿: act\n✿ARGS✿: {"action": 1}\n✿RESULT✿', 1),
    ("<tool_call>\n<function=act>\n<parameter=action>\n1\n</parameter>\n</function>\n</tool_call>", 1),
    ("<function=act><parameter=action>stick</parameter></function>", 0),
    # Llama 3 and 4
    ('<|python_tag|>{"name": "act", "parameters": {"action": 1}}', 1),
    ('<|python_tag|>{"name": "act", "parameters": {"action": "1"}}<|eom_id|>', 1),
    ('{"type": "function", "name": "act", "parameters": {"action": "hit"}}', 1),
    ('{"name": "stick", "parameters": {}}', 0),
    ('<function=act>{"action": 1}</function>', 1),
    ('<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "act", "parameters": {"action": 0}}<|eot_id|>', 0),
    ("[act(action=1)]", 1),
    ('[act(action="stick")]<|eot|>', 0),
    ("<|python_start|>[hit()]<|python_end|>", 1),
    ("[stick(), hit()]", None),
    ("[act(action=1), act(action=1)]", 1),
    # Mistral
    ('[TOOL_CALLS] [{"name": "act", "arguments": {"action": 1}, "id": "VvvODy9mT"}]', 1),
    ('[TOOL_CALLS][{"name": "act", "arguments": {"action": 0}}]</s>', 0),
    ('[TOOL_CALLS]act[ARGS]{"action": 1}', 1),
    ('[TOOL_CALLS]act[CALL_ID]9SBBxMpQl[ARGS]{"action": "hit"}</s>', 1),
    ('act{"action": 1}', 1),
    ('[THINK]Action: 0 is too careful.[/THINK]Action: 1', 1),
    ('[{"name": "act", "arguments": "{\\"action\\": 1}", "id": "a1b2c3d4e"}]', 1),
    ('[{"name": "act", "arguments": {"action": 1}}, {"name": "act", "arguments": {"action": 0}}]', None),
    # Gemma
    ("```tool_code\nact(action=1)\n```", 1),
    ("```tool_code\nprint(act(action='stick'))\n```", 0),
    ('```json\n{"name": "act", "parameters": {"action": 1}}\n```', 1),
    ("<start_function_call>call:act{action:1}<end_function_call>", 1),
    ("<start_function_call>call:act{action:<escape>1<escape>}<end_function_call>", 1),
    ("<start_function_call>call:act{action:<escape>stick<escape>}<end_function_call>", 0),
    ("<|tool_call>call:act{action:1}<tool_call|>", 1),
    ('<|tool_call>call:act{action:<|"|>hit<|"|>}<tool_call|>', 1),
    ("<|channel>thought\naction:0 or action:1?\n<channel|><|tool_call>call:act{action:0}<tool_call|>", 0),
    ("<|channel>thought\nAction: 0 would be", None),
    ("call:hit{}", 1),
    # Phi
    ('<|tool_call|>[{"name": "act", "arguments": {"action": 1}}]<|/tool_call|>', 1),
    ('functools[{"name": "act", "arguments": {"action": 0}}]', 0),
    (
        '<|assistant|><|tool_call|>{"type": "function", "function": {"name": "act", "arguments": {"action": 1}}}'
        "<|/tool_call|><|end|>",
        1,
    ),
    ("<think>User has 12, action is 0?</think>\n\nThe action is 1.", 1),
    # DeepSeek
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>act\n"
        '```json\n{"action": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        1,
    ),
    ('<｜tool▁call▁begin｜>act<｜tool▁sep｜>{"action": "stick"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>', 0),
    ('functionact\n```json\n{"action": 1}\n```', 1),
    (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="act">\n<｜DSML｜parameter name="action" string="false">1'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        1,
    ),
    ('<｜DSML｜parameter name="action" string="true">stick</｜DSML｜parameter>', 0),
    ("The total is low. Maybe action 0? No.\n</think>\n\nAction: 1", 1),
    ("<think>\nAction: 0\n</think>\n<answer>1</answer>", 1),
    ("<think></think>\n\n$\\boxed{1}$", 1),
    # OpenAI's, Anthropic's and GLM's, which many are tuned on
    ('{"tool_calls": [{"type": "function", "function": {"name": "act", "arguments": "{\\"action\\": 1}"}}]}', 1),
    ('{"function_call": {"name": "act", "arguments": "{\\"action\\": \\"stick\\"}"}}', 0),
    ('{"type": "tool_use", "name": "act", "input": {"action": 1}}', 1),
    ('<invoke name="act">\n<parameter name="action">1</parameter>\n</invoke>', 1),
    ("<tool_call>act\n<arg_key>action</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", 1),
    ('Thought: I am at 12.\nAction: act\nAction Input: {"action": 1}', 1),
    ("Thought: stick would be too careful.\nAction: hit\nAction Input: {}", 1),
]  # fmt: skip

THOUGHTS = [
    ('<think>{"action": 0} is what I would do at 17.</think> Action: 1', 1),
    ('<think>\nAction: 0\n</think>\n\n{"action": 1}', 1),
    ("<thinking>stick?</thinking> hit", 1),
    ("<reasoning>Action: 0</reasoning><answer>Action: 1</answer>", 1),
    ("<THINK>Action: 0</THINK>1", 1),
    ("<think>Action: 0</think>", None),
    ("<think>Action: 0", None),
    ('{"action": 0} <think>Wait, {"action": 1', None),
    ('<think>a</think> Action: 0 <think>b</think> Action: 1', 1),
    ('{"action": 0} <think>Too careful.</think> Action: 1', 1),
    ("<think>one <think>two</think> Action: 1", 1),
    ("Action: 1 <think>Was that right? Action: 0</think>", 1),
    ("Action: 0, I think.</think>Action: 1", 1),
    ("◁think▷Action: 0◁/think▷Action: 1", 1),
    ("<seed:think>Action: 0</seed:think>Action: 1", 1),
    ("<|begin_of_thought|>Action: 0<|end_of_thought|><|begin_of_solution|>Action: 1<|end_of_solution|>", 1),
    ('<|START_THINKING|>{"action": 0}<|END_THINKING|><|START_RESPONSE|>Action: 1<|END_RESPONSE|>', 1),
    ('<|channel|>analysis<|message|>{"action": 0}<|end|><|start|>assistant<|channel|>final<|message|>Action: 1', 1),
    ('<|channel|>analysis{"action": 0}<|channel|>commentary to=functions.act json{"action": 1}', 1),
    ('<|channel|>analysis<|message|>{"action": 0}', None),
]  # fmt: skip

WORDS = [
    # Markdown
    ("**Action:** 1", 1),
    ("**Action**: 1", 1),
    ("**Action: 1**", 1),
    ("__Action:__ `hit`", 1),
    ("*Action*: *stick*", 0),
    ("### Action: 1", 1),
    ("## Action\n1", 1),
    ("**Action**\n\nhit, to get closer to 21 than one who would stick", 1),
    ("- **Action:** **`1`**", 1),
    ("| Action | 1 |", None),
    ("```\n1\n```", 1),
    ("> Action: 1", 1),
    # XML
    ("<action>1</action>", 1),
    ("<action> HIT </action>", 1),
    ("<action>\n  stick\n</action>", 0),
    ('<action name="hit"/>', 1),
    ('<action id="1"/>', 1),
    ('<response><action type="discrete">1</action></response>', 1),
    ("<action>0 or 1</action>", None),
    ("<action>0</action> No, <action>1</action>", 1),
    ("<b>Action: 0</b>\n<b>Action: 1</b>", 1),
    # signs of other scripts
    ("Ａｃｔｉｏｎ：１", 1),
    ("Action：1", 1),
    ("Action: １", 1),
    ("Action: ١", 1),
    ("Action: ۱", 1),
    ("Action: १", 1),
    ("Action：「1」", 1),
    ("Action: «stick»", 0),
    ("Action: #1", 1),
    ("<b>Action:</b> 1", 1),
    ("{“action”: 1}", 1),
    ("{“action”: “hit”}", 1),
    ("{‘action’: ‘stick’}", 0),
    ('{"why": "the “best” move", "action": 1}', 1),
    ('｛＂action＂：１｝', 1),
    ("\ufeffAction: 1", 1),
    ("Action:\u00a01", 1),
    ("Action: −1", None),
    ("Action: ١٫٥", None),
    # a number that is the whole reply
    ("1", 1),
    (" 1\n", 1),
    ("1.0", 1),
    ("1.", 1),
    ("**1**", 1),
    ('"1"', 1),
    ("١", 1),
    ("Action 1", 1),
    ('{"action": 1.0}', 1),
    ("1.5", None),
    ("2", None),
    ("-1", None),
    ("1 or 0", None),
    ("0, 1", None),
    ("I have 1 ace.", None),
    ("11", None),
    # what names two actions, or denies one
    ("Action: 0 or 1", None),
    ("Action: hit or stick", None),
    ("Action: hit/stick", None),
    ("Action: **0** or **1**", None),
    ("Action: <0 or 1>\nAction: 1", 1),
    ('[{"action": 0}, {"action": 1}]', None),
    ("I will not hit.", None),
    ("Don’t hit!", None),
    ("I take action 1 (hit).", 1),
    ("I take action 0, to hit.", None),
    ("There is no action 7, so I hit.", 1),
    ("I take action 7.", None),
    # strings of JSON
    ('"{\\"action\\": 1}"', 1),
    ('{"arguments": "{\\"action\\": \\"stick\\"}"}', 0),
    ('{"arguments": "no JSON", "action": 1}', 1),
]  # fmt: skip

FORMS = [*TOOL_CALLS, *THOUGHTS, *WORDS]


@pytest.mark.parametrize(("reply", "action"), FORMS)
def test_a_reply_of_each_form_is_read_as_it_is_meant(reply: str, action: int | None) -> None:
    assert read_action(reply, NAMES).action == action


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        (HIT, ("", "", HIT)),
        ("It is low. " + HIT, ("", "It is low. ", HIT)),
        ("<think>\n12?\n</think>\n\n" + HIT, ("<think>\n12?\n</think>", "\n\n", HIT)),
        ("12?\n</think>Low. " + HIT, ("12?\n</think>", "Low. ", HIT)),
        ('Not {"action": 0}, but ' + HIT + " now", ("", 'Not {"action": 0}, but ', HIT + " now")),
        ('Low. {"action": {"index": 1}}', ("", "Low. ", '{"action": {"index": 1}}')),
        ("I hit.", ("", "", "I hit.")),
        ('{"arguments": "{no"} Low. ' + HIT, ("", '{"arguments": "{no"} Low. ', HIT)),
        ("<think>Low. " + HIT, ("<think>Low. " + HIT, "", "")),
        ("Low {or not}.", ("", "", "Low {or not}.")),
        ("{" * 4000, ("", "", "{" * 4000)),
    ],
)
def test_a_reply_has_a_thought_a_reason_and_an_action(
    reply: str, parts: tuple[str, str, str]
) -> None:
    assert parted(reply) == parts
    assert "".join(parted(reply)) == reply


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("go west", "go west"),
        ("<think>The door is in the east.</think>\n\ngo west", "go west"),
        ("The door is in the east.</think> go west", "go west"),
        ("<think>go east", None),
    ],
)
def test_a_text_is_what_a_reply_says_after_its_thought(reply: str, text: str | None) -> None:
    class Talker(GenericAgent):
        text_space = Text(9, charset="eginotw ads")

    reading = Talker().extract_action(reply)
    assert reading == (FAILED if text is None else ActionReading(text, "custom"))
    assert TextWorldAgent().extract_action(reply) == text
