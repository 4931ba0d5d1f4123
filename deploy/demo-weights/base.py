"""The untrained T5 that the demo's filter starts from: a Unigram vocabulary of its own and derived weights.

    base.py TEXTS.jsonl MINILM_DIR OUT [--vocab 8000] [--dim 192] [--layers 3] [--ff 384]

TEXTS are lines with "query" and "positives" (or "text"). The vocabulary is trained on them. The embeddings are those of
MiniLM, averaged over the WordPieces of each piece and reduced by PCA, so that like words begin alike. Half of the first
encoder layer's heads begin as matching heads (queries and keys one projection; Trockman and Kolter, "Mimetic initialization of
self-attention layers", 2023): a word looks at equal words some distance away, and where there is none at the text's first word,
and writes how rare the word is that it found into a channel of its own. Three channels of the embeddings serve that: a constant,
the word's rarity in TEXTS, and a mark of the first word. What the channel means for the answer is for training to find out: all
else is T5's usual random initialisation, and nothing here has seen a label. Needs numpy, tokenizers and safetensors.
"""
import argparse, json, os
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

a = argparse.ArgumentParser()
a.add_argument("texts"), a.add_argument("minilm"), a.add_argument("out")
a.add_argument("--vocab", type=int, default=8000), a.add_argument("--dim", type=int, default=192), a.add_argument("--layers", type=int, default=3)
a.add_argument("--ff", type=int, default=384), a.add_argument("--heads", type=int, default=6), a.add_argument("--seed", type=int, default=1)
a = a.parse_args()
rng = np.random.default_rng(a.seed)
D, H, K, F = a.dim, a.heads, 32, a.ff

lines = []
for l in open(a.texts):
    j = json.loads(l)
    lines += [j["query"], *(p["text"] for p in j["positives"])] if "query" in j else [j["text"]]
template = "Given the following evidence, determine whether it helps answer the provided question.\n\nEvidence: \n\nQuestion: A) B) C) D) E)"
t = Tokenizer(models.Unigram())
t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
t.decoder = decoders.Metaspace()
labels = ["[HELPFUL]", "[NOT_HELPFUL]"]
t.train_from_iterator(lines + [template] * 50, trainers.UnigramTrainer(vocab_size=a.vocab - 2, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
t.add_special_tokens([AddedToken(l, normalized=False, special=True) for l in labels])
V = t.get_vocab_size()

# Embeddings.
mini, table = Tokenizer.from_file(f"{a.minilm}/tokenizer.json"), load_file(f"{a.minilm}/model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)
mini.no_padding(), mini.no_truncation()
vectors = np.zeros((V, table.shape[1]))
for i in range(V):
    ids = mini.encode(t.id_to_token(i).replace("▁", ""), add_special_tokens=False).ids
    if ids:
        vectors[i] = table[ids].mean(0)
vectors -= vectors[3:].mean(0)
_, _, basis = np.linalg.svd(vectors[3:], full_matrices=False)
CONST, RARE, FIRST, MATCH = range(D - 4, D)  # the channels
content = vectors @ basis[:D - 4].T
norm = np.linalg.norm(content, axis=1, keepdims=True)
e = np.zeros((V, D))
e[:, :D - 4] = content / np.maximum(norm, 1e-9) * np.sqrt(D) * 0.7 + rng.normal(size=(V, D - 4)) * 0.3  # rows of about T5's scale, all different
df = np.ones(V)
for x in t.encode_batch(lines, add_special_tokens=False):
    df[list(set(x.ids))] += 1
e[:, CONST], e[:, RARE] = 1, np.log(len(lines) / df) / np.log(len(lines))
e[:3, RARE] = 0
first = t.encode(template, add_special_tokens=False).ids[0]
e[first, RARE], e[first, FIRST] = 0, 8

def normal(rows, cols, std): return (rng.normal(size=(rows, cols)) * std).astype(np.float32)
w = {"shared.weight": e.astype(np.float32), "encoder.final_layer_norm.weight": np.ones(D, np.float32), "decoder.final_layer_norm.weight": np.ones(D, np.float32)}
def attention(p, match):
    q, k = normal(H * K, D, (D * K) ** -0.5), normal(H * K, D, D ** -0.5)
    v, o = normal(H * K, D, D ** -0.5), normal(D, H * K, (H * K) ** -0.5)
    for h in range(match):
        same = np.zeros((K, D))
        same[:K - 1, :D - 4] = np.linalg.qr(rng.normal(size=(D - 4, K - 1)))[0].T * np.sqrt(0.3)  # equal words: about 9
        at = slice(h * K, (h + 1) * K)
        q[at], k[at] = same, same
        q[(h + 1) * K - 1, CONST], k[(h + 1) * K - 1, FIRST] = 0.82, 0.82  # the first word: about 7
        v[h * K] = 0
        v[h * K, RARE] = 1
    if match:
        o[MATCH] = 0  # nothing else writes there
        o[MATCH, np.arange(match) * K] = 1
    w[p + "q.weight"], w[p + "k.weight"], w[p + "v.weight"], w[p + "o.weight"] = q, k, v, o
def ff(p):
    w[p + "wi_0.weight"], w[p + "wi_1.weight"], w[p + "wo.weight"] = normal(F, D, D ** -0.5), normal(F, D, D ** -0.5), normal(D, F, F ** -0.5)
    w[p + "wo.weight"][MATCH] = 0
def norm_(p): w[p + "layer_norm.weight"] = np.ones(D, np.float32)
for side, layers in (("encoder", a.layers), ("decoder", 1)):
    for i in range(layers):
        p = f"{side}.block.{i}.layer."
        attention(p + "0.SelfAttention.", H // 2 if side == "encoder" and i == 0 else 0), norm_(p + "0.")
        if i == 0:
            b = normal(32, H, D ** -0.5)
            if side == "encoder":  # matching heads do not look at near words: buckets 0 … 9 of either direction are up to 12 words
                for d in (0, 16):
                    b[d:d + 10, :H // 2] = -6
            w[p + "0.SelfAttention.relative_attention_bias.weight"] = b
        if side == "decoder":
            attention(p + "1.EncDecAttention.", 0), norm_(p + "1.")
            ff(p + "2.DenseReluDense."), norm_(p + "2.")
        else:
            ff(p + "1.DenseReluDense."), norm_(p + "1.")
os.makedirs(a.out, exist_ok=True)
save_file(w, f"{a.out}/model.safetensors", metadata={"format": "pt"})
t.save(f"{a.out}/tokenizer.json", pretty=False)
json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}, open(f"{a.out}/tokenizer_config.json", "w"), indent=1)
json.dump(dict(architectures=["T5ForConditionalGeneration"], model_type="t5", d_model=D, d_kv=K, d_ff=F, num_layers=a.layers, num_decoder_layers=1, num_heads=H, vocab_size=V,
               relative_attention_num_buckets=32, relative_attention_max_distance=128, layer_norm_epsilon=1e-6, feed_forward_proj="gated-gelu", tie_word_embeddings=True,
               is_encoder_decoder=True, decoder_start_token_id=0, eos_token_id=1, pad_token_id=0, dropout_rate=0.1), open(f"{a.out}/config.json", "w"), indent=1)
total = sum(x.size for x in w.values())
print(f"{a.out}: vocabulary {V}, {total:,} parameters, {total - w['shared.weight'].size:,} besides the embeddings")
