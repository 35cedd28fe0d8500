"""Writes the sampling graph: the same model, which also chooses the next token.

    >>> write_sampling(Path("onnx/model.onnx"), Path("onnx/sampling.onnx"))        # doctest: +SKIP

It is for programs that have no arrays to compute with. Inputs and outputs are the portable graph's,
with these in place of `logits`:

| name         | shape          | meaning |
|--------------|----------------|---------|
| temperature  | (1,) float     | 0: always the likeliest token |
| top_k        | (1,) int64     | only the k likeliest tokens; 0: all |
| top_p        | (1,) float     | only the likeliest whose probabilities sum to p; 1: all |
| draws        | (B,) float     | a random number in [0, 1) for each row |
| next_ids     | (B, 1) int64   | the output: what input_ids can be next |

The weights stay in the portable graph's file; this one refers to them. All operators are standard
ones, unless the portable graph has others.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from export.formats.graph import keep_last_logits, refer_to_weights, set_items

# Tokens are in the order of their logits, so what top_p keeps (arXiv 1904.09751) is a beginning, so
# is what a draw passes over. Where rounding lets it pass over all, ArgMax gives the first. The
# likeliest token alone is left where the temperature is 0.
SAMPLER = """
sampler (float[batch_size, 1, vocab_size] logits, float[1] temperature, int64[1] top_k,
         float[1] top_p, float[batch_size] draws) => (int64[batch_size, 1] next_ids)
<float[1] zero = {0}, float[1] unit = {1}, int64[1] none = {0}, int64[1] one = {1}>
{
    last_logits = Squeeze (logits, one)
    all_tokens = Shape <start = 2> (logits)
    is_limited = Greater (top_k, none)
    limit = Where (is_limited, top_k, all_tokens)
    is_greedy = LessOrEqual (temperature, zero)
    n_wanted = Where (is_greedy, one, limit)
    n_candidates = Min (n_wanted, all_tokens)
    candidate_logits, candidates = TopK <axis = 1> (last_logits, n_candidates)
    divisor = Where (is_greedy, unit, temperature)
    scaled_logits = Div (candidate_logits, divisor)
    probabilities = Softmax <axis = 1> (scaled_logits)
    until = CumSum (probabilities, one)
    before = Sub (until, probabilities)
    is_within = Less (before, top_p)
    zero_or_one = Cast <to = 1> (is_within)
    kept = Mul (probabilities, zero_or_one)
    passed = CumSum (kept, one)
    total = ReduceMax <keepdims = 1> (passed, one)
    drawn = Unsqueeze (draws, one)
    target = Mul (drawn, total)
    is_beyond = Greater (passed, target)
    beyond = Cast <to = 1> (is_beyond)
    place = ArgMax <axis = 1, keepdims = 1> (beyond)
    next_ids = GatherElements <axis = 1> (candidates, place)
}
"""


def write_sampling(source: Path, path: Path) -> None:
    """Write the sampling graph of the portable graph at `source`, into the same folder."""
    proto = onnx.load(source, load_external_data=False)
    graph, sampler = proto.graph, parser.parse_graph(SAMPLER)
    first = numpy_helper.from_array(np.array([-1]), "first_logits")
    graph.initializer.extend([first, *sampler.initializer])
    keep_last_logits(graph)
    graph.node.extend(sampler.node)
    graph.input.extend(value for value in sampler.input if value.name != "logits")
    caches = [value for value in graph.output if value.name != "logits"]
    set_items(graph.output, [*sampler.output, *caches])
    refer_to_weights(graph, source)
    onnx.save(proto, str(path))
