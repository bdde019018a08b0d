"""Conversion of a Hugging Face config.json to a model.

Only fields that decide sizes are read. Their names differ by architecture.
"""

from dataclasses import replace

from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import Config, dimension, model_type, number
from service.domain.models.described import model_of
from service.domain.models.fixed_configs import FIXED_MODELS
from service.domain.models.image_configs import IMAGE_MODELS, image_tower
from service.domain.models.model import Model, Transformer
from service.domain.models.recurrent_configs import RECURRENT_READERS
from service.domain.models.special_configs import READERS, latent
from service.domain.models.usual_config import ARCHITECTURES, architecture, text_part, usual

NOT_READ = {
    **dict.fromkeys(("zamba", "zamba2"), "its attention layers share their weights"),
    **dict.fromkeys(
        ("detr", "conditional_detr", "deformable_detr", "table-transformer"), "its backbone is named and not described"
    ),
    **dict.fromkeys(("grounding-dino", "mm-grounding-dino"), "its detector has layers besides the encoder of texts"),
    **dict.fromkeys(("beit", "data2vec-vision"), "its vocabulary is one of images"),
    **dict.fromkeys(("segformer", "swinv2", "efficientnet", "sam2"), "its stages differ in more than their width"),
    "xlnet": "it attends twice",
}
"""By `model_type`, architectures that cannot be read, with the reason for an error."""


NOT_UNDERSTOOD = {
    "attn_res_block_size": "layers attend to the results of earlier layers",
    "audio_config": "the model has an encoder of audio",
    "backbone_config": "the model has layers behind another network",
    "block_configs": "layers differ from each other in size",
    "block_types": "some layers are recurrent",
    "compress_ratios": "layers compress their keys and values",
    "full_attn_idxs": "some layers are convolutions",
    "hidden_size_per_layer_input": "layers have embeddings of their own",
    "hybrid_layer_pattern": "layers with a window have heads of their own",
    "index_kpool": "indexers pool their keys",
    "layer_group_size": "some layers have linear attention",
    "num_kv_shared_layers": "layers use the keys and values of others",
    "perceiver_config": "a network of its own reads the result of the encoder of images",
    "qformer_config": "a network of its own reads the result of the encoder of images",
    "sparse_attention_config": "layers attend to selected blocks of tokens",
    "use_cla": "layers use the keys and values of others",
    "zero_expert_num": "some experts do nothing, and a layer attends twice",
}
"""Fields that change the cost of a model in ways that are not counted, with the reason for an error."""


def read_config(config: Config, name: str = "custom") -> Model:
    """Returns the model that a config.json describes. Raises `ImpossibleModel` about a field of the config."""
    if "_class_name" in config:
        raise ImpossibleModel(
            "The config is one of diffusers, whose networks are not read: name a model of GET /models, or give "
            "parameters and forward FLOPs per sample instead.",
            field="huggingface_config._class_name",
        )
    try:
        networks = IMAGE_MODELS | FIXED_MODELS | {"whisper": _speech_model}
        return networks.get(model_type(config), _language_model)(config, name)
    except ImpossibleModel as error:
        named = error.field is not None and error.field.startswith("huggingface_config")
        raise error.at(error.field if named else "huggingface_config") from None


def read_transformer(config: Config) -> Transformer:
    """Returns the dimensions of a model, or of the language model of a multimodal one. Raises `ImpossibleModel`."""
    text = text_part(config)
    kind = model_type(text) or model_type(config)
    readers = READERS | RECURRENT_READERS
    for each in (model_type(config), kind):
        if each in NOT_READ:
            raise _not_read(each, NOT_READ[each], "model_type")
    if kind not in readers.keys() | ARCHITECTURES.keys():
        _check_unknown(kind, text)
    for field, reason in NOT_UNDERSTOOD.items():
        if text.get(field) or config.get(field):
            raise ImpossibleModel(
                f"By its {field}, {reason}, which cannot be counted. "
                "Give parameters and forward FLOPs per sample instead.",
                field=f"huggingface_config.{field}",
            )
    return readers.get(kind, latent if number(text, "kv_lora_rank") else usual)(text)


def _check_unknown(kind: str, text: Config) -> None:
    """Raises `ImpossibleModel` for an architecture of unknown type that is no language model of equal layers."""
    if text.get("encoder_layers") and text.get("decoder_layers"):
        raise _not_read(kind, "an encoder and a decoder have sizes of their own", "decoder_layers")
    of_images = next((field for field in ("patch_size", "num_channels") if text.get(field)), None)
    if of_images and dimension(text, "vocabulary") is None:
        raise _not_read(kind, f"by its {of_images}, it reads images", of_images)


def _not_read(kind: str, reason: str, field: str) -> ImpossibleModel:
    return ImpossibleModel(
        f"The architecture '{kind}' cannot be read from its config: {reason}. "
        "Give parameters and forward FLOPs per sample instead.",
        field=f"huggingface_config.{field}",
    )


POSITIONS_A_SECOND = 50
"""Positions of the encoder of Whisper for a second of audio: a spectrum every 10 ms, and a convolution with a stride of
2 (Radford et al. 2022, 2212.04356)."""

TOKENS_WRITTEN_A_SECOND = 100 / 30
"""Tokens that Whisper writes for a second of audio: 150 spoken words a minute, 1.3 tokens each (assumed)."""


def _speech_model(config: Config, name: str) -> Model:
    """Reads Whisper, whose encoder reads a fixed length of audio per sample."""
    model = _language_model(config, name)
    assert model.transformer is not None
    positions = model.transformer.learned_positions - model.transformer.context_tokens
    if not positions:
        raise ImpossibleModel("An encoder of audio has positions.", field="huggingface_config.max_source_positions")
    seconds = positions / POSITIONS_A_SECOND
    return replace(
        model,
        sample=f"{seconds:g} s of audio ({positions} encoder tokens)",
        input_tokens_per_sample=float(positions),
        output_tokens_per_sample=min(float(model.transformer.context_tokens), TOKENS_WRITTEN_A_SECOND * seconds),
        audio_seconds_per_sample=seconds,
    )


def _language_model(config: Config, name: str) -> Model:
    transformer = read_transformer(config)
    if not _writes(config):
        # Without a cache, and without an output projection.
        transformer = replace(transformer, decoder=False, tied=True)
    model = model_of(transformer, name=name)
    more = _extra_parameters(text_part(config), transformer)
    parameters, flops = image_tower(config, transformer.hidden)
    return replace(
        model,
        family=architecture(config).family or model.family,
        parameters=model.parameters + more,
        active_parameters=model.active_parameters + more,
        other_parameters=parameters,
        other_flops_per_sample=flops,
    )


WITHOUT_OUTPUT = ("Model", "ForSequenceClassification", "ForTokenClassification")
"""Endings of classes of `transformers` without an output projection: they embed, rank or classify texts."""
WITH_OUTPUT = ("LMHead", "Chat")
"""Parts of the names of classes that write texts although they end like one of the others: GPT2LMHeadModel."""


def _writes(config: Config) -> bool:
    """Returns whether the class of a language model writes texts, as all do whose class the config does not name."""
    classes = config.get("architectures")
    last = classes[-1] if isinstance(classes, list) and classes else ""
    if not isinstance(last, str):
        return True
    return not last.endswith(WITHOUT_OUTPUT) or any(part in last for part in WITH_OUTPUT)


def _extra_parameters(config: Config, transformer: Transformer) -> int:
    """Returns parameters of DeBERTa for relative positions, and of OPT for embeddings narrower than the layers."""
    kind, hidden = model_type(config), transformer.hidden
    if kind == "deberta" and config.get("share_att_key") is not True:
        terms = config.get("pos_att_type") or ("c2p", "p2c")
        return transformer.layers * (("c2p" in terms) + ("p2c" in terms)) * hidden * hidden
    narrow = number(config, "word_embed_proj_dim")
    if kind == "opt" and narrow and narrow != hidden:
        return transformer.vocabulary * (narrow - hidden) + 2 * narrow * hidden
    return 0
