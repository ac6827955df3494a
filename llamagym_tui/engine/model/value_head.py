"""A causal LM with a value head: this project's own `AutoModelForCausalLMWithValueHead`.

TRL had one until it dropped PPO. The head reads the last hidden state; its output layer starts at zero, so that an
untrained critic predicts 0 and cannot explode the first updates.
"""

from __future__ import annotations

import inspect
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from llamagym_tui.engine.model import hub
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.load_faults import require_all_weights
from llamagym_tui.engine.model.ridge import RidgeCritic
from llamagym_tui.engine.model.shape import base_of
from llamagym_tui.errors import ConfigError, ModelLoadError
from llamagym_tui.settings import LoraConfig

VALUE_HEAD_FILE = "value_head.safetensors"


NO_CAUSAL_LM = (
    "An agent takes a loaded causal LM, not {}: "
    "loaded = load_model_and_tokenizer(name); Agent(loaded.model, loaded.tokenizer)."
)


class ValueHead(nn.Module):
    """Two layers from a hidden state to a value; the last one starts at zero."""

    def __init__(self, hidden_size: int, width: int = 128) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.dense = nn.Linear(hidden_size, width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) hidden states to (...) values, in fp32."""
        return self.out(torch.tanh(self.dense(hidden.float()))).squeeze(-1)


class ValueHeadOutput(NamedTuple):
    """The result of a forward."""

    logits: Tensor
    """(B, T, V)."""
    values: Tensor
    """(B, T)."""


class AutoModelForCausalLMWithValueHead(nn.Module):
    """Any causal LM of transformers, with a value head in addition to its LM head."""

    def __init__(self, pretrained_model: Any) -> None:
        """Wrap a `PreTrainedModel` with an LM head, or a `PeftModel` of one.

        Raises:
            ConfigError: it is neither, or its adapter cannot be trained here.
        """
        super().__init__()
        _require_causal_lm(pretrained_model)
        self.pretrained_model = pretrained_model
        self.v_head: ValueHead | RidgeCritic
        self._take_critic(ValueHead(self.causal_lm.config.get_text_config().hidden_size))
        self.has_default_adapter = False
        """True for a fresh adapter with default settings, which the trainer may replace."""
        self._backbone: Backbone | None = None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Any,
        *,
        peft_config: Any = None,
        load_in_8bit: bool = False,
        load_in_4bit: bool = False,
        **kwargs: Any,
    ) -> AutoModelForCausalLMWithValueHead:
        """Load a causal LM by hub id or path, with the value head that was saved with it, if there is one.

        Args:
            pretrained_model_name_or_path: what ``AutoModelForCausalLM.from_pretrained`` takes; a PEFT folder too; or a
                loaded causal LM, which gets a value head.
            peft_config: train a low-rank adapter instead of all weights: a `LoraConfig`, or a configuration of PEFT's.
            load_in_8bit: quantize the base model, by bitsandbytes.
            load_in_4bit: the same with four bits.
            kwargs: passed on to transformers.
        Raises:
            ConfigError: the model is not a causal LM that can be trained.
        """
        if hasattr(pretrained_model_name_or_path, "get_output_embeddings"):
            model = cls(pretrained_model_name_or_path)
        else:
            options = {"dtype": torch.float32, "use_safetensors": True} | kwargs
            if load_in_8bit or load_in_4bit:
                options["quantization_config"] = BitsAndBytesConfig(
                    load_in_8bit=load_in_8bit, load_in_4bit=load_in_4bit
                )
            model = cls._from_files(pretrained_model_name_or_path, options)
        if peft_config is None:
            return model
        if model.is_adapted:
            raise ConfigError(
                "peft_config is for a new adapter, and this model has one already, which is trained: leave it out, or "
                "merge that one first."
            )
        model.adapt(peft_config)
        return model

    @classmethod
    def _from_files(cls, name: Any, options: dict[str, Any]) -> AutoModelForCausalLMWithValueHead:
        path = Path(name)
        if path.is_dir() and options.get("subfolder"):
            path /= options.pop("subfolder")
            name = path
        if not (path.exists() or options.get("local_files_only")):
            hub.is_reachable(str(path))  # or transformers waits for a hub that does not answer
        if (path / "adapter_config.json").is_file():
            lm = _adapted_from(path, options)
        else:
            lm = _whole_lm(name, options)
        model = cls(lm)
        if (path / VALUE_HEAD_FILE).is_file():
            saved = load_file(path / VALUE_HEAD_FILE)
            if "products" in saved:
                # An adapter on the head alone: its directions were measured, and stay.
                for name, weight in model.pretrained_model.named_parameters():
                    if "lora_A" in name:
                        weight.requires_grad_(False)
                model._take_critic(RidgeCritic(model.v_head.hidden_size))
            model.v_head.load_state_dict(saved)
        return model

    def adapt(self, lora: Any) -> None:
        """Train a fresh low-rank adapter, by settings of ours or of PEFT's, and no longer other weights.

        An adapter that there is already is taken off.
        """
        lm = self.pretrained_model.unload() if self.is_adapted else self.causal_lm
        self.pretrained_model = with_adapter(lm, lora)
        self.has_default_adapter = False
        self._backbone = None
        if self.has_narrow_head:
            self._take_critic(RidgeCritic(self.v_head.hidden_size))

    def _take_critic(self, critic: ValueHead | RidgeCritic) -> None:
        self.v_head = critic.to(self.pretrained_model.device)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        # Every move comes through here; which paths are exact is found out anew where the model then is.
        before = self.pretrained_model.device
        moved = super()._apply(fn, recurse)
        if self.pretrained_model.device != before:
            self._backbone = None
        return moved

    def named_weights(self) -> dict[str, Tensor]:
        """The weights that a saved folder has, by their names in it."""
        if not self.is_adapted:
            return self.causal_lm.state_dict()
        from peft import get_peft_model_state_dict

        # PEFT would write the head below an adapter too, although no step changes it: 113 MB of SmolLM2's.
        return get_peft_model_state_dict(
            self.pretrained_model, save_embedding_layers=self._saves_embeddings
        )

    def save_pretrained(self, path: str | Path) -> None:
        """Write a standard transformers or PEFT folder, and the value head as a file in it."""
        Path(path).mkdir(parents=True, exist_ok=True)
        options = {"save_embedding_layers": self._saves_embeddings} if self.is_adapted else {}
        self.pretrained_model.save_pretrained(path, **options)
        head = {name: each.contiguous() for name, each in self.v_head.state_dict().items()}
        save_file(head, Path(path) / VALUE_HEAD_FILE)

    def merged(self) -> Any:
        """The causal LM with what its adapter adds in its own weights; this model is not to be used any more.

        Raises:
            ConfigError: the adapter is of a kind that cannot be merged, or its base is quantized.
        """
        if not hasattr(self.pretrained_model, "merge_and_unload"):
            kind = self.pretrained_model.peft_config["default"].peft_type.value
            raise ConfigError(
                f"An adapter of the kind {kind} cannot be merged: leave the merge out."
            )
        if getattr(self.causal_lm, "is_quantized", False):
            raise ConfigError(
                "An adapter is not merged into quantized weights, which would round away what it has learnt: "
                "leave the merge out, or load its base model without quantization."
            )
        _untie(self.causal_lm)
        lm = self.pretrained_model.merge_and_unload()
        if lm.get_output_embeddings().weight is not lm.get_input_embeddings().weight:
            lm.config.tie_word_embeddings = False
            lm.config.get_text_config().tie_word_embeddings = False
        return lm

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> ValueHeadOutput:
        """Logits and values of whole rows: (B, T) ids to (B, T, V) and (B, T)."""
        output = self.pretrained_model(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **kwargs
        )
        return ValueHeadOutput(output.logits, self.v_head(output.hidden_states[-1]))

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """`generate` of the causal LM."""
        return self.pretrained_model.generate(*args, **kwargs)

    @property
    def is_adapted(self) -> bool:
        """True if an adapter is trained, False if the model's own weights are."""
        # By name, because importing PEFT takes longer than loading a small model.
        return any(kind.__name__ == "PeftModel" for kind in type(self.pretrained_model).__mro__)

    @property
    def has_narrow_head(self) -> bool:
        """True if only an adapter on the LM head is trained, and the head reads the trunk's hidden states."""
        if not self.is_adapted:
            return False
        head = self.causal_lm.get_output_embeddings()
        trained = [each for each in self.pretrained_model.parameters() if each.requires_grad]
        up = head.lora_B["default"].weight if hasattr(head, "lora_B") else None
        return len(trained) == 1 and trained[0] is up and self.backbone.is_split

    @property
    def _saves_embeddings(self) -> bool | str:
        """True if the embeddings are saved with an adapter. ``auto``: PEFT asks the hub if they were resized."""
        if self.has_narrow_head:
            return False
        base = self.pretrained_model.peft_config["default"].base_model_name_or_path
        before = _vocabulary_of(base)
        return "auto" if before is None else self.causal_lm.config.vocab_size != before

    @property
    def causal_lm(self) -> Any:
        """The causal LM itself, adapters in place."""
        return self.pretrained_model.get_base_model() if self.is_adapted else self.pretrained_model

    @property
    def backbone(self) -> Backbone:
        """The causal LM as the engine calls it."""
        if self._backbone is None:
            self._backbone = Backbone(self.causal_lm)
        return self._backbone

    def __getattr__(self, name: str) -> Any:
        # torch comes here when a property raises an AttributeError, and would report that there is no such property.
        own = inspect.getattr_static(type(self), name, None)
        if isinstance(own, property) and own.fget:
            return own.fget(self)
        return super().__getattr__(name)


def _require_causal_lm(lm: Any) -> None:
    """Raises ConfigError: a loaded model is not a causal LM, or its adapter cannot be trained here."""
    kinds = {each.__name__ for each in type(lm).__mro__}
    if "PeftModel" in kinds:
        names = list(lm.peft_config)
        if names != ["default"] or lm.peft_config["default"].is_prompt_learning:
            raise ConfigError(
                "One adapter within the layers, named 'default', is trained and saved: merge or delete others."
            )
        lm = lm.get_base_model()
        kinds = {each.__name__ for each in type(lm).__mro__}
    is_causal = any(
        part in kind for kind in kinds for part in ("CausalLM", "LMHead", "Conditional")
    )
    if not is_causal or lm.config.is_encoder_decoder or lm.get_output_embeddings() is None:
        raise ConfigError(NO_CAUSAL_LM.format(type(lm).__name__))


def _whole_lm(name: Any, options: dict[str, Any]) -> Any:
    """A causal LM by hub id or path; raises ModelLoadError unless its files have its weights and no others."""
    options = options | {"output_loading_info": True, "ignore_mismatched_sizes": True}
    lm, found = AutoModelForCausalLM.from_pretrained(name, **options)
    require_all_weights(f"Model {str(name)!r}", found)
    return lm


def _adapted_from(path: Path, options: dict[str, Any]) -> Any:
    """A saved adapter on its base model, to be trained further; `options` are transformers'.

    PEFT's own auto class would resize the vocabulary to the tokenizer's; here it has the size with which it was saved.
    """
    import peft

    base = base_of(path)
    assert base is not None, "the caller has looked"
    if not Path(base).is_dir():  # the adapter is here, but its base model is the hub's
        options = {name: each for name, each in options.items() if name != "local_files_only"}
    lm = _whole_lm(base, options)
    vocabulary = _saved_vocabulary(path, lm)
    if vocabulary:
        lm.resize_token_embeddings(vocabulary)
    adapted = peft.PeftModel.from_pretrained(
        lm, path, is_trainable=True, ignore_mismatched_sizes=True
    )
    _require_whole_adapter(path, adapted)
    adapted.peft_config["default"].base_model_name_or_path = base  # where it is now
    return adapted


def _require_whole_adapter(path: Path, adapted: Any) -> None:
    """Raises ModelLoadError unless an adapter's file has the weights that its settings ask for on its base model."""
    import peft

    of_base = adapted.state_dict().keys()  # an adapter's own weights have other names in there
    with safe_open(path / "adapter_model.safetensors", "pt") as file:
        saved = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    wanted = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    shapes = {name: tuple(each.shape) for name, each in wanted.items() if name not in of_base}
    if {name: shape for name, shape in saved.items() if name not in of_base} != shapes:
        raise ModelLoadError(
            f"The adapter in {str(path)!r} has other weights than its settings ask for on its base model: take the "
            "base model that it was trained on."
        )


def _vocabulary_of(name: str | None) -> int | None:
    """The size of a model's vocabulary by its files on this machine; None: they do not say."""
    if not name:
        return None
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError):
        return None
    return getattr(config, "vocab_size", None)


def _saved_vocabulary(path: Path, lm: Any) -> int | None:
    """Rows of the embedding that was saved with an adapter, as PEFT does after resizing; None: none was."""
    name = next(name for name, module in lm.named_modules() if module is lm.get_input_embeddings())
    with safe_open(path / "adapter_model.safetensors", "pt") as saved:
        key = f"base_model.model.{name}.weight"
        if key not in saved.keys():  # noqa: SIM118
            return None
        return saved.get_slice(key).get_shape()[0]


def _untie(lm: Any) -> None:
    """Give the head weights of its own if it is tied to the embeddings, and an adapter changes one of the two.

    Where they are one tensor, what is merged into one would change the other, too. Tokens that are trained in both are
    changed alike.
    """
    both = (lm.get_input_embeddings(), lm.get_output_embeddings())
    inner = [_without_adapter(module) for module in both]
    kinds = {type(module).__name__ for module in both}
    is_adapted = any(module is not own for module, own in zip(both, inner, strict=True))
    if not is_adapted or kinds <= {"TrainableTokensWrapper", "TrainableTokensLayer"}:
        return
    embeddings, head = inner
    if head.weight is embeddings.weight:
        head.weight = nn.Parameter(head.weight.detach().clone())


def _without_adapter(module: Any) -> Any:
    """The module that PEFT has put an adapter on, or a trained copy beside; else the module itself."""
    for name in ("base_layer", "original_module"):
        if hasattr(module, name):
            return getattr(module, name)
    return module


def with_adapter(lm: Any, lora: Any) -> Any:
    """A causal LM with a fresh low-rank adapter, its own weights frozen; a `LoraConfig` has no dropout.

    An adapter on the head alone sees nothing yet: its directions are 0 until they are measured on a first batch, and
    are never trained.
    """
    import peft

    if not isinstance(lora, LoraConfig):
        # Dropout would make the first ratio of an update differ from 1.
        lora = copy(lora)
        if hasattr(lora, "lora_dropout"):
            lora.lora_dropout = 0.0
        return peft.get_peft_model(lm, lora)
    if lora.layers != "head":
        adapter = peft.LoraConfig(
            r=lora.rank,
            lora_alpha=lora.scale,
            lora_dropout=0.0,
            target_modules=lora.target_modules,
            task_type="CAUSAL_LM",
        )
        return peft.get_peft_model(lm, adapter)
    head = lm.get_output_embeddings()
    name = next(name for name, module in lm.named_modules() if module is head)
    adapter = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.scale,
        lora_dropout=0.0,
        target_modules=[name],
        task_type="CAUSAL_LM",
    )
    adapted = peft.get_peft_model(lm, adapter)
    down = lm.get_output_embeddings().lora_A["default"].weight
    torch.nn.init.zeros_(down)
    down.requires_grad_(False)
    return adapted
