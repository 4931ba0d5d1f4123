"""Checkpoints of full size with random bfloat16 weights (standard library only): RAG2_FULL_DIR=OUT go test -run FullSize ./models

  fullsize.py OUT [LAYERS [small]]    OUT/t5-large (783 M), OUT/bert-base (f32), OUT/llama-3-8b with LAYERS layers (4), in shards;
                                      small: the same models in an eighth of the width, with 2 layers each
"""
import json, os, random, struct, sys
out, layers, small = sys.argv[1], int((sys.argv[2:] or [4])[0]), sys.argv[3:] == ["small"]
by, depth = (8, lambda n: 2) if small else (1, lambda n: n)
random.seed(1)

def block(dtype, scale, mean=0):
    v = [random.gauss(mean, scale) for _ in range(1 << 18)]
    return b"".join(struct.pack("<f", x)[2:] for x in v) if dtype == "BF16" else struct.pack(f"<{len(v)}f", *v)

def write(path, tensors, dtype, scale):
    size, at, header = {"BF16": 2, "F32": 4}[dtype], 0, {}
    for name, dims in tensors:
        n = size
        for d in dims: n *= d
        header[name] = dict(dtype=dtype, shape=list(dims), data_offsets=[at, at + n]); at += n
    h = json.dumps(header).encode(); h += b" " * (-len(h) % 8)
    # Gains of norms are about 1, and T5's queries are small, since its attention is not scaled.
    plain, gain, query = block(dtype, scale), block(dtype, scale, 1), block(dtype, scale / 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for name, dims in tensors:
            b = gain if "norm" in name.lower() and name.endswith("weight") else query if name.endswith(".q.weight") else plain
            n = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
            for k in range(0, n, len(b)): f.write(b[:min(len(b), n - k)])

def model(name, config, tensors, dtype="BF16", scale=0.03, shards=1):
    os.makedirs(f"{out}/{name}", exist_ok=True)
    json.dump(config, open(f"{out}/{name}/config.json", "w"))
    if shards == 1: return write(f"{out}/{name}/model.safetensors", tensors, dtype, scale)
    index = {}
    for k in range(shards):
        f = f"model-{k + 1:05d}-of-{shards:05d}.safetensors"; part = tensors[k * len(tensors) // shards:(k + 1) * len(tensors) // shards]
        write(f"{out}/{name}/{f}", part, dtype, scale); index.update({n: f for n, _ in part})
    json.dump(dict(weight_map=index), open(f"{out}/{name}/model.safetensors.index.json", "w"))

d, f, v, T = 1024 // by, 2816 // by, 32128, []
def att(p): T.extend([(f"{p}.{x}.weight", (d, d)) for x in "qkvo"])
def ff(p): T.extend([(p + ".wi_0.weight", (f, d)), (p + ".wi_1.weight", (f, d)), (p + ".wo.weight", (d, f))])
T += [("shared.weight", (v, d)), ("lm_head.weight", (v, d))]
for s, last in (("encoder", 1), ("decoder", 2)):
    for i in range(depth(24)):
        p = f"{s}.block.{i}.layer."
        for k in range(last + 1): T.append((f"{p}{k}.layer_norm.weight", (d,)))
        att(p + "0.SelfAttention")
        if i == 0: T.append((p + "0.SelfAttention.relative_attention_bias.weight", (32, 16 // by)))
        if last == 2: att(p + "1.EncDecAttention")
        ff(f"{p}{last}.DenseReluDense")
    T.append((s + ".final_layer_norm.weight", (d,)))
model("t5-large", dict(model_type="t5", d_model=d, d_kv=64, d_ff=f, num_layers=depth(24), num_decoder_layers=depth(24), num_heads=16 // by, vocab_size=v, feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0, eos_token_id=1, pad_token_id=0), T)

h, f = 768 // by, 3072 // by
def linear(n, o, i): return [(n + ".weight", (o, i)), (n + ".bias", (o,))]
def norm(n): return linear(n, h, 1)[1:] + [(n + ".weight", (h,))]
T = [("embeddings.word_embeddings.weight", (30522, h)), ("embeddings.position_embeddings.weight", (512, h)), ("embeddings.token_type_embeddings.weight", (2, h))] + norm("embeddings.LayerNorm")
for i in range(depth(12)):
    p = f"encoder.layer.{i}."
    for n, a, b in (("attention.self.query", h, h), ("attention.self.key", h, h), ("attention.self.value", h, h), ("attention.output.dense", h, h), ("intermediate.dense", f, h), ("output.dense", h, f)): T += linear(p + n, a, b)
    T += norm(p + "attention.output.LayerNorm") + norm(p + "output.LayerNorm")
T += linear("pooler.dense", h, h) + linear("classifier", 1, h)
model("bert-base", dict(model_type="bert", hidden_size=h, num_hidden_layers=depth(12), num_attention_heads=12 // (4 if small else 1), intermediate_size=f, vocab_size=30522, max_position_embeddings=512, type_vocab_size=2), T, "F32")

h, f, v, layers = 4096 // by, 14336 // by, 128256 // by, depth(layers)
kv = 1024 // by
T = [("model.embed_tokens.weight", (v, h))]
for i in range(layers):
    p = f"model.layers.{i}."
    T += [(p + n + ".weight", s) for n, s in (("input_layernorm", (h,)), ("self_attn.q_proj", (h, h)), ("self_attn.k_proj", (kv, h)), ("self_attn.v_proj", (kv, h)), ("self_attn.o_proj", (h, h)),
          ("post_attention_layernorm", (h,)), ("mlp.gate_proj", (f, h)), ("mlp.up_proj", (f, h)), ("mlp.down_proj", (h, f)))]
T += [("model.norm.weight", (h,)), ("lm_head.weight", (v, h))]
model("llama-3-8b", dict(model_type="llama", num_hidden_layers=layers, hidden_size=h, intermediate_size=f, num_attention_heads=32 // by, num_key_value_heads=8 // by, vocab_size=v, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=False,
      rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)), T, shards=3)
