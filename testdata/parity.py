"""Random models of true architectures and what transformers computes with them, for RAG2_PARITY_DIR (never committed).

  parity.py OUT TEXTS.jsonl N [NAME…]    OUT/{bert,t5,t5wide,llama3,mistral} with golden.jsonl of N texts each (float32, CPU)
"""
import importlib.util, json, os, shutil, sys, torch
from transformers import (BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast)
here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("t5gen", f"{here}/t5/gen.py"); t5gen = importlib.util.module_from_spec(spec); spec.loader.exec_module(t5gen)
out, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
names = sys.argv[4:] or ["bert", "t5", "t5wide", "llama3", "mistral"]
texts = [t for t in (json.loads(l)["text"] for _, l in zip(range(50 * n), open(path))) if t.strip()][:: 50][:n]

def tok(f, **kw): return PreTrainedTokenizerFast(tokenizer_file=f"{here}/tokenizer/{f}.json", **kw)

def fill(m, scale):
    with torch.no_grad():
        for k, p in m.named_parameters():
            p.copy_(torch.randn_like(p) * scale)
            if "norm" in k.lower() and k.endswith("weight"): p.add_(1)
    return m.eval()

def write(name, tokenizer, rows):
    shutil.copy(f"{here}/tokenizer/{tokenizer}.json", f"{out}/{name}/tokenizer.json")
    with open(f"{out}/{name}/golden.jsonl", "w") as f:
        for r in rows: f.write(json.dumps(r) + "\n")
    print(name, "done", flush=True)

def bert():
    t = tok("wordpiece", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    m = fill(BertForSequenceClassification(BertConfig(vocab_size=30522, num_labels=1)), 0.05); m.save_pretrained(f"{out}/bert")
    with torch.no_grad():
        rows = []
        for a, b in zip(texts, texts[1:] + texts[:1]):
            e = t(a, return_tensors="pt", truncation=True, max_length=256); h = m.bert(input_ids=e["input_ids"]).last_hidden_state[0, 0]
            p = t(a, b, return_tensors="pt", truncation="longest_first", max_length=256)
            rows.append({"text": a, "ids": e["input_ids"][0].tolist(), "cls": h.tolist(), "pair": p["input_ids"][0].tolist(), "types": p["token_type_ids"][0].tolist(), "logit": m(**p).logits[0].tolist()})
    write("bert", "wordpiece", rows)

torch.manual_seed(1)
if "bert" in names: bert()
for name, kw in (("t5", dict(d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_decoder_layers=8, num_heads=6)), ("t5wide", dict(d_model=1024, d_kv=64, d_ff=2816, num_layers=2, num_decoder_layers=2, num_heads=16))):
    if name not in names: continue
    t = tok("unigram", unk_token="<unk>", eos_token="</s>", pad_token="<pad>")
    m = t5gen.make(f"{out}/{name}", True, False, 3, scale=None, vocab_size=32128, **kw)
    write(name, "unigram", [{"text": s, "ids": (i := t(s, truncation=True, max_length=256)["input_ids"]), "logits": t5gen.first(m, i)[:64].tolist()} for s in texts])
base = dict(vocab_size=8192, hidden_size=1024, intermediate_size=2816, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=4, rms_norm_eps=1e-5)
for name, m in (("llama3", LlamaForCausalLM(LlamaConfig(**base, max_position_embeddings=8192, tie_word_embeddings=False, rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}))),
                ("mistral", MistralForCausalLM(MistralConfig(**base, max_position_embeddings=32768, sliding_window=32, tie_word_embeddings=False, attn_implementation="eager")))):
    if name not in names: continue
    t = tok("llama3"); m = fill(m, 0.05); m.save_pretrained(f"{out}/{name}")
    with torch.no_grad():
        rows = []
        for s in texts:
            i = t(s, add_special_tokens=False)["input_ids"][:200]
            lo = m(torch.tensor([i])).logits[0]
            rows.append({"text": s, "ids": i, "logits": lo[-1, :64].tolist(), "logp": torch.log_softmax(lo.double(), -1)[torch.arange(len(i) - 1), i[1:]].tolist()})
    write(name, "llama3", rows)
