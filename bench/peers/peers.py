"""Contestants of other projects; see doc.go.

    peers.py ENGINE MODEL_DIR      reads lines "BATCH LENGTH", answers with seconds

ENGINE is torch, ort or ort8 (onnxruntime, float32 or dynamic int8). ONNX files are
kept beside the model.
"""
import json
import os
import sys
import time

import numpy as np


def bert(eager):
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    if T5:
        from transformers import T5EncoderModel

        return T5EncoderModel.from_pretrained(MODEL, dtype=torch.float32).eval()
    cfg = BertConfig.from_pretrained(MODEL)
    cfg._attn_implementation = "eager" if eager else "sdpa"
    return BertModel.from_pretrained(MODEL, config=cfg, add_pooling_layer=False).eval()


def onnx_file(int8):
    path = os.path.join(MODEL, "bert8.onnx" if int8 else "bert.onnx")
    if os.path.exists(path):
        return path
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(onnx_file(False), path, weight_type=QuantType.QInt8)
        return path
    import torch

    class Wrap(torch.nn.Module):
        def __init__(self, m):
            super().__init__()
            self.m = m

        def forward(self, i, a):
            return self.m(input_ids=i, attention_mask=a).last_hidden_state

    ids = torch.randint(1000, 30000, (2, 16))
    axes = {0: "b", 1: "s"}
    torch.onnx.export(Wrap(bert(True)), (ids, torch.ones_like(ids)), path, input_names=["i", "a"], output_names=["o"],
                      dynamic_axes={"i": axes, "a": axes}, opset_version=17, dynamo=False)
    return path


def contestant(engine):
    if engine == "torch":
        import torch

        m = bert(False)

        def run(b, s):
            ids = torch.from_numpy(np.random.randint(1000, 30000, (b, s)))
            with torch.inference_mode():
                t = time.perf_counter()
                m(input_ids=ids)
                return time.perf_counter() - t

        return f"torch {torch.__version__}", run
    import onnxruntime as ort

    so = ort.SessionOptions()
    so.intra_op_num_threads = int(os.environ.get("THREADS", "2"))
    so.add_session_config_entry("session.intra_op.allow_spinning", os.environ.get("SPIN", "1"))
    s = ort.InferenceSession(onnx_file(engine == "ort8"), so, providers=["CPUExecutionProvider"])

    def run(b, n):
        feed = {"i": np.random.randint(1000, 30000, (b, n)), "a": np.ones((b, n), np.int64)}
        t = time.perf_counter()
        s.run(None, feed)
        return time.perf_counter() - t

    return f"onnxruntime {ort.__version__}", run


ENGINE, MODEL = sys.argv[1:3]
T5 = json.load(open(os.path.join(MODEL, "config.json")))["model_type"] == "t5"
os.environ.pop("OPENBLAS_CORETYPE", None)
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # libraries print to stdout
name, run = contestant(ENGINE)
print("ready", name, file=out, flush=True)
for line in sys.stdin:
    try:
        b, n = map(int, line.split())
        print(run(b, n), file=out, flush=True)
    except Exception as e:
        print("error", e, file=out, flush=True)
