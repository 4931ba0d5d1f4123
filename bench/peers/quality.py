"""What onnxruntime's dynamic int8 costs beside its own float32; see doc.go.

    quality.py MODEL_DIR PASSAGES.jsonl.gz QUESTIONS.jsonl.gz N

N passages, every question, as `rag2 bench quality` takes them. A sentence encoder with
mean pooling (all-MiniLM-L6-v2).
"""
import gzip
import json
import os
import sys

import numpy as np
import onnxruntime as ort
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import AutoModel, AutoTokenizer

model, passages, questions, n = sys.argv[1:5]
limit = 256
work = os.environ.get("WORK", "/tmp/rag2-bench")
os.makedirs(work, exist_ok=True)


def texts(path, most):
    with gzip.open(path, "rt") as f:
        rows = [json.loads(line) for line in f]
    return [" ".join(r[k] for k in ("title", "text", "content", "question") if r.get(k)).strip() for r in rows][:most]


class Wrap(torch.nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, i, a):
        return self.m(input_ids=i, attention_mask=a).last_hidden_state


f32, i8 = os.path.join(work, "quality.onnx"), os.path.join(work, "quality8.onnx")
m = AutoModel.from_pretrained(model, attn_implementation="eager").eval()
tok = AutoTokenizer.from_pretrained(model)
ids = torch.randint(1000, 30000, (2, 16))
axes = {0: "b", 1: "s"}
torch.onnx.export(Wrap(m), (ids, torch.ones_like(ids)), f32, input_names=["i", "a"], output_names=["o"], dynamic_axes={"i": axes, "a": axes}, opset_version=17, dynamo=False)


def encode(path, rows):
    s = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    out = np.zeros((len(rows), m.config.hidden_size), np.float32)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for at in range(0, len(order), 32):
        part = order[at:at + 32]
        b = tok([rows[i] for i in part], padding=True, truncation=True, max_length=limit, return_tensors="np")
        mask = b["attention_mask"].astype(np.int64)
        h = s.run(None, {"i": b["input_ids"].astype(np.int64), "a": mask})[0]
        v = (h * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        out[part] = v / np.linalg.norm(v, axis=1, keepdims=True)
    return out


p, q = texts(passages, int(n)), texts(questions, None)
exact = encode(f32, p), encode(f32, q)
best = np.argsort(-(exact[1] @ exact[0].T), 1)[:, :10]
for per_channel in (False, True):
    quantize_dynamic(f32, i8, weight_type=QuantType.QInt8, per_channel=per_channel)
    got = encode(i8, p), encode(i8, q)
    cos = np.concatenate([(x * y).sum(1) for x, y in zip(exact, got)])
    top = np.argsort(-(got[1] @ got[0].T), 1)[:, :10]
    recall = np.mean([len(set(x) & set(y)) / 10 for x, y in zip(best, top)])
    print(f"onnxruntime {ort.__version__}, dynamic int8{', weights by channel' if per_channel else ''}: cosine at least {cos.min():.5f}, {cos.mean():.5f} in the mean; recall@10 {recall:.4f}", flush=True)
