"""The models of the suite huggingface_100: their configurations as published, how large they are said to be, and what
they are given.

Well-known models of their kinds, chosen by us; no ranking of downloads was measured. The hub is not asked: each line is
written from the published configuration, and the maker refuses a model whose number of parameters is more than 3 % off
the published one. What a line does not say is the default of the configuration's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Model:
    """One line of the table."""

    hub_id: str
    architecture: str
    """The class of transformers that is traced; its configuration's class is known to it."""
    parameters: float
    """Published size in millions."""
    inputs: Mapping[str, tuple[int, ...]]
    """Name of an input -> its shape."""
    dtype: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the defaults of the configuration's class."""
    train: bool = False
    """In training mode, for the statistics of batch norms. Others are traced without dropout and without layer drop."""


def _text(batch: int, length: int, *names: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("input_ids", *names), (batch, length))


def _image(batch: int, size: int, channels: int = 3) -> dict[str, tuple[int, ...]]:
    return {"pixel_values": (batch, channels, size, size)}


def _masked(batch: int = 8, length: int = 512) -> dict[str, tuple[int, ...]]:
    return _text(batch, length, "attention_mask", "labels")


def _causal(batch: int = 1, length: int = 2048) -> dict[str, tuple[int, ...]]:
    return _text(batch, length, "labels")


def _embedded(batch: int, length: int) -> dict[str, tuple[int, ...]]:
    return _text(batch, length, "attention_mask")


def _bert(
    hub_id: str, parameters: float, inputs: Mapping[str, tuple[int, ...]], kind: str = "", **config: Any
) -> Model:
    return Model(hub_id, f"Bert{kind or 'Model'}", parameters, inputs, "float32", config)


def _encoder_sizes(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }


_LARGE = _encoder_sizes(1024, 24, 16)
_MINI = _encoder_sizes(384, 12, 12)
_SIX_LAYERS = _encoder_sizes(384, 6, 12)
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_XLM = {"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_DEBERTA_V3 = {
    "vocab_size": 128100, "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0, "position_biased_input": False,
    "max_relative_positions": -1,
}  # fmt: skip

ENCODERS = (
    _bert("google-bert/bert-base-uncased", 110, _masked(), "ForMaskedLM"),
    _bert("google-bert/bert-large-uncased", 336, _masked(), "ForMaskedLM", **_LARGE),
    _bert("google-bert/bert-base-multilingual-cased", 179, _masked(), "ForMaskedLM", vocab_size=119547),
    Model("distilbert/distilbert-base-uncased", "DistilBertForMaskedLM", 67, _masked(16, 512), "float32"),
    Model("FacebookAI/roberta-base", "RobertaForMaskedLM", 125, _masked(), "float32", _ROBERTA),
    Model("FacebookAI/roberta-large", "RobertaForMaskedLM", 355, _masked(), "bfloat16", {**_ROBERTA, **_LARGE}),
    Model("FacebookAI/xlm-roberta-base", "XLMRobertaForMaskedLM", 278, _masked(), "float32", _XLM),
    Model("albert/albert-base-v2", "AlbertModel", 11.8, _embedded(8, 512), "float32",
          {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    Model("google/electra-base-discriminator", "ElectraForPreTraining", 110, _embedded(8, 512), "float32",
          {"hidden_size": 768, "embedding_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    Model("microsoft/deberta-v3-base", "DebertaV2Model", 184, _embedded(8, 512), "float32",
          {**_DEBERTA_V3, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
           "intermediate_size": 3072}),
    Model("microsoft/deberta-v3-large", "DebertaV2Model", 435, _embedded(8, 512), "bfloat16",
          {**_DEBERTA_V3, **_LARGE}),
    Model("sentence-transformers/all-mpnet-base-v2", "MPNetModel", 109, _embedded(32, 384), "float32",
          {"vocab_size": 30527, "max_position_embeddings": 514, "layer_norm_eps": 1e-5}),
    _bert("sentence-transformers/all-MiniLM-L6-v2", 22.7, _embedded(64, 256), **_SIX_LAYERS),
    _bert("sentence-transformers/all-MiniLM-L12-v2", 33.4, _embedded(64, 128), **_MINI),
    _bert("cross-encoder/ms-marco-MiniLM-L6-v2", 22.7, {**_embedded(32, 512), "labels": (32,)},
          "ForSequenceClassification", num_labels=1, **_SIX_LAYERS),
    _bert("BAAI/bge-base-en-v1.5", 109, _embedded(32, 512)),
    _bert("BAAI/bge-large-en-v1.5", 335, _embedded(16, 512), **_LARGE),
    Model("BAAI/bge-m3", "XLMRobertaModel", 568, _embedded(4, 1024), "float16",
          {**_XLM, **_LARGE, "max_position_embeddings": 8194}),
    Model("intfloat/multilingual-e5-large", "XLMRobertaModel", 560, _embedded(16, 512), "float16", {**_XLM, **_LARGE}),
    _bert("thenlper/gte-large", 335, _embedded(32, 256), **_LARGE),
    Model("answerdotai/ModernBERT-base", "ModernBertForMaskedLM", 149, _masked(8, 1024), "bfloat16"),
    Model("answerdotai/ModernBERT-large", "ModernBertForMaskedLM", 395, _masked(4, 1024), "bfloat16",
          {"hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 28, "num_attention_heads": 16}),
    Model("facebook/esm2_t33_650M_UR50D", "EsmForMaskedLM", 652, _masked(4, 512), "float32",
          {"vocab_size": 33, "hidden_size": 1280, "num_hidden_layers": 33, "num_attention_heads": 20,
           "intermediate_size": 5120, "position_embedding_type": "rotary", "token_dropout": True,
           "emb_layer_norm_before": False, "max_position_embeddings": 1026, "mask_token_id": 32, "pad_token_id": 1,
           "layer_norm_eps": 1e-5}),
)  # fmt: skip


def _gpt2(hub_id: str, parameters: float, width: int, layers: int, heads: int, batch: int) -> Model:
    config = {"n_embd": width, "n_layer": layers, "n_head": heads}
    return Model(hub_id, "GPT2LMHeadModel", parameters, _causal(batch, 1024), "float32", config)


def _neox(hub_id: str, parameters: float, width: int, layers: int, heads: int, vocabulary: int) -> Model:
    config = {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 4 * width, "vocab_size": vocabulary, "rotary_pct": 0.25, "max_position_embeddings": 2048,
    }  # fmt: skip
    return Model(hub_id, "GPTNeoXForCausalLM", parameters, _causal(), "float16", config)


_EPSILONS = {"Llama": 1e-5, "Mistral": 1e-5, "Mixtral": 1e-5, "Olmo2": 1e-6}
"""Where the published value is not the default of the class."""


def _decoder(
    hub_id: str,
    architecture: str,
    parameters: float,
    sizes: tuple[int, int, int, int, int, int],
    *,
    tied: bool = False,
    batch: int = 1,
    length: int = 2048,
    **config: Any,
) -> Model:
    """Sizes: hidden, intermediate, layers, heads, heads of keys and values, vocabulary."""
    names = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "vocab_size",
    )  # fmt: skip
    epsilon = {"rms_norm_eps": _EPSILONS[architecture]} if architecture in _EPSILONS else {}
    told = {**dict(zip(names, sizes, strict=True)), "tie_word_embeddings": tied, **epsilon, **config}
    return Model(hub_id, f"{architecture}ForCausalLM", parameters, _causal(batch, length), "bfloat16", told)


DECODERS = (
    Model("distilbert/distilgpt2", "GPT2LMHeadModel", 82, _causal(8, 1024), "float32", {"n_layer": 6}),
    _gpt2("openai-community/gpt2", 124, 768, 12, 12, 8),
    _gpt2("openai-community/gpt2-large", 774, 1280, 36, 20, 4),
    _gpt2("openai-community/gpt2-xl", 1558, 1600, 48, 25, 2),
    Model("facebook/opt-125m", "OPTForCausalLM", 125, _causal(4, 2048), "float16"),
    Model("facebook/opt-6.7b", "OPTForCausalLM", 6658, _causal(1, 2048), "float16",
          {"hidden_size": 4096, "word_embed_proj_dim": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
           "ffn_dim": 16384}),
    Model("EleutherAI/gpt-neo-125m", "GPTNeoForCausalLM", 125, _causal(4, 2048), "float32",
          {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]}),
    Model("EleutherAI/gpt-j-6b", "GPTJForCausalLM", 6053, _causal(), "float16"),
    _neox("EleutherAI/pythia-410m", 405, 1024, 24, 16, 50304),
    _neox("EleutherAI/pythia-6.9b", 6857, 4096, 32, 32, 50432),
    Model("bigscience/bloom-560m", "BloomForCausalLM", 559, _causal(), "bfloat16",
          {"hidden_size": 1024, "n_layer": 24, "n_head": 16}),
    Model("bigcode/starcoderbase-1b", "GPTBigCodeForCausalLM", 1137, _causal(), "bfloat16",
          {"vocab_size": 49152, "n_positions": 8192, "n_embd": 2048, "n_layer": 24, "n_head": 16, "n_inner": 8192,
           "multi_query": True}),
    Model("tiiuae/falcon-7b", "FalconForCausalLM", 6922, _causal(), "bfloat16",
          {"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "tie_word_embeddings": True}),
    Model("mosaicml/mpt-7b", "MptForCausalLM", 6649, _causal(), "bfloat16",
          {"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432, "tie_word_embeddings": True}),
    Model("state-spaces/mamba-130m-hf", "MambaForCausalLM", 129, _causal(1, 32), "float32",
          {"hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280}),
    _decoder("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "Llama", 1100, (2048, 5632, 22, 32, 4, 32000)),
    _decoder("meta-llama/Llama-2-7b-hf", "Llama", 6738, (4096, 11008, 32, 32, 32, 32000), length=4096),
    _decoder("meta-llama/Meta-Llama-3-8B", "Llama", 8030, (4096, 14336, 32, 32, 8, 128256)),
    _decoder("meta-llama/Llama-3.1-70B", "Llama", 70554, (8192, 28672, 80, 64, 8, 128256)),
    _decoder("meta-llama/Llama-3.2-1B", "Llama", 1236, (2048, 8192, 16, 32, 8, 128256), tied=True, head_dim=64),
    _decoder("meta-llama/Llama-3.2-3B", "Llama", 3213, (3072, 8192, 28, 24, 8, 128256), tied=True, head_dim=128),
    _decoder("HuggingFaceTB/SmolLM2-135M", "Llama", 134.5, (576, 1536, 30, 9, 3, 49152), tied=True, batch=4),
    _decoder("mistralai/Mistral-7B-v0.1", "Mistral", 7242, (4096, 14336, 32, 32, 8, 32000)),
    _decoder("mistralai/Mixtral-8x7B-v0.1", "Mixtral", 46703, (4096, 14336, 32, 32, 8, 32000)),
    _decoder("Qwen/Qwen2-0.5B", "Qwen2", 494, (896, 4864, 24, 14, 2, 151936), tied=True, batch=2),
    _decoder("Qwen/Qwen2.5-1.5B", "Qwen2", 1544, (1536, 8960, 28, 12, 2, 151936), tied=True),
    _decoder("Qwen/Qwen2.5-7B", "Qwen2", 7616, (3584, 18944, 28, 28, 4, 152064)),
    _decoder("Qwen/Qwen3-0.6B", "Qwen3", 596, (1024, 3072, 28, 16, 8, 151936), tied=True, head_dim=128),
    _decoder("Qwen/Qwen3-8B", "Qwen3", 8191, (4096, 12288, 36, 32, 8, 151936), head_dim=128),
    _decoder("Qwen/Qwen3-30B-A3B", "Qwen3Moe", 30532, (2048, 6144, 48, 32, 4, 151936), head_dim=128,
             moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True),
    _decoder("google/gemma-2b", "Gemma", 2506, (2048, 16384, 18, 8, 1, 256000), tied=True, head_dim=256),
    _decoder("google/gemma-2-2b", "Gemma2", 2614, (2304, 9216, 26, 8, 4, 256000), tied=True, head_dim=256),
    _decoder("google/gemma-3-1b-pt", "Gemma3", 1000, (1152, 6912, 26, 4, 1, 262144), tied=True, head_dim=256,
             sliding_window=512, query_pre_attn_scalar=256),
    _decoder("microsoft/phi-2", "Phi", 2780, (2560, 10240, 32, 32, 32, 51200)),
    _decoder("microsoft/Phi-3-mini-4k-instruct", "Phi3", 3821, (3072, 8192, 32, 32, 32, 32064)),
    _decoder("microsoft/phi-4", "Phi3", 14660, (5120, 17920, 40, 40, 10, 100352), pad_token_id=None),
    _decoder("bigcode/starcoder2-3b", "Starcoder2", 3030, (3072, 12288, 30, 24, 2, 49152), tied=True),
    _decoder("stabilityai/stablelm-2-1_6b", "StableLm", 1645, (2048, 5632, 24, 32, 32, 100352), use_qkv_bias=True),
    _decoder("allenai/OLMo-2-1124-7B", "Olmo2", 7299, (4096, 11008, 32, 32, 32, 100352)),
)  # fmt: skip


def _t5(hub_id: str, parameters: float, kind: str, tied: bool, batch: int, **config: Any) -> Model:
    inputs = {"input_ids": (batch, 512), "labels": (batch, 128)}
    gate = {} if tied else {"feed_forward_proj": "gated-gelu"}
    return Model(hub_id, f"{kind}ForConditionalGeneration", parameters, inputs, "bfloat16",
                 {**gate, "tie_word_embeddings": tied, "decoder_start_token_id": 0, **config})  # fmt: skip


_TRANSLATED = {"input_ids": (16, 128), "attention_mask": (16, 128), "labels": (16, 128)}
_SUMMARISED = {"input_ids": (4, 1024), "attention_mask": (4, 1024), "labels": (4, 128)}

SEQUENCE_TO_SEQUENCE = (
    _t5("google-t5/t5-small", 60.5, "T5", True, 16),
    _t5("google-t5/t5-base", 223, "T5", True, 8, d_model=768, d_ff=3072, num_layers=12, num_heads=12),
    _t5("google/flan-t5-small", 77, "T5", False, 16, d_ff=1024, num_layers=8, num_heads=6),
    _t5("google/flan-t5-base", 248, "T5", False, 8, d_model=768, d_ff=2048, num_layers=12, num_heads=12),
    _t5("google/flan-t5-large", 783, "T5", False, 4, d_model=1024, d_ff=2816, num_layers=24, num_heads=16),
    _t5("google/mt5-small", 300, "MT5", False, 8, vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6),
    Model("facebook/bart-base", "BartForConditionalGeneration", 139, _SUMMARISED, "float32",
          {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
           "encoder_attention_heads": 12, "decoder_attention_heads": 12}),
    Model("facebook/bart-large-cnn", "BartForConditionalGeneration", 406, _SUMMARISED, "float32",
          {"vocab_size": 50264}),
    Model("facebook/mbart-large-50-many-to-many-mmt", "MBartForConditionalGeneration", 611, _TRANSLATED, "float16",
          {"vocab_size": 250054, "scale_embedding": True}),
    Model("google/pegasus-xsum", "PegasusForConditionalGeneration", 570, {**_SUMMARISED, "input_ids": (4, 512),
          "attention_mask": (4, 512)}, "float32",
          {"vocab_size": 96103, "d_model": 1024, "encoder_layers": 16, "decoder_layers": 16, "encoder_ffn_dim": 4096,
           "decoder_ffn_dim": 4096, "scale_embedding": True}),
    Model("Helsinki-NLP/opus-mt-en-de", "MarianMTModel", 74, _TRANSLATED, "float32",
          {"vocab_size": 58101, "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048,
           "decoder_ffn_dim": 2048, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
           "max_position_embeddings": 512, "pad_token_id": 58100, "decoder_start_token_id": 58100,
           "scale_embedding": True, "activation_function": "swish"}),
    Model("facebook/nllb-200-distilled-600M", "M2M100ForConditionalGeneration", 615, _TRANSLATED, "float16",
          {"vocab_size": 256206, "scale_embedding": True}),
)  # fmt: skip

_VIT = {"num_labels": 1000}
_VIT_SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}


def _classified(batch: int, size: int = 224) -> dict[str, tuple[int, ...]]:
    return {**_image(batch, size), "labels": (batch,)}


VISION = (
    Model("google/vit-base-patch16-224", "ViTForImageClassification", 86.6, _classified(32), "float32", _VIT),
    Model("google/vit-large-patch16-224", "ViTForImageClassification", 304, _classified(16), "float16",
          {**_VIT, **_LARGE}),
    Model("facebook/deit-base-distilled-patch16-224", "DeiTForImageClassificationWithTeacher", 87.3, _image(32, 224),
          "float32", _VIT),
    Model("microsoft/beit-base-patch16-224", "BeitForImageClassification", 86.5, _classified(32), "float32",
          {**_VIT, "use_relative_position_bias": True, "use_mask_token": False}),
    Model("microsoft/swin-tiny-patch4-window7-224", "SwinForImageClassification", 28.3, _classified(32), "float32",
          _VIT),
    Model("facebook/convnext-tiny-224", "ConvNextForImageClassification", 28.6, _classified(32), "float32", _VIT),
    Model("facebook/convnextv2-tiny-1k-224", "ConvNextV2ForImageClassification", 28.6, _classified(32), "float32",
          _VIT),
    Model("microsoft/resnet-18", "ResNetForImageClassification", 11.7, _classified(64), "float32",
          {**_VIT, "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"}, train=True),
    Model("microsoft/resnet-50", "ResNetForImageClassification", 25.6, _classified(32), "float32", _VIT, train=True),
    Model("google/mobilenet_v2_1.0_224", "MobileNetV2ForImageClassification", 3.5, _classified(32), "float32",
          {"num_labels": 1001}, train=True),
    Model("facebook/dinov2-base", "Dinov2Model", 86.6, _image(16, 224), "float32",
          {"image_size": 518, "patch_size": 14}),
    Model("facebook/dinov2-large", "Dinov2Model", 304, _image(16, 224), "float16",
          {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 518,
           "patch_size": 14}),
    Model("openai/clip-vit-base-patch32", "CLIPModel", 151, {**_text(32, 77, "attention_mask"), **_image(32, 224)},
          "float16"),
    Model("openai/clip-vit-large-patch14", "CLIPModel", 428, {**_text(16, 77, "attention_mask"), **_image(16, 224)},
          "float16",
          {"projection_dim": 768,
           "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                           "projection_dim": 768},
           "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
                             "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768}}),
    Model("google/siglip-base-patch16-224", "SiglipModel", 203, {**_text(32, 64), **_image(32, 224)}, "float32"),
    Model("facebook/detr-resnet-50", "DetrModel", 41.5, _image(2, 800), "float32",
          {"use_timm_backbone": False, "backbone": None}),
    Model("nvidia/segformer-b0-finetuned-ade-512-512", "SegformerForSemanticSegmentation", 3.75, _image(8, 512),
          "float32", {"num_labels": 150}),
    Model("Intel/dpt-large", "DPTForDepthEstimation", 343, _image(4, 384), "float32",
          {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
           "backbone_out_indices": [5, 11, 17, 23], "neck_hidden_sizes": [256, 512, 1024, 1024]}),
)  # fmt: skip


def _whisper(
    hub_id: str, parameters: float, width: int, layers: int, decoders: int, heads: int, mels: int = 80
) -> Model:
    config = {
        "d_model": width, "encoder_layers": layers, "decoder_layers": decoders, "encoder_attention_heads": heads,
        "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width,
        "num_mel_bins": mels, "vocab_size": 51866 if mels == 128 else 51865,
    }  # fmt: skip
    inputs = {"input_features": (4, mels, 3000), "labels": (4, 128)}
    return Model(hub_id, "WhisperForConditionalGeneration", parameters, inputs, "float16", config)


_HEARD = {"input_values": (4, 160000)}
_LARGE_EAR = {**_LARGE, "feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True}

SPEECH = (
    _whisper("openai/whisper-tiny", 37.8, 384, 4, 4, 6),
    _whisper("openai/whisper-small", 242, 768, 12, 12, 12),
    _whisper("openai/whisper-large-v3", 1543, 1280, 32, 32, 20, 128),
    _whisper("openai/whisper-large-v3-turbo", 809, 1280, 32, 4, 20, 128),
    Model("facebook/wav2vec2-base-960h", "Wav2Vec2Model", 94.4, _HEARD, "float32"),
    Model("facebook/wav2vec2-xls-r-300m", "Wav2Vec2Model", 315, _HEARD, "float32", _LARGE_EAR),
    Model("facebook/hubert-base-ls960", "HubertModel", 94.4, _HEARD, "float32"),
    Model("MIT/ast-finetuned-audioset-10-10-0.4593", "ASTForAudioClassification", 86.6,
          {"input_values": (8, 1024, 128)}, "float32", {"num_labels": 527}),
)  # fmt: skip

MODELS = (*ENCODERS, *DECODERS, *SEQUENCE_TO_SEQUENCE, *VISION, *SPEECH)
