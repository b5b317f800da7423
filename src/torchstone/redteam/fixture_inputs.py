"""Cases for the red team by name: operator and arguments. Each fixture in ``corpus/`` names those it is judged on."""

from __future__ import annotations

import json

from torchstone.schema import (
    WEIGHTS_FILE,
    Booleans,
    Case,
    DType,
    Integers,
    JudgedDevice,
    MemoryFormat,
    Normal,
    Scalar,
    Sequence,
    SortedIntegers,
    SourceFile,
    SourceFiles,
    Tensor,
    Uniform,
    gradient_operator,
)

_BALANCED = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        mixing = torch.exp(self.logits)
        for _ in range(40):
            mixing = mixing / mixing.sum(dim=1, keepdim=True)
            mixing = mixing / mixing.sum(dim=0, keepdim=True)
        return x @ mixing


def get_inputs():
    return [torch.randn(64, 16)]


def get_init_inputs():
    return []
"""
_ARGMAX = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)

def get_inputs():
    return [torch.randn(16, 48)]

def get_init_inputs():
    return []
"""
_MLP = """\
import torch

class Model(torch.nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        return torch.relu(self.layers(x))

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return [64, 12]
"""
_BATCH_NORM = """\
import torch

class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(features)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(4, 16, 8, 8)]

def get_init_inputs():
    return [16]
"""


def _case(operator: str, *args: Tensor | Scalar | Sequence, timed: bool = False, jitter: bool = False) -> Case:
    """A case, without hidden variants unless ``jitter``: a fixture must fail by its own cheat, not by an odd shape."""
    return Case("redteam", f"aten.{operator}", args, timed=timed, jitter=jitter)


def _normal(*shape: int, dtype: str = "float32", std: float = 1.0) -> Tensor:
    return Tensor(shape, dtype, Normal(0.0, std))


def _gradient(
    operator: str, cotangent: Tensor, *args: Tensor | Scalar | Sequence, timed: bool = False, jitter: bool = False
) -> Case:
    """A case of the gradient of an operator with one result."""
    arguments = (Sequence((cotangent,)), *args)
    return Case("redteam", gradient_operator(f"aten.{operator}"), arguments, timed=timed, jitter=jitter)


def _model(
    name: str,
    text: str,
    parameters: dict[str, Tensor],
    x: Tensor,
    buffers: dict[str, Tensor] | None = None,
    timed: bool = False,
) -> Case:
    """A problem of the form that the suite kernelbench reads, with the kinds of its weights."""
    buffers = buffers or {}
    kinds = json.dumps({**dict.fromkeys(parameters, "parameter"), **dict.fromkeys(buffers, "buffer")})
    files = SourceFile(f"{name}.py", text), SourceFile(WEIGHTS_FILE, kinds)
    problem = SourceFiles(files, "Model", name)
    arguments = (Sequence((*parameters.values(), *buffers.values())), x)
    return Case("redteam", f"kernelbench.redteam_{name}.default", arguments, timed=timed, jitter=False, model=problem)


def _dims(*numbers: int) -> Sequence:
    return Sequence(tuple(Scalar(number) for number in numbers))


def _multinomial(rows: int, columns: int, samples: int) -> Case:
    weights = Tensor((rows, columns), "float32", Uniform(0.1, 1.0))
    return _case("multinomial.default", weights, Scalar(samples), Scalar(False))


CASES: dict[str, Case] = {
    "relu": _case("relu.default", _normal(33, 65)),
    "relu_special": _case("relu.default", Tensor((33, 65), "float32", Normal(specials=True))),
    "relu_even": _case("relu.default", _normal(64, 64), jitter=True),
    "relu_tiny_values": _case("relu.default", _normal(33, 65, std=1e-4)),
    "relu_empty": _case("relu.default", _normal(0, 7)),
    "relu_transposed": _case("relu.default", Tensor((48, 33), "float32", Normal(), (1, 48))),
    "relu_inplace": _case("relu_.default", _normal(33, 65)),
    "add_out": Case(
        "redteam", "aten.add.out", (_normal(33, 65), _normal(33, 65)), {"out": _normal(33, 65)}, jitter=False
    ),
    "nonzero": _case("nonzero.default", Tensor((64, 64), "bool", Booleans())),
    "relu_large": _case("relu.default", _normal(512, 1024)),
    "relu_large_varied": _case("relu.default", _normal(512, 1024), timed=True, jitter=True),
    "select_backward_timed": _case(
        "select_backward.default", _normal(512), _dims(1024, 512), Scalar(0), Scalar(5), timed=True
    ),
    "repeat_timed": _case("repeat.default", _normal(1, 65536), _dims(8, 1), timed=True),
    "logsumexp_small_timed": _case("logsumexp.default", _normal(8, 32), _dims(1), timed=True),
    "addbmm_small_timed": _case("addbmm.default", _normal(8, 8), _normal(8, 8, 8), _normal(8, 8, 8), timed=True),
    "relu_row": _case("relu.default", _normal(1, 4096)),
    "relu_timed": _case("relu.default", _normal(256, 1024), timed=True),
    "gelu_odd": _case("gelu.default", _normal(17, 61)),
    "gelu_timed": _case("gelu.default", _normal(128, 512), timed=True),
    "pow_four_timed": _case("pow.Tensor_Scalar", _normal(128, 512), Scalar(4.0), timed=True),
    "lgamma_timed": _case("lgamma.default", Tensor((64, 256), "float32", Uniform(0.5, 8.0)), timed=True),
    "add_broadcast": _case("add.Tensor", _normal(33, 65), _normal(65)),
    "clone": _case("clone.default", _normal(256, 256)),
    "clone_contiguous": Case(
        "redteam",
        "aten.clone.default",
        (Tensor((24, 40), "float32", Normal(), (1, 24)),),
        {"memory_format": MemoryFormat("contiguous_format")},
        jitter=False,
    ),
    "clone_timed": _case("clone.default", _normal(512, 512), timed=True),
    "clone_cuda": _case("clone.default", _normal(256, 256)),
    "clone_special": _case("clone.default", Tensor((64, 64), "float32", Normal(specials=True))),
    "rand_like_timed": _case("rand_like.default", _normal(64, 128), timed=True),
    "rand_like_even": _case("rand_like.default", _normal(64, 64), jitter=True),
    "rand_like_large_timed": _case("rand_like.default", _normal(256, 512), timed=True),
    "multinomial_once": _multinomial(64, 1000, 32),
    "multinomial_most_once": _multinomial(128, 64, 60),
    "multinomial_few_once": _multinomial(8, 50, 10),
    "randperm": Case(
        "redteam",
        "aten.randperm.default",
        (Scalar(4096),),
        {"dtype": DType("int64"), "device": JudgedDevice()},
        jitter=False,
    ),
    "dropout_timed": _case("native_dropout.default", _normal(128, 256), Scalar(0.5), Scalar(True), timed=True),
    "dropout_variants_timed": _case(
        "native_dropout.default", _normal(96, 320), Scalar(0.5), Scalar(True), timed=True, jitter=True
    ),
    "dropout_few_not_training": _case("dropout.default", _normal(3, 5), Scalar(0.5), Scalar(False)),
    "dropout_tenth": _case("native_dropout.default", _normal(256, 512), Scalar(0.1), Scalar(True)),
    "attention_few": _case(
        "_scaled_dot_product_flash_attention_for_cpu.default",
        _normal(1, 1, 1, 8),
        _normal(1, 1, 33, 8),
        _normal(1, 1, 33, 8),
    ),
    "randn_like": _case("randn_like.default", _normal(1024, 512)),
    "bernoulli_few_never": _case("bernoulli.p", _normal(8), Scalar(0.0)),
    "bernoulli_timed": _case("bernoulli.p", _normal(128, 256), Scalar(0.3), timed=True),
    "copy_special": _case("copy_.default", _normal(64, 64), Tensor((64, 64), "float32", Normal(specials=True))),
    "relu_small_timed": _case("relu.default", _normal(64, 256), timed=True),
    "zero_timed": _case("zero_.default", _normal(512, 1024), timed=True),
    "zeros_like": _case("zeros_like.default", _normal(64, 64)),
    "repeat": _case("repeat.default", _normal(1, 4096), _dims(16, 1)),
    "softmax": _case("_softmax.default", _normal(16, 256), Scalar(-1), Scalar(False)),
    "softmax_large": _case("_softmax.default", _normal(16, 256, std=60.0), Scalar(-1), Scalar(False)),
    "softmax_timed": _case("_softmax.default", _normal(64, 128), Scalar(-1), Scalar(False), timed=True),
    "softmax_large_varied": _case("_softmax.default", _normal(128, 512), Scalar(-1), Scalar(False), jitter=True),
    "softmax_square_varied": _case("_softmax.default", _normal(64, 64), Scalar(-1), Scalar(False), jitter=True),
    "softmax_varied": _case("_softmax.default", _normal(12, 40), Scalar(-1), Scalar(False), jitter=True),
    "layer_norm": _case(
        "native_layer_norm.default", _normal(24, 320), _dims(320), _normal(320), _normal(320), Scalar(1e-5)
    ),
    "nansum": _case("nansum.default", _normal(32, 65), _dims(1)),
    "index": _case("index.Tensor", _normal(64, 33), Sequence((Tensor((50,), "int64", Integers(0, 64)),))),
    "index_large_varied": _case(
        "index.Tensor", _normal(4096, 64), Sequence((Tensor((512,), "int64", Integers(0, 4096)),)), jitter=True
    ),
    "rnn": _case(
        "rnn_tanh.input",
        _normal(7, 12, 20),
        _normal(1, 12, 32),
        Sequence((_normal(32, 20), _normal(32, 32), _normal(32), _normal(32))),
        *[Scalar(value) for value in (True, 1, 0.0, False, False, False)],
    ),
    "nll_loss": _case(
        "nll_loss_forward.default",
        _normal(64, 10),
        Tensor((64,), "int64", Integers(0, 10)),
        Scalar(None),
        Scalar(1),
        Scalar(-100),
    ),
    "eq_scalar": _case("eq.Scalar", _normal(33, 65), Scalar(0.75)),
    "eq_broadcast": _case("eq.Tensor", _normal(33, 65), _normal(65)),
    "round": _case("round.default", _normal(33, 65)),
    "item_special": _case("_local_scalar_dense.default", Tensor((), "float32", Normal(specials=True))),
    "sum": _case("sum.dim_IntList", _normal(16, 4096), _dims(-1)),
    "sum_varied": _case("sum.dim_IntList", _normal(16, 32, 64), _dims(-1), jitter=True),
    "attention_varied": _case(
        "_scaled_dot_product_flash_attention_for_cpu.default", *[_normal(2, 4, 33, 16)] * 3, jitter=True
    ),
    "dropout_varied": _case("native_dropout.default", _normal(64, 128), Scalar(0.5), Scalar(True), jitter=True),
    "addmm_varied": Case(
        "redteam",
        "aten.addmm.default",
        (_normal(29), _normal(13, 41), _normal(41, 29)),
        {"beta": Scalar(1.0), "alpha": Scalar(1.0)},
    ),
    "masked_fill_zero_varied": _case(
        "masked_fill.Scalar", _normal(24, 48), Tensor((24, 48), "bool", Booleans()), Scalar(0.0), jitter=True
    ),
    "leaky_relu_varied": _case("leaky_relu.default", _normal(24, 48), jitter=True),
    "layer_norm_varied": _case(
        "native_layer_norm.default", _normal(24, 48), _dims(48), _normal(48), _normal(48), Scalar(1e-5), jitter=True
    ),
    "floor_divide_wide": _case(
        "floor_divide.default",
        Tensor((33, 65), "int32", Integers(-(1 << 31), 1 << 31)),
        Tensor((33, 65), "int32", Integers(1, 100)),
    ),
    "mul_whole": _case("mul.Tensor", *[Tensor((33, 65), "int64", Integers(-100, 100))] * 2),
    "gt_whole": _case("gt.Tensor", *[Tensor((33, 65), "int64", Integers(-3, 4))] * 2),
    "mul_flushed": _case("mul.Tensor", _normal(33, 65), _normal(33, 65)),
    "max": _case("max.default", _normal(33, 65)),
    "safe_softmax": _case("_safe_softmax.default", _normal(16, 33), Scalar(-1)),
    "mean": _case("mean.dim", _normal(16, 65536), _dims(-1)),
    "sort": _case("sort.default", _normal(16, 33)),
    "index_put_accumulate": _case(
        "index_put.default",
        _normal(64, 33),
        Sequence((Tensor((20,), "int64", SortedIntegers(0, 64)),)),
        _normal(20, 33),
        Scalar(True),
    ),
    "any_sparse": _case("any.default", Tensor((64, 64), "bool", Booleans(p_true=0.0002))),
    "isnan": _case("isnan.default", Tensor((64, 64), "float32", Normal(specials=True))),
    "mm": _case("mm.default", _normal(96, 128), _normal(128, 80)),
    "mm_square_varied": _case("mm.default", _normal(96, 96), _normal(96, 96), jitter=True),
    "mm_bf16": _case("mm.default", _normal(96, 128, dtype="bfloat16"), _normal(128, 80, dtype="bfloat16")),
    "mm_small_timed": _case("mm.default", _normal(16, 16), _normal(16, 16), timed=True),
    "mm_timed": _case("mm.default", _normal(512, 512), _normal(512, 512), timed=True),
    "mm_large": _case("mm.default", _normal(512, 512), _normal(512, 512)),
    "sum_gradient": _gradient("sum.dim_IntList", _normal(16), _normal(16, 256), _dims(-1)),
    "mm_gradient_varied": _gradient("mm.default", _normal(12, 20), _normal(12, 16), _normal(16, 20), jitter=True),
    "softmax_gradient_steep": _gradient(
        "_softmax.default", _normal(3, 4, 7), _normal(3, 4, 7, std=30.0), Scalar(0), Scalar(False)
    ),
    "relu_gradient": _gradient("relu.default", *[_normal(24, 48)] * 2),
    "layer_norm_gradient": _gradient(
        "layer_norm.default", *[_normal(24, 48)] * 2, _dims(48), _normal(48), _normal(48), Scalar(1e-5)
    ),
    "sgn_complex": _case("sgn.default", _normal(24, 48, dtype="complex64")),
    "neg": _case("neg.default", _normal(24, 48)),
    "equal": _case("equal.default", *[_normal(8, 9)] * 2),
    "amax_bytes": _case("amax.default", Tensor((24, 48), "uint8", Integers(0, 10)), _dims(-1)),
    "transpose_copy_timed": _case("transpose_copy.int", _normal(512, 512), Scalar(0), Scalar(1), timed=True),
    "contiguous": _case("contiguous.default", Tensor((48, 32), "float32", Normal(), strides=(1, 48))),
    "mean_varied": _case("mean.dim", _normal(24, 100), _dims(-1), jitter=True),
    "argmax_varied": _case("argmax.default", _normal(24, 60), Scalar(1), jitter=True),
    "argmax_model": _model("argmax", _ARGMAX, {}, _normal(16, 48)),
    "attention_causal_varied": Case(
        "redteam",
        "aten.scaled_dot_product_attention.default",
        (_normal(2, 3, 16, 8),) * 3,
        {"is_causal": Scalar(True)},
    ),
    "topk": _case("topk.default", _normal(24, 6), Scalar(4)),
    "where": _case("where.self", Tensor((24, 48), "bool", Booleans()), *[_normal(24, 48)] * 2),
    "rows_chosen": _case("index_select.default", _normal(64, 24), Scalar(0), Tensor((20,), "int64", Integers(0, 64))),
    "nextafter": _case("nextafter.default", *[_normal(24, 48)] * 2),
    "triu_varied": _case("triu.default", _normal(24, 48), jitter=True),
    "clamp_whole_varied": _case("clamp.default", _normal(24, 48), Scalar(-1), Scalar(1), jitter=True),
    "pad_varied": _case("replication_pad2d.default", _normal(2, 3, 8, 9), _dims(1, 1, 1, 1), jitter=True),
    "linspace": Case(
        "redteam",
        "aten.linspace.default",
        (Scalar(-3.0), Scalar(7.0), Scalar(500)),
        {"dtype": DType("float32"), "device": JudgedDevice()},
        jitter=False,
    ),
    "hypot": _case("hypot.default", *[_normal(48, 80)] * 2),
    "log": _case("log.default", Tensor((48, 80), "float32", Uniform(0.05, 8.0))),
    "log1p": _case("log1p.default", _normal(48, 80)),
    "mean_half": _case("mean.dim", _normal(16, 8192, dtype="float16"), _dims(-1)),
    "randint_large": Case(
        "redteam",
        "aten.randint.default",
        (Scalar(1 << 40), _dims(4096)),
        {"dtype": DType("int64"), "device": JudgedDevice()},
    ),
    "attention_dropout": _case(
        "scaled_dot_product_attention.default",
        *([_normal(2, 2, 32, 16)] * 3),
        *(Scalar(None), Scalar(0.1), Scalar(False)),
    ),
    "upsample_fixed": Case(
        "redteam",
        "aten.upsample_bilinear2d.default",
        (_normal(2, 3, 8, 9), _dims(11, 13), Scalar(False)),
        jitter=False,
        layouts=True,
    ),
    "layer_norm_large_timed": _case(
        "native_layer_norm.default",
        *(_normal(256, 512), _dims(512), _normal(512), _normal(512), Scalar(1e-5)),
        timed=True,
        jitter=True,
    ),
    "hypot_half": _case("hypot.default", *[_normal(24, 48, dtype="float16")] * 2),
    "gelu_gradient_large": _gradient("gelu.default", *[_normal(128, 256)] * 2),
    "mul_gradient_timed": _gradient("mul.Tensor", *[_normal(64, 128)] * 3, timed=True),
    "mlp_model_timed": _model(
        "mlp",
        _MLP,
        {
            f"layers.{layer}.{name}": _normal(64, 64, std=0.1) if name == "weight" else _normal(64)
            for layer in range(12)
            for name in ("weight", "bias")
        },
        _normal(32, 64),
        timed=True,
    ),
    "balanced_model_timed": _model("balanced", _BALANCED, {"logits": _normal(16, 16)}, _normal(64, 16), timed=True),
    "batch_norm_model": _model(
        "batch_norm",
        _BATCH_NORM,
        {"norm.weight": _normal(16), "norm.bias": _normal(16)},
        _normal(4, 16, 8, 8),
        {
            "norm.running_mean": _normal(16),
            "norm.running_var": Tensor((16,), "float32", Uniform(0.5, 2.0)),
            "norm.num_batches_tracked": Tensor((), "int64", Integers(0, 9)),
        },
    ),
    "kl_div": _case(
        "kl_div.default",
        *(Tensor((24, 48), "float32", Uniform(-8.0, 0.0)), Tensor((24, 48), "float32", Uniform(0.0, 1.0))),
    ),
    "attention_masked": _case(
        "scaled_dot_product_attention.default",
        *(_normal(1, 2, 8, 16), _normal(1, 2, 96, 16), _normal(1, 2, 96, 16), _normal(1, 1, 8, 96)),
    ),
    "relu_cuda_timed": _case("relu.default", _normal(2048, 2048), timed=True),
    "gelu_cuda_timed": _case("gelu.default", _normal(1024, 2048), timed=True),
    "relu_cuda_small_timed": _case("relu.default", _normal(64, 64), timed=True),
    "logsumexp_cuda_timed": _case("logsumexp.default", _normal(256, 1024), _dims(1), timed=True),
    "softmax_cuda_timed": _case("_softmax.default", _normal(256, 512), Scalar(-1), Scalar(False), timed=True),
    "mm_cuda_timed": _case("mm.default", _normal(1024, 1024), _normal(1024, 1024), timed=True),
}
"""Name -> case. Except for the small ones, a timed call takes longer than the overhead of calling."""
