"""Gradients and a loss curve of torch for the tiny BERT cross-encoder, dropout 0.

    python gen.py   # writes grads.safetensors, start.safetensors' values and golden.json
"""
import json, pathlib, torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForSequenceClassification

here = pathlib.Path(__file__).parent
torch.manual_seed(3)
c = BertConfig(vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=40,
               num_labels=1, hidden_dropout_prob=0, attention_probs_dropout_prob=0, attn_implementation="eager", initializer_range=0.2)
m = BertForSequenceClassification(c).train()
d = here / "tiny"
m.save_pretrained(d)
B, L, STEPS, SIZE = 8, 24, 200, 4
g = torch.Generator().manual_seed(5)
batches = []
for _ in range(10):
    lens = torch.randint(6, L + 1, (B,), generator=g)
    ids = torch.randint(5, 120, (B, L), generator=g)
    types = (torch.arange(L)[None] >= 5).long().expand(B, L).clone()
    real = torch.arange(L)[None] < lens[:, None]
    ids[~real] = 0
    types[~real] = 0
    batches.append((ids, types, lens, real))

def loss_of(b):
    z = m(input_ids=b[0], token_type_ids=b[1], attention_mask=b[3].long()).logits.view(-1, SIZE)
    return torch.nn.functional.cross_entropy(z, torch.zeros(len(z), dtype=torch.long))

loss_of(batches[0]).backward()
save_file({n.removeprefix("bert."): p.grad.clone() for n, p in m.named_parameters()}, here / "grads.safetensors")
decay = [p for n, p in m.named_parameters() if p.dim() > 1]
rest = [p for n, p in m.named_parameters() if p.dim() == 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0}], lr=5e-4)
warm = 20
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: s / warm if s < warm else (STEPS - s) / (STEPS - warm))
curve = []
for s in range(STEPS):
    opt.zero_grad()
    l = loss_of(batches[s % 10])
    l.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    sched.step()
    curve.append(l.item())
json.dump({"batches": [{"ids": b[0].flatten().tolist(), "types": b[1].flatten().tolist(), "lens": b[2].tolist()} for b in batches], "loss": curve}, open(here / "golden.json", "w"))
print(curve[:3], curve[-3:])
