"""Lessons in text worlds: a room, what is carried, and a list of commands, of which the reply names one."""

from __future__ import annotations

import json

from scripts.bundled_model.lessons import Chance, Exchange, Lesson

VERBS = (
    "take",
    "open",
    "close",
    "examine",
    "drop",
    "eat",
    "unlock",
    "push",
    "pull",
    "put",
    "cook",
    "look at",
    "use",
)
NOUNS = (
    "key", "old key", "door", "wooden door", "chest", "box", "table", "lamp", "book", "apple", "milk", "stove", "knife",
    "carrot", "couch", "bed", "window", "letter", "coin", "sword", "safe", "drawer", "antique trunk", "plate", "onion",
    "red ball", "blue box", "green door", "grey key", "rope", "ladder", "cup", "shelf", "fridge", "passkey", "note",
)  # fmt: skip
WAYS = ("go north", "go south", "go east", "go west", "look", "inventory", "wait")
ROOMS = (
    "kitchen",
    "bedroom",
    "attic",
    "garden",
    "cellar",
    "hall",
    "living room",
    "pantry",
    "study",
    "shed",
    "corridor",
)
GOALS = (
    "Put the milk on the stove.", "Find the coin.", "Open the chest.", "Escape.", "Make a meal.", "", "Get the key.",
    "Do what the game asks for.", "Earn points.", "Collect as much reward as you can.", "Eat the carrot.",
)  # fmt: skip
LISTS = (
    "Commands: {}.",
    "Commands: {}.",
    "You can: {}.",
    "Commands: {}.",
    "Admissible commands: {}",
    "Choose one: {}.",
    "Actions: {}",
    "You may {}.",
)
PROMPTS = (
    'You are playing a text game. {goal} Reply with {{"action": "command"}}.',
    'You are playing TextWorld. {goal} Reply with {{"action": "..."}}, one of the commands.',
    'You are in a text adventure. {goal} Reply with one of the commands as {{"action": "command"}}.',
    'Text game. {goal} Each message tells an observation. Reply with {{"action": "..."}}.',
)
BARE = (
    "You are playing a text game. Reply with one of the commands that are listed, and nothing else.",
    "You are playing a text game. {goal} Reply with one of the commands that are listed, and nothing else.",
    "You are playing TextWorld. {goal} Reply with a command.",
    "You are in a text adventure. {goal} Write one of the commands.",
)
PICK = (
    "Choose the command with {w}.", "Take what has to do with {w}.", "Always do something with {w}.", "Go for {w}.",
    "Do what names {w}.", "Pick the command about {w}.", "The {w} is what matters.", "Use {w}.", "Deal with {w}.",
    "If you can do something with {w}, do it.", "Reply with the command that has {w} in it.", "Care about {w} alone.",
)  # fmt: skip
PLACES = (
    ("Choose the first command.", 0), ("Choose the last command.", -1), ("Reply with the first one.", 0),
    ("Reply with the last one.", -1), ("Take the second command.", 1), ("Always the first command.", 0),
    ("Always the last command.", -1),
)  # fmt: skip


def lesson(rng: Chance, conversations: int) -> Lesson:
    bare = rng.random() < 0.5
    prompt, form = (
        rng.choice(BARE if bare else PROMPTS).format(goal=rng.choice(GOALS)).replace("  ", " "),
        rng.choice(LISTS),
    )
    roll = rng.random()
    word, place = "", None
    if roll < 0.5:
        word = rng.choice(NOUNS + WAYS[:4])
        prompt += " " + rng.choice(PICK).format(w=word)
    elif roll < 0.7:
        text, place = rng.choice(PLACES)
        prompt += " " + text

    def exchange() -> Exchange:
        commands = [f"{rng.choice(VERBS)} {noun}" for noun in rng.sample(NOUNS, rng.randint(1, 6))]
        commands += rng.sample(WAYS, rng.randint(1, 4))
        if word:
            commands = [each for each in commands if word not in each]
            commands.append(word if word in WAYS else f"{rng.choice(VERBS)} {word}")
        rng.shuffle(commands)
        if word:
            chosen = next(each for each in commands if word in each)
        else:
            chosen = (
                rng.choice(commands) if place is None else commands[min(place, len(commands) - 1)]
            )
        scene = (
            f"-= {rng.choice(ROOMS).title()} =-\n"
            if rng.random() < 0.4
            else f"You are in the {rng.choice(ROOMS)}. "
        )
        if rng.random() < 0.6:
            scene += f"You see {rng.choice(('a', 'the'))} {rng.choice(NOUNS)}. "
        if rng.random() < 0.4:
            scene += f"You are carrying {rng.choice(('nothing', *NOUNS))}. "
        listed = form.format((", " if rng.random() < 0.7 else "; ").join(commands))
        return Exchange(f"{scene}{listed}", chosen if bare else json.dumps({"action": chosen}))

    return Lesson(prompt, [[exchange()] for _ in range(conversations)])
