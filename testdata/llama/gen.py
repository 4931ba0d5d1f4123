"""Tiny random Llama-family models with what transformers computes, and goldens of SmolLM2.

  gen.py tiny              writes llama3/ (GQA, rope scaling, untied) and mistral/ (window 8, tied) here (committed)
  gen.py smollm2 DIR       greedy tokens and log-probabilities of 10 prompts (RAG2_SMOLLM2_GOLDENS)
"""
import json, os, sys, torch, shutil
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, AutoModelForCausalLM, AutoTokenizer
torch.manual_seed(5)
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|endoftext|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

def tiny():
    base = dict(vocab_size=700, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, rms_norm_eps=1e-5)
    models = {
        "llama3": LlamaForCausalLM(LlamaConfig(**base, tie_word_embeddings=False, rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})),
        "mistral": MistralForCausalLM(MistralConfig(**base, sliding_window=8, tie_word_embeddings=True, attn_implementation="eager")),
    }
    for name, m in models.items():
        m = m.eval()
        with torch.no_grad():
            for n, p in m.named_parameters():
                p.copy_(torch.randn_like(p) * 0.15)
                if "norm" in n: p.add_(1)
            m.tie_weights()
        m.save_pretrained(name)
        shutil.copy("../tokenizer/llama3.json", f"{name}/tokenizer.json")
        json.dump({"chat_template": TEMPLATE, "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, open(f"{name}/tokenizer_config.json", "w"))
        g = []
        for n in (1, 5, 40, 150):
            ids = torch.randint(0, 700, (1, n))
            with torch.no_grad():
                lo = m(ids).logits[0]
                lp = torch.log_softmax(lo.double(), -1)
                nxt = torch.randint(0, 700, (n,))
                greedy = m.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)[0, n:]
            g.append({"ids": ids[0].tolist(), "logits": lo[-1].tolist()[:32], "targets": nxt.tolist(), "logp": lp[torch.arange(n), nxt].tolist(), "greedy": greedy.tolist()})
        json.dump(g, open(f"{name}/golden.json", "w"))

PROMPTS = ["What is the first-line drug for type 2 diabetes?", "Explain how ACE inhibitors lower blood pressure.", "Name three causes of microcytic anaemia.",
  "A 60-year-old man has crushing chest pain. What should be done first?", "What does the sinoatrial node do?", "List the symptoms of hypothyroidism.",
  "Why does lithium cause polyuria?", "Which vitamin is deficient in scurvy?", "How is tuberculosis transmitted?", "What is the function of haemoglobin?"]

def smollm2(d):
    f = [x for x in os.listdir(d) if x.endswith(".gguf")][0]
    t = AutoTokenizer.from_pretrained(d, gguf_file=f); m = AutoModelForCausalLM.from_pretrained(d, gguf_file=f, dtype=torch.float32).eval()
    for p in PROMPTS:
        text = t.apply_chat_template([{"role": "user", "content": p}], tokenize=False, add_generation_prompt=True)
        ids = t(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            out = m.generate(ids, max_new_tokens=64, do_sample=False, repetition_penalty=1.0, pad_token_id=0)[0]
            new = out[ids.shape[1]:]
            lp = torch.log_softmax(m(out[None]).logits[0].double(), -1)
        lps = [lp[ids.shape[1] - 1 + i, k].item() for i, k in enumerate(new)]
        print(json.dumps({"prompt": p, "prompt_ids": ids[0].tolist(), "tokens": new.tolist(), "logp": lps}))

tiny() if sys.argv[1] == "tiny" else smollm2(sys.argv[2])
