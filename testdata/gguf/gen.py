"""GGUF files of tiny models in the layout of llama.cpp's converter, written by the gguf package (committed):

  gen.py    t5.gguf (../t5/flan with the vocabulary of ../tokenizer/spiece.model), mistral.gguf (../llama/mistral with a
            SentencePiece BPE vocabulary), qwen2.gguf (a new model); and what sentencepiece and transformers compute with them
"""
import json, os, tempfile, numpy as np, torch, gguf
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM
here = os.path.dirname(os.path.abspath(__file__)); os.chdir(here)
exec(open("../tokenizer/gen.py").read().split("if sys.argv[1]")[0])

def permute(w, heads): return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)

def pieces(model):
    p = pb.ModelProto(); p.ParseFromString(model)
    return p, [x.piece for x in p.pieces], [x.score for x in p.pieces], [x.type for x in p.pieces]

def vocabulary(w, kind, tokens, scores, types):
    w.add_tokenizer_model(kind); w.add_token_list(tokens); w.add_token_scores(scores); w.add_token_types(types)

def finish(w):
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

def name(arch, layers, hf):
    m = gguf.get_tensor_name_map(arch, layers).get_name(hf, try_suffixes=(".weight", ".bias"))
    assert m, hf
    return m

# T5
c = json.load(open("../t5/flan/config.json"))
w = gguf.GGUFWriter("t5.gguf", "t5")
w.add_context_length(512); w.add_embedding_length(c["d_model"]); w.add_feed_forward_length(c["d_ff"]); w.add_block_count(c["num_layers"]); w.add_decoder_block_count(c["num_decoder_layers"])
w.add_head_count(c["num_heads"]); w.add_key_length(c["d_kv"]); w.add_value_length(c["d_kv"]); w.add_layer_norm_eps(c["layer_norm_epsilon"]); w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
w.add_relative_attn_buckets_count(c["relative_attention_num_buckets"]); w.add_decoder_start_token_id(0)
raw = open("../tokenizer/spiece.model", "rb").read(); p, tokens, scores, types = pieces(raw)
extra = c["vocab_size"] - len(tokens)
tokens += [f"<extra_id_{extra - 1 - i}>" for i in range(extra)]; scores += [-1000.0] * extra; types += [4] * extra
vocabulary(w, "t5", tokens, scores, types)
w.add_add_space_prefix(p.normalizer_spec.add_dummy_prefix); w.add_remove_extra_whitespaces(p.normalizer_spec.remove_extra_whitespaces); w.add_precompiled_charsmap(p.normalizer_spec.precompiled_charsmap)
w.add_eos_token_id(1); w.add_pad_token_id(0); w.add_unk_token_id(2); w.add_add_bos_token(False); w.add_add_eos_token(True)
for k, v in load_file("../t5/flan/model.safetensors").items(): w.add_tensor(name(gguf.MODEL_ARCH.T5, c["num_layers"], k), v.numpy())
finish(w)

# Mistral with a SentencePiece BPE vocabulary of 700 pieces
lines = [l for t in texts() if "\x00" not in t and len(t) < 300 for l in t.split("\n") if l.strip()]
with tempfile.TemporaryDirectory() as d:
    open(d + "/t.txt", "w").write("\n".join(lines))
    spm.SentencePieceTrainer.train(input=d + "/t.txt", model_prefix=d + "/m", vocab_size=700, model_type="bpe", byte_fallback=True, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, character_coverage=0.99, bos_id=1, eos_id=2, unk_id=0, minloglevel=2)
    raw = open(d + "/m.model", "rb").read()
p, tokens, scores, types = pieces(raw); sp = spm.SentencePieceProcessor(model_proto=raw)
with open("spm.golden.jsonl", "w") as f:
    for s in texts(): f.write(json.dumps({"text": s, "ids": sp.encode(s)}) + "\n")
c = json.load(open("../llama/mistral/config.json"))
w = gguf.GGUFWriter("mistral.gguf", "llama")
def llama(w, c):
    w.add_context_length(c["max_position_embeddings"]); w.add_embedding_length(c["hidden_size"]); w.add_block_count(c["num_hidden_layers"]); w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"]); w.add_head_count_kv(c["num_key_value_heads"]); w.add_layer_norm_rms_eps(c["rms_norm_eps"]); w.add_rope_freq_base(10000.0)
llama(w, c); w.add_sliding_window(c["sliding_window"])
vocabulary(w, "llama", tokens, scores, types)
w.add_bos_token_id(1); w.add_eos_token_id(2); w.add_unk_token_id(0)
for k, v in load_file("../llama/mistral/model.safetensors").items():
    v = v.numpy()
    if "q_proj" in k: v = permute(v, c["num_attention_heads"])
    if "k_proj" in k: v = permute(v, c["num_key_value_heads"])
    w.add_tensor(name(gguf.MODEL_ARCH.LLAMA, 2, k), v)
finish(w)

# Qwen2
torch.manual_seed(9)
q = Qwen2Config(vocab_size=700, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=10000.0)
m = Qwen2ForCausalLM(q).eval()
with torch.no_grad():
    for n, t in m.named_parameters():
        t.copy_(torch.randn_like(t) * 0.2)
        if "norm" in n: t.add_(1)
    m.tie_weights()
    g = []
    for n in (1, 40):
        ids = torch.randint(0, 700, (1, n)); lo = m(ids).logits[0]
        g.append({"ids": ids[0].tolist(), "logits": lo[-1].tolist()[:64]})
json.dump(g, open("qwen2.golden.json", "w"))
m.save_pretrained("qwen2"); os.remove("qwen2/generation_config.json")
w = gguf.GGUFWriter("qwen2.gguf", "qwen2")
llama(w, q.to_dict())
j = json.load(open("../tokenizer/qwen2.json")); names = sorted(j["model"]["vocab"], key=j["model"]["vocab"].get)
w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre("qwen2"); w.add_token_list(names); w.add_token_types([3 if n.startswith("<|") else 1 for n in names])
w.add_token_merges([" ".join(x) if isinstance(x, list) else x for x in j["model"]["merges"]]); w.add_eos_token_id(0)
for k, v in m.state_dict().items():
    if k != "lm_head.weight": w.add_tensor(name(gguf.MODEL_ARCH.QWEN2, 2, k), v.numpy())
finish(w)
