"""Writes kquants.bin: for Q4_K, then Q6_K, the blocks of a matrix [19,512] and its
float32 values as the gguf package dequantises them. The package has no K quantiser: the
blocks are random bytes with scales of the size that models have. Needs: gguf numpy."""
import numpy as np, gguf
from gguf import GGMLQuantizationType as T
rng = np.random.default_rng(11)
n, k = 19, 512
with open("kquants.bin", "wb") as f:
    for t in (T.Q4_K, T.Q6_K):
        size = gguf.GGML_QUANT_SIZES[t][1]
        b = rng.integers(0, 256, size=(n * k // 256, size), dtype=np.uint8)
        s = rng.normal(0, 0.002, size=(len(b), 2)).astype(np.float16).view(np.uint8)
        if t == T.Q6_K: b[:, 208:210] = s[:, :2]
        else: b[:, :4] = s
        f.write(b.tobytes())
        f.write(gguf.quants.dequantize(b, t).astype("<f4").tobytes())
