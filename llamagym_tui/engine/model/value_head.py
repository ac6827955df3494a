"""A causal LM with a value head: this project's own `AutoModelForCausalLMWithValueHead`.

TRL had one until it dropped PPO. The head reads the last hidden state; its output layer starts at zero, so that an
untrained critic predicts 0 and cannot explode the first updates.
"""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.load_faults import is_causal, require_all_weights
from llamagym_tui.engine.model.narrow import RidgeCritic
from llamagym_tui.engine.model.shape import base_of, read_config
from llamagym_tui.engine.model.sources import READ_DEPTH, VALUE_HEAD_FILE, is_local
from llamagym_tui.errors import ConfigError, ModelLoadError
from llamagym_tui.settings import LoraConfig

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
        config = self.causal_lm.config.get_text_config()
        self.read_depth: int | None = getattr(config, READ_DEPTH, None)
        """The number of layers, if they are the first ones of a deeper model, under a head that began as zeros."""
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
            pretrained_model_name_or_path: as ``AutoModelForCausalLM.from_pretrained`` takes it; a PEFT folder too; or
                a loaded causal LM, which gets a value head.
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
        base = base_of(path)
        lm = _whole_lm(name, options) if base is None else _adapted_from(path, base, options)
        model = cls(lm)
        if (path / VALUE_HEAD_FILE).is_file():
            saved = load_file(path / VALUE_HEAD_FILE)
            if READ_DEPTH in saved:
                model._restore_depth(int(saved.pop(READ_DEPTH)))
            if "products" in saved:
                # An adapter on the head alone: its directions were measured, and stay.
                for weight_name, weight in model.pretrained_model.named_parameters():
                    if "lora_A" in weight_name:
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

    def keep_layers(self, layers: int) -> None:
        """Be the first layers alone, then the final norm, then a head of zeros, below its adapter if it has one.

        Raises:
            ConfigError: it has fewer layers, or is of another family than Llama's.
        """
        lm = self.causal_lm
        decoder = lm.get_decoder()
        if not self.backbone.is_lean or not 1 <= layers <= len(decoder.layers):
            raise ConfigError(
                f"The first {layers} layers cannot be read: this takes a model of the Llama family that has them."
            )
        del decoder.layers[layers:]
        config = lm.config.get_text_config()
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
        head = lm.get_output_embeddings()
        own = getattr(head, "base_layer", head)
        own.weight = nn.Parameter(torch.zeros_like(own.weight), requires_grad=False)  # tied no more
        config.tie_word_embeddings = False
        # A merged model is loaded without this class, and has to play as it did.
        setattr(config, READ_DEPTH, layers)
        self.read_depth = layers

    def _restore_depth(self, layers: int) -> None:
        """Read the layers that a saved folder reads; a merged model has no others, and a head of its own."""
        if layers < len(self.causal_lm.get_decoder().layers):
            self.keep_layers(layers)
        self.read_depth = layers

    def _take_critic(self, critic: ValueHead | RidgeCritic) -> None:
        self.v_head = critic.to(self.pretrained_model.device)

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
        """Write a standard transformers or PEFT folder, with the value head as one more file."""
        Path(path).mkdir(parents=True, exist_ok=True)
        options = {"save_embedding_layers": self._saves_embeddings} if self.is_adapted else {}
        self.pretrained_model.save_pretrained(path, **options)
        head = {name: each.contiguous() for name, each in self.v_head.state_dict().items()}
        if self.read_depth is not None:
            head[READ_DEPTH] = torch.tensor(self.read_depth)
        save_file(head, Path(path) / VALUE_HEAD_FILE)

    def merged(self) -> Any:
        """The causal LM with its adapter merged into its own weights; do not use this model any more.

        Where embeddings and head are one tensor, an adapter on one of them would change the other, too, so the head
        gets weights of its own.
        """
        lm = self.causal_lm
        head = lm.get_output_embeddings()
        modules = (lm.get_input_embeddings(), head)
        if any(hasattr(module, "base_layer") for module in modules):
            own = getattr(head, "base_layer", head)
            own.weight = nn.Parameter(own.weight.detach().clone())
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
    def _saves_embeddings(self) -> bool:
        """True if the embeddings are saved with an adapter, as their number differs from the base model's."""
        base = self.pretrained_model.peft_config["default"].base_model_name_or_path
        try:
            return bool(read_config(base).vocab_size != self.causal_lm.config.vocab_size)
        except Exception:  # a model that was made in memory, or whose base is elsewhere now
            return False

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


def _require_causal_lm(lm: Any) -> None:
    """Raises ConfigError if a loaded model is no causal LM, or its adapter cannot be trained here."""
    kinds = {each.__name__ for each in type(lm).__mro__}
    if "PeftModel" in kinds:
        names = list(lm.peft_config)
        if names != ["default"] or lm.peft_config["default"].is_prompt_learning:
            raise ConfigError(
                "One adapter within the layers, named 'default', is trained and saved: merge or delete others."
            )
        lm = lm.get_base_model()
        kinds = {each.__name__ for each in type(lm).__mro__}
    if not is_causal(kinds) or lm.config.is_encoder_decoder or lm.get_output_embeddings() is None:
        raise ConfigError(NO_CAUSAL_LM.format(type(lm).__name__))


def _whole_lm(name: Any, options: dict[str, Any]) -> Any:
    """A causal LM by hub id or path; raises ModelLoadError unless its files have its weights and no others."""
    options = options | {"output_loading_info": True, "ignore_mismatched_sizes": True}
    lm, found = AutoModelForCausalLM.from_pretrained(name, **options)
    require_all_weights(f"Model {str(name)!r}", found)
    return lm


def _adapted_from(path: Path, base: str, options: dict[str, Any]) -> Any:
    """A saved adapter on its base model, to be trained further.

    PEFT's own auto class would resize the vocabulary to the tokenizer's; here it has the size with which it was saved.
    """
    import peft

    lm = _whole_lm(base, options | {"local_files_only": is_local(base)})
    with safe_open(path / "adapter_model.safetensors", "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    embeddings = lm.get_input_embeddings()
    name = next(name for name, module in lm.named_modules() if module is embeddings)
    saved = shapes.get(f"base_model.model.{name}.weight")
    if saved is not None:  # they were resized
        lm.resize_token_embeddings(saved[0])
    adapted = peft.PeftModel.from_pretrained(
        lm, path, is_trainable=True, ignore_mismatched_sizes=True
    )
    weights = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    wanted = {name: list(each.shape) for name, each in weights.items()}
    own = {name: each for name, each in shapes.items() if name in wanted or ".lora_" in name}
    if own != wanted:
        raise ModelLoadError(
            f"The adapter in {str(path)!r} has other weights than its settings ask for on its base model {base!r}: "
            "take the base model that it was trained on."
        )
    adapted.peft_config["default"].base_model_name_or_path = base  # where it is now
    return adapted


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
    is_on_head = lora.layers == "head"
    targets = lora.target_modules
    if is_on_head:
        head = lm.get_output_embeddings()
        targets = [name for name, module in lm.named_modules() if module is head]
    adapter = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.scale,
        lora_dropout=0.0,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    adapted = peft.get_peft_model(lm, adapter)
    if is_on_head:
        down = lm.get_output_embeddings().lora_A["default"].weight
        nn.init.zeros_(down)
        down.requires_grad_(False)
    return adapted
