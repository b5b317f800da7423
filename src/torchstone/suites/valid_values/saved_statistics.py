"""Table of values for arguments that an earlier call computed, such as variances, outputs and logsumexp."""

from __future__ import annotations

import math

from torchstone.schema import Simplex, Uniform
from torchstone.suites.valid_values.named_call import Fills, NamedCall
from torchstone.suites.valid_values.rule_table import BALANCED, COUNTS, POSITIVE, UNIT, RuleTable

RULES = RuleTable()


RULES.always(
    "native_batch_norm batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm _batch_norm_with_update _batch_norm_no_update",
    "input weight bias running_mean running_var",
    running_var=POSITIVE,
)
RULES.always(
    "native_batch_norm_backward",
    "grad_out input weight running_mean running_var save_mean save_invstd",
    jitter=False,  # with a batch of 0 torch divides by zero on CUDA, which ends the process
    running_var=POSITIVE,
    save_invstd=POSITIVE,
)
RULES.always(
    "cudnn_batch_norm_backward miopen_batch_norm_backward",
    "input grad_output weight running_mean running_var save_mean save_var",
    running_var=POSITIVE,
    save_var=POSITIVE,
)
RULES.always(
    "batch_norm_backward",
    "grad_out input weight running_mean running_var save_mean save_var",
    running_var=POSITIVE,
    save_var=POSITIVE,
)
RULES.always("native_layer_norm_backward", "grad_out input normalized_shape mean rstd", rstd=POSITIVE)
RULES.always("native_group_norm_backward", "grad_out input mean rstd", rstd=POSITIVE)
RULES.always("_fused_rms_norm_backward", "grad_out input normalized_shape rstd weight", rstd=POSITIVE)
RULES.always("sigmoid_backward", "grad_output output", output=UNIT)
RULES.always("tanh_backward", "grad_output output", output=BALANCED)
RULES.always("_log_softmax_backward_data", "grad_output output dim input_dtype", output=Uniform(-8.0, 0.0))


@RULES.of("_softmax_backward_data", "grad_output output dim input_dtype")
def _softmax_backward(call: NamedCall) -> Fills:
    """Rows of probabilities, where rows lie along the last dimension."""
    dimensions = len(call.shape("output"))
    return {"output": Simplex() if call["dim"] in (-1, dimensions - 1) else UNIT}


_ATTENTION = "query key value"


@RULES.of(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention",
    _ATTENTION,
    jitter=False,
)
def _attention(call: NamedCall) -> Fills:
    """Rows must be dense, and the heads of queries a multiple of those of keys.

    torch ensures both before it makes these calls, and does not check them inside. Other sizes and layouts give wrong
    values, or end the process.
    """
    return {}


@RULES.of(
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    f"grad_out {_ATTENTION} out logsumexp dropout_p is_causal attn_mask scale",
    jitter=False,
)
@RULES.of(
    "_scaled_dot_product_flash_attention_backward",
    f"grad_out {_ATTENTION} out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal philox_seed "
    "philox_offset",
    jitter=False,
)
@RULES.of(
    "_scaled_dot_product_efficient_attention_backward",
    f"grad_out_ {_ATTENTION} attn_bias out logsumexp philox_seed philox_offset dropout_p grad_input_mask is_causal",
    jitter=False,
)
def _attention_backward(call: NamedCall) -> Fills:
    """``logsumexp`` must be above the scores, or the attention weights computed from it would exceed 1."""
    width = call.size("query", -1)
    spread = max(1.0, abs(call.number("scale", 1 / math.sqrt(max(width, 1)))) * math.sqrt(width))
    return {"logsumexp": Uniform(6.0 * spread, 6.0 * spread + 4.0), "philox_seed": COUNTS, "philox_offset": COUNTS}
