"""What kernels take that are not fused, as other systems have them: one for each step of a norm or
of attention.

They reach less of the memory's rate than the fused ones that `gpu.reached.memory` is about, down to
half of it. So what was measured of them is given as bytes: as many as a fused kernel moves in the
same time. That they are as many on other GPUs is an assumption.
"""

from collections.abc import Mapping

from penstock.cluster.gpu import PassShares

PLAIN_NORM = PassShares(47, 102)
"""Of an element of 16 bits, measured on an H200 with kernels of PyTorch 2: 53 and 118 with 2,048
tokens of 8,192 elements, 48 and 103 with 8,192, 46 and 100 with 32,768 of 5,120. Counted kernel by
kernel it is less. Forward 36: to 32 bits 6, square 8, mean 4, scale 8, to 16 bits 6, weight 4.
Backward 92: weight 12, to 32 bits 6, scale and its sum 24, square and mean 32, sum of both 12, to
16 bits 6."""
PROJECTION_NORM = PassShares(47, 82)
"""The same of norms of queries and keys over all heads, where several ranks have these
(model/layers/projection_norm.py). Forward the kernels are those of `PLAIN_NORM`. Counted kernel by
kernel, backward 74: normed 6, times its gradient 10, summed for the weight 4, times the weight 8,
summed 4; gradient times the weight 4, to 32 bits 6, normed again 6, less a share of it 12, scaled
8, to where it was 6. That it takes longer as backwards of `PLAIN_NORM` do, by 102 / 92, is an
assumption."""
CAPPED = "capped"
PAIR_MOVED: Mapping[str, PassShares] = {
    "fused-softmax": PassShares(12, 16),
    "unfused": PassShares(25, 28),
    CAPPED: PassShares(127, 151),
}
"""Of a pair of 16 bits for each head. With one kernel for scale, mask and softmax, and another one
that drops out: scores written 2, normed 4, dropped 4, read 2; backward gradient of the
probabilities written 2, of what was dropped 4, of the scores 6, read twice 4. Computing the former
again takes 1.3 ms on A100 with 8 heads of 96 for four sequences of 2,048 tokens (arXiv:2205.05198,
table 4), which are 13 bytes. One kernel for each step, measured on an H200 with kernels of PyTorch
2 and heads of 128: 22 and 29 bytes with 40 heads at 2,048 tokens, 28 and 27 with 20 heads at
8,192. Scores with a bound have no fused kernel, and a run computes them block by block in 32 bits
and keeps none (model/attention/plain.py): 127 and 154 bytes with 16 heads of 256 at 8,192 tokens,
127 and 151 with 32 heads of 128 at 4,096, and 127 and 147 with the former at 2,048."""
