"""Gradients and loss curves of torch for two tiny T5 filters, dropout 0.

    python gen_t5.py   # writes t5/ (gated GELU, head of its own) and t5tied/ (gated GELU, tied): model, gradients, golden.json
"""
import json, pathlib, torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration

here = pathlib.Path(__file__).parent
torch.set_num_threads(1)
LABELS, WEIGHT = [119, 118], [0.75, 1.5]  # tokens and weights of not helpful, helpful
B, L, STEPS, WARM = 8, 24, 200, 20

def make(name, tied, seed):
    torch.manual_seed(seed)
    c = T5Config(vocab_size=120, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, dropout_rate=0, feed_forward_proj="gated-gelu",
                 tie_word_embeddings=tied, decoder_start_token_id=0, attn_implementation="eager")
    m = T5ForConditionalGeneration(c).train()
    if not tied:
        m.lm_head.weight = torch.nn.Parameter(torch.empty(120, 32))
    with torch.no_grad():
        for n, p in m.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2)
            if "layer_norm" in n: p.add_(1)
    d = here / name
    d.mkdir(exist_ok=True)
    keep = lambda n: "embed_tokens" not in n and not (tied and n == "lm_head.weight")
    save_file({n: p.detach().clone().contiguous() for n, p in m.state_dict().items() if keep(n)}, d / "model.safetensors", metadata={"format": "pt"})
    json.dump(dict(architectures=["T5ForConditionalGeneration"], model_type="t5", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, vocab_size=120, relative_attention_num_buckets=32,
                   relative_attention_max_distance=128, layer_norm_epsilon=1e-6, feed_forward_proj="gated-gelu", tie_word_embeddings=tied, is_encoder_decoder=True, decoder_start_token_id=0, eos_token_id=1, pad_token_id=0), open(d / "config.json", "w"), indent=1)
    g = torch.Generator().manual_seed(seed + 1)
    batches = []
    for _ in range(10):
        lens = torch.randint(6, L + 1, (B,), generator=g)
        ids = torch.randint(3, 118, (B, L), generator=g)
        real = torch.arange(L)[None] < lens[:, None]
        ids[~real] = 0
        y = torch.randint(0, 2, (B,), generator=g)
        batches.append((ids, lens, y, real))

    def loss_of(b):
        out = m(input_ids=b[0], attention_mask=b[3].long(), decoder_input_ids=torch.zeros(B, 1, dtype=torch.long))
        w = torch.ones(120)
        w[LABELS[0]], w[LABELS[1]] = WEIGHT
        return torch.nn.functional.cross_entropy(out.logits[:, 0], torch.tensor(LABELS)[b[2]], weight=w)

    loss_of(batches[0]).backward()
    save_file({n: p.grad.clone() for n, p in m.named_parameters() if keep(n) and p.grad is not None}, d / "grads.safetensors")
    decay = [p for p in m.parameters() if p.dim() > 1]
    rest = [p for p in m.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0}], lr=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: s / WARM if s < WARM else (STEPS - s) / (STEPS - WARM))
    curve = []
    for s in range(STEPS):
        opt.zero_grad()
        l = loss_of(batches[s % 10])
        l.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        sched.step()
        curve.append(l.item())
    json.dump({"labels": LABELS, "weight": WEIGHT, "batches": [{"ids": b[0].flatten().tolist(), "lens": b[1].tolist(), "class": b[2].tolist()} for b in batches], "loss": curve}, open(d / "golden.json", "w"))
    print(name, curve[:3], curve[-3:])

make("t5", False, 7)
make("t5tied", True, 17)
