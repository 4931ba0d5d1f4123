"""torch's side of bench/training: for each line "bert|t5 BATCH LENGTH" some training steps, and their cost a step as JSON."""
import json, sys, time, torch
from transformers import AutoModelForSequenceClassification, T5ForConditionalGeneration

bert, t5, steps, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
torch.manual_seed(1)
models = {}

def model(name):
    if name not in models:
        if name == "bert":
            m = AutoModelForSequenceClassification.from_pretrained(bert, num_labels=1, dtype=torch.float32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
            for p in m.bert.embeddings.parameters(): p.requires_grad_(False)
        else:
            m = T5ForConditionalGeneration.from_pretrained(t5, dtype=torch.float32, dropout_rate=0.0)
        m.train()
        models[name] = m, torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-5, weight_decay=0)
    return models[name]

for line in sys.stdin:
    name, b, l = line.split()
    b, l = int(b), int(l)
    m, opt = model(name)
    ids = torch.randint(10, m.config.vocab_size, (b, l))
    lens = l - torch.randint(0, l // 4, (b,))
    mask = (torch.arange(l)[None] < lens[:, None]).long()
    y = torch.arange(b) % 2
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        opt.zero_grad()
        if name == "bert":
            z = m(input_ids=ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids)).logits.view(-1, 4)
            loss = torch.nn.functional.cross_entropy(z, torch.zeros(len(z), dtype=torch.long))
        else:
            z = m(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.zeros(b, 1, dtype=torch.long)).logits[:, 0]
            loss = torch.nn.functional.cross_entropy(z, 100 + y)
        loss.backward()
        opt.step()
    print(json.dumps({"wall": (time.perf_counter() - wall) / steps, "cpu": (time.process_time() - cpu) / steps}), flush=True)
