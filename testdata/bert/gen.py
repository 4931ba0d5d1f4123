"""A tiny random BERT with a classification head, and what transformers computes with it.

  gen.py tiny                          writes tiny/ and tiny/golden.json (committed)
  gen.py minilm DIR TEXTS.jsonl.gz N   mean-pooled vectors of N passages as JSON lines (RAG2_MINILM_GOLDENS)
"""
import gzip, json, sys, torch, shutil
from transformers import BertConfig, BertForSequenceClassification, BertModel, AutoTokenizer, PreTrainedTokenizerFast
torch.manual_seed(11)

def tiny():
    t = PreTrainedTokenizerFast(tokenizer_file="../tokenizer/wordpiece.json", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    c = BertConfig(vocab_size=len(t), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64, num_labels=1)
    m = BertForSequenceClassification(c).eval()
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.randn_like(p) * 0.2)
        for n, p in m.named_parameters():
            if n.endswith("LayerNorm.weight"): p.add_(1)
    m.save_pretrained("tiny"); shutil.copy("../tokenizer/wordpiece.json", "tiny/tokenizer.json")
    texts = ["The patient's haemoglobin fell to 7.2 g/dL.", "rare", "", "Naïve café crème brûlée, Sjögren's syndrome " * 12, "we've seen it"]
    g = {"texts": texts, "cls": [], "mean": [], "pairs": [], "logits": []}
    with torch.no_grad():
        for s in texts:
            e = t(s, return_tensors="pt", truncation=True, max_length=64)
            h = m.bert(input_ids=e["input_ids"], token_type_ids=torch.zeros_like(e["input_ids"])).last_hidden_state[0]
            g["cls"].append(h[0].tolist()); g["mean"].append(h.mean(0).tolist())
        for a in texts:
            for b in texts[:2] + texts[4:]:  # transformers reads an empty second text as no pair
                e = t(a, b, return_tensors="pt", truncation="longest_first", max_length=64)
                g["pairs"].append([a, b]); g["logits"].append(m(**e).logits[0, 0].item())
    json.dump(g, open("tiny/golden.json", "w"))

def minilm(d, f, n):
    t = AutoTokenizer.from_pretrained(d); m = BertModel.from_pretrained(d).eval()
    with torch.no_grad():
        for i, line in zip(range(n), gzip.open(f, "rt")):
            o = json.loads(line); s = o.get("text") or o.get("contents") or " ".join(str(v) for v in o.values())
            e = t(s, return_tensors="pt", truncation=True, max_length=512)
            print(json.dumps({"text": s, "vec": m(**e).last_hidden_state[0].mean(0).tolist()}))

if sys.argv[1] == "tiny": tiny()
else: minilm(sys.argv[2], sys.argv[3], int(sys.argv[4]))
