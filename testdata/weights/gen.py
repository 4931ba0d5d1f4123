"""Writes blocks.gguf (one tensor of every storage type) and blocks.npy (their values
as the gguf package dequantises them), and tiny.safetensors. Needs: gguf numpy safetensors.
Q4_0..Q8_0 are quantised by the package; it has no K quantiser, so those blocks are random
bytes with small scales."""
import numpy as np, gguf
from gguf import GGMLQuantizationType as T
rng = np.random.default_rng(7)
w = gguf.GGUFWriter("blocks.gguf", "llama")
w.add_uint32("llama.block_count", 2)
w.add_string("general.name", "blocks é")
w.add_array("tokenizer.ggml.tokens", ["<s>", "a", "Ġb"])
w.add_array("tokenizer.ggml.scores", [0.5, -1.0, 2.0])
w.add_bool("tokenizer.ggml.add_bos_token", True)
vals = []
x = rng.normal(size=(2, 256)).astype(np.float32)
for t in [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K]:
    if t in (T.Q4_K, T.Q5_K, T.Q6_K):
        n, size = gguf.GGML_QUANT_SIZES[t]
        b = rng.integers(0, 256, size=(2, size), dtype=np.uint8)
        s = np.frombuffer(np.array([0.01, -0.02], np.float16).tobytes(), np.uint8)
        if t == T.Q6_K: b[:, 208:210] = s[:2]
        else: b[:, :4] = s
    elif t == T.F32: b = x
    elif t == T.F16: b = x.astype(np.float16)
    else: b = gguf.quants.quantize(x, t)
    w.add_tensor(t.name, b, raw_dtype=t)
    v = x.astype(np.float16).astype(np.float32) if t == T.F16 else x if t == T.F32 else gguf.quants.dequantize(b, t)
    vals.append(v.reshape(-1))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
np.save("blocks.npy", np.stack(vals).astype(np.float32))
from safetensors.numpy import save_file
save_file({"a": x[:, :8].copy(), "b": x[:, :8].astype(np.float16), "i": np.arange(6, dtype=np.int64).reshape(2, 3)}, "tiny.safetensors", metadata={"format": "pt"})
