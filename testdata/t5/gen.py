"""Tiny random T5 models and what transformers computes with them (float32, CPU).

  gen.py tiny             flan/ (version 1.1: gated GELU, untied head) and t5/ (version 1.0: ReLU, tied) here (committed)
"""
import json, os, shutil, sys, torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration, PreTrainedTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))
TEMPLATE = "Given the following evidence, determine whether it helps answer the provided question.\n\nEvidence: {e}\n\nQuestion: {q}"
QUESTIONS = ["What lowers blood glucose in type 2 diabetes? A) Metformin B) Aspirin C) Warfarin D) Digoxin", "Which nerve is hurt? A) Ulnar B) Median"]
SNIPPETS = ["Metformin lowers hepatic glucose output.", "", "The ulnar nerve runs behind the medial epicondyle. " * 3, "Naïve café ﬁne ½ 日本語 [HELPFUL?]\n\nQuestion: none"]

# scale None: T5's own initialisation, under which attention is not all on one position as with weights of one
# size (large widths then differ by 1e-2 between float32 and float64 in transformers itself).
def make(path, gated, tied, seed, scale=0.2, **kw):
    torch.manual_seed(seed)
    c = T5Config(feed_forward_proj="gated-gelu" if gated else "relu", tie_word_embeddings=tied, decoder_start_token_id=0, **kw)
    m = T5ForConditionalGeneration(c).eval()
    if not tied:
        m.lm_head.weight = torch.nn.Parameter(torch.empty(c.vocab_size, c.d_model))
    with torch.no_grad():
        for n, p in m.named_parameters():
            if scale: p.copy_(torch.randn_like(p) * scale)
            elif n == "lm_head.weight": p.copy_(torch.randn_like(p) * 0.05)
            elif "layer_norm" in n: p.copy_(torch.randn_like(p) * 0.05)
            if "layer_norm" in n: p.add_(1)
    sd = {n: p.detach().clone().contiguous() for n, p in m.state_dict().items() if "embed_tokens" not in n and (not tied or n != "lm_head.weight")}
    os.makedirs(path, exist_ok=True)
    save_file(sd, f"{path}/model.safetensors", metadata={"format": "pt"})
    j = dict(architectures=["T5ForConditionalGeneration"], model_type="t5", d_model=c.d_model, d_kv=c.d_kv, d_ff=c.d_ff, num_layers=c.num_layers, num_decoder_layers=c.num_decoder_layers,
             num_heads=c.num_heads, vocab_size=c.vocab_size, relative_attention_num_buckets=c.relative_attention_num_buckets, relative_attention_max_distance=c.relative_attention_max_distance,
             layer_norm_epsilon=c.layer_norm_epsilon, feed_forward_proj=c.feed_forward_proj, tie_word_embeddings=tied, is_encoder_decoder=True, decoder_start_token_id=0, eos_token_id=1, pad_token_id=0, dropout_rate=0.1)
    json.dump(j, open(f"{path}/config.json", "w"), indent=1)
    loaded = T5ForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval()
    x = torch.randint(3, c.vocab_size, (1, 9))
    with torch.no_grad():
        a, b = (y(input_ids=x, decoder_input_ids=torch.zeros(1, 1, dtype=torch.long)).logits for y in (m, loaded))
    assert torch.allclose(a, b, atol=1e-4), f"from_pretrained sees another model: {(a - b).abs().max()}"
    return m

def first(m, ids):
    with torch.no_grad():
        return m(input_ids=torch.tensor([ids]), decoder_input_ids=torch.zeros(1, 1, dtype=torch.long)).logits[0, 0]

def tiny():
    os.chdir(here)
    t = PreTrainedTokenizerFast(tokenizer_file="../tokenizer/unigram.json", unk_token="<unk>", eos_token="</s>", pad_token="<pad>")
    for name, gated, tied, seed in (("flan", True, False, 7), ("t5", False, True, 8)):
        m = make(name, gated, tied, seed, vocab_size=len(t), d_model=16, d_kv=6, d_ff=40, num_layers=2, num_decoder_layers=2 if gated else 1, num_heads=4)
        shutil.copy("../tokenizer/unigram.json", f"{name}/tokenizer.json")
        g = {"cases": [], "buckets": {}, "filter": []}
        for n in (1, 5, 40, 150, 300):
            ids = torch.randint(3, len(t), (n,)).tolist()
            out = m.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)[0, 1:].tolist()
            g["cases"].append({"ids": ids, "logits": first(m, ids)[:48].tolist(), "greedy": out})
        att = m.encoder.block[0].layer[0].SelfAttention
        d = torch.arange(-200, 201)
        for bi in (True, False): g["buckets"][str(bi).lower()] = att._relative_position_bucket(d, bidirectional=bi, num_buckets=32, max_distance=128).tolist()
        labels = t.convert_tokens_to_ids(["[HELPFUL]", "[NOT_HELPFUL]"])
        for q in QUESTIONS:
            for s in SNIPPETS:
                ids = t(TEMPLATE.format(e=s, q=q))["input_ids"]
                g["filter"].append({"question": q, "snippet": s, "ids": ids, "p": torch.softmax(first(m, ids)[labels].double(), 0)[0].item()})
        if gated:  # the fault that float16 shows: T5's feed-forward output grows beyond 65,504
            with torch.no_grad():
                for n, p in m.named_parameters():
                    if n.endswith("DenseReluDense.wo.weight"): p.mul_(1e4)
            g["overflow"] = [torch.softmax(first(m, f["ids"])[labels].double(), 0)[0].item() for f in g["filter"]]
        json.dump(g, open(f"{name}/golden.json", "w"))

if __name__ == "__main__":
    tiny()
