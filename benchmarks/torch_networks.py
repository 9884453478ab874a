# SPDX-License-Identifier: Apache-2.0
"""The networks that are exported from PyTorch: how each is built and called.

Weights are random with a fixed seed, or come out of a published package. Random ones are made
harmless to test with: every layer keeps its signal near unit size, no residual branch starts at
zero, layer scales are small but not tiny, and batch norms hold statistics measured on noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import torchvision_stand_in
from benchmarks.zoo import fetch_file, load_table

SDPA = {"attn_implementation": "sdpa"}
BATCH_AND_LENGTH = {0: "batch", 1: "seq"}


@dataclass(frozen=True)
class Network:
    """A module, an example of its inputs, its border's names, and each input's dynamic axes."""

    module: nn.Module
    example: tuple[Tensor, ...]
    inputs: Sequence[str]
    outputs: Sequence[str]
    dynamic: Sequence[Mapping[int, str]] = field(default_factory=tuple)


class Call(nn.Module):
    """A module whose forward is any function of a model and tensors."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(self.model, *tensors)


def generator(seed: int) -> torch.Generator:
    """A random generator of its own, apart from torch's global one."""
    return torch.Generator().manual_seed(seed)


def randomise(model: nn.Module, seed: int = 1) -> nn.Module:
    """Give every parameter a seeded random value of a size that keeps signals near one."""
    rng = generator(seed)
    seen: set[int] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:  # tied weights are drawn once
                seen.add(id(parameter))
                parameter.data = _random_value(module, name, parameter, rng)
    return model.eval()


def _random_value(module: nn.Module, name: str, parameter: Tensor, rng: torch.Generator) -> Tensor:
    normal = torch.randn(parameter.shape, generator=rng)
    if name.endswith("bias"):
        return normal * 0.05
    if parameter.ndim <= 1:  # the scale of a norm, or of a whole layer
        scale = torch.rand(parameter.shape, generator=rng) * 0.6 + 0.7
        return scale * 0.3 if "gamma" in name else scale
    if isinstance(module, nn.Embedding):
        return normal * 0.1
    if type(module).__name__ == "Conv1D":  # GPT-2's linear layer keeps its weight transposed
        return normal / parameter.shape[0] ** 0.5
    if name == "weight":
        return (
            normal * (1.4 if isinstance(module, nn.Conv2d) else 1.0) / parameter[0].numel() ** 0.5
        )
    return normal * 0.2  # position embeddings and class tokens


def calibrate(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Set the statistics of every batch norm to those measured on two batches of noise."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # a plain average
    model.train()
    for module in model.modules():
        if "Drop" in type(module).__name__:
            module.eval()
    with torch.no_grad():
        for seed in (1, 2):
            model(torch.randn(shape, generator=generator(seed)))
    return model.eval()


def image_network(name: str, dynamic: bool = False) -> Network:
    """An image classifier of timm on 224 x 224 pixels."""
    torchvision_stand_in.install()
    import timm

    model = calibrate(randomise(timm.create_model(name, pretrained=False)), (8, 3, 224, 224))
    example = torch.randn(2 if dynamic else 1, 3, 224, 224, generator=generator(3))
    return Network(model, (example,), ["x"], ["logits"], [{0: "batch"}] if dynamic else [])


def tokens(vocabulary: int, batch: int = 2, length: int = 9) -> Tensor:
    """Random token numbers."""
    return torch.randint(1, vocabulary, (batch, length), generator=generator(5))


def bert(model: nn.Module) -> Network:
    """A BERT encoder with attention mask and token types."""
    ids = tokens(30522)
    return Network(
        Call(model, lambda m, i, a, t: m(i, a, t, return_dict=False)[:2]),
        (ids, torch.ones_like(ids), torch.zeros_like(ids)),
        ["input_ids", "attention_mask", "token_type_ids"],
        ["last_hidden_state", "pooler_output"],
        [BATCH_AND_LENGTH] * 3,
    )


def bert_base() -> Network:
    """BERT base with random weights."""
    from transformers import BertConfig, BertModel

    return bert(randomise(BertModel(BertConfig(**SDPA))))


def minilm() -> Network:
    """The sentence encoder all-MiniLM-L6-v2 with its trained weights."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    config, weights = map(fetch_file, load_table().model("minilm_l6_v2_trained").weights)
    model = BertModel(BertConfig.from_json_file(str(config)))
    model.config._attn_implementation = "sdpa"
    state = load_file(weights)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or set(unexpected) - {"embeddings.position_ids"}:
        raise ValueError(f"The trained weights do not fit: {missing} {unexpected}.")
    return bert(model.eval())


def language_model(model: nn.Module, vocabulary: int) -> Network:
    """A decoder over a whole prompt, without a cache."""
    return Network(
        Call(model, lambda m, ids: m(input_ids=ids, use_cache=False, return_dict=False)[0]),
        (tokens(vocabulary),),
        ["input_ids"],
        ["logits"],
        [BATCH_AND_LENGTH],
    )


def _one_step(model: nn.Module, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
    from transformers.cache_utils import DynamicCache

    cache = DynamicCache()
    for layer, (keys, values) in enumerate(zip(past[::2], past[1::2])):
        cache.update(keys, values, layer)
    out = model(input_ids=ids, past_key_values=cache, use_cache=True)
    present = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
    return (out.logits, *present)


def language_model_step(model: nn.Module, vocabulary: int, layers: int, heads: int) -> Network:
    """One decode step: a token and the cache in, logits and the longer cache out."""
    past = tuple(torch.randn(2, heads, 9, 64, generator=generator(k)) for k in range(2 * layers))
    names = [f"{layer}_{part}" for layer in range(layers) for part in "kv"]
    return Network(
        Call(model, _one_step),
        (tokens(vocabulary, length=1), *past),
        ["input_ids", *(f"past_{name}" for name in names)],
        ["logits", *(f"present_{name}" for name in names)],
        [{0: "batch"}] + [{0: "batch", 2: "past"}] * (2 * layers),
    )


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return randomise(GPT2LMHeadModel(GPT2Config(**SDPA)))


def _llama_small() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    config = LlamaConfig(vocab_size=32000, max_position_embeddings=2048, **sizes, **heads, **SDPA)
    return randomise(LlamaForCausalLM(config))


def whisper_tiny_encoder() -> Network:
    """The audio encoder of Whisper tiny: 30 seconds of mel spectrogram in."""
    from transformers import WhisperConfig, WhisperModel

    sizes = {"d_model": 384, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
    depth = {"encoder_layers": 4, "decoder_layers": 4}
    heads = {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
    model = randomise(WhisperModel(WhisperConfig(**sizes, **depth, **heads, **SDPA))).encoder
    return Network(
        Call(model, lambda m, x: m(x, return_dict=False)[0]),
        (torch.randn(2, 80, 3000, generator=generator(4)),),
        ["input_features"],
        ["last_hidden_state"],
        [{0: "batch"}],
    )


def segformer_b0() -> Network:
    """The segmentation network SegFormer B0 with 19 classes on 512 x 512 pixels."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    model = randomise(SegformerForSemanticSegmentation(SegformerConfig(num_labels=19)))
    return Network(
        Call(model, lambda m, x: m(x, return_dict=False)[0]),
        (torch.randn(1, 3, 512, 512, generator=generator(4)),),
        ["pixel_values"],
        ["logits"],
    )


NETWORKS: Mapping[str, Callable[[], Network]] = {
    "mobilenetv2_100": lambda: image_network("mobilenetv2_100"),
    "mobilenetv3_large_100": lambda: image_network("mobilenetv3_large_100"),
    "efficientnet_b0": lambda: image_network("efficientnet_b0"),
    "resnet50": lambda: image_network("resnet50"),
    "resnet50_dynbatch": lambda: image_network("resnet50", dynamic=True),
    "vit_small_patch16_224": lambda: image_network("vit_small_patch16_224"),
    "minilm_l6_v2_trained": minilm,
    "bert_base": bert_base,
    "gpt2": lambda: language_model(_gpt2(), 50257),
    "gpt2_kv": lambda: language_model_step(_gpt2(), 50257, layers=12, heads=12),
    "llama_small": lambda: language_model(_llama_small(), 32000),
    "llama_small_kv": lambda: language_model_step(_llama_small(), 32000, layers=6, heads=4),
    "whisper_tiny_encoder": whisper_tiny_encoder,
    "segformer_b0": segformer_b0,
}
