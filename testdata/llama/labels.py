"""The perplexities of a label file, computed again by transformers from its token ids and texts alone.

    labels.py LABELS.jsonl MODEL_DIR N     N pairs evenly spread (LABELS or its .journal); MODEL_DIR holds a GGUF file

Prompts are made anew from the built-in templates and the model's chat template. Prints the largest relative difference of
PPL with and without the snippet and of ΔPPL's two terms; the exit status is 1 above 1e-3. Needs torch, transformers, gguf."""
import json, math, os, sys
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

path, model, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
prompts = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../pipeline/prompts")
head = open(f"{prompts}/rationale.txt").read().split("{{.Question}}")[0]
assert "Here is evidence from the medical literature:\n\n{{range" in open(f"{prompts}/evidence.txt").read(), "the template has changed"

questions, pairs = {}, []
for line in open(path):
    if not line.endswith("\n"): break  # a journal that is being written
    j = json.loads(line)
    j = j.get("question") if isinstance(j.get("question"), dict) else j.get("pair", j)
    if j.get("kind") == "question": questions[j["id"]] = j
    elif j.get("kind") == "pair": pairs.append(j)
pairs = [p for p in pairs if p["ppl"] is not None]
pairs = pairs[:: max(1, len(pairs) // n)][:n]

gguf = [f for f in os.listdir(model) if f.endswith(".gguf")][0]
t = AutoTokenizer.from_pretrained(model, gguf_file=gguf)
# transformers loses the GGUF's pre-tokenizer "smollm", which takes digits one by one.
t.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
m = AutoModelForCausalLM.from_pretrained(model, gguf_file=gguf, dtype=torch.float32).eval()

def ppl(prompt, target):
    text = t.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
    ids = t(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        z = torch.log_softmax(m(torch.tensor([ids + target])).logits[0, len(ids) - 1 : -1].double(), -1)
    return math.exp(-z[torch.arange(len(target)), target].mean().item())

worst, known = 0.0, {}
for p in pairs:
    q, s = questions[p["question_id"]], p["snippet"]
    base = (head + q["question"]).strip()
    evidence = f"Here is evidence from the medical literature:\n\n{s['title'] + ': ' if s.get('title') else ''}{s['text']}\n\n{base}".strip()
    if q["id"] not in known: known[q["id"]] = ppl(base, q["tokens"])
    for got, want in ((q["ppl"], known[q["id"]]), (p["ppl"], ppl(evidence, q["tokens"]))):
        worst = max(worst, abs(got - want) / want)
print(f"{len(pairs)} pairs of {len(known)} questions: perplexities within {worst:.2g} (relative)")
sys.exit(worst > 1e-3 or not pairs)
