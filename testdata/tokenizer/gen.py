"""Writes goldens for the tokenizers, made by Hugging Face tokenizers/transformers.

  gen.py small                        small vocabularies trained on text below, with goldens (committed)
  gen.py parity MODELS TEXTS... > F   ids of every text of JSONL files for MODELS/minilm and MODELS/smollm2
                                      (RAG2_TOKENIZER_GOLDENS=F go test ./models/tokenizer)
"""
import gzip, json, os, sys, random
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, decoders, processors, trainers

TEXT = """The patient's haemoglobin fell to 7.2 g/dL; they'll be transfused. We've seen it, I'm sure, he'd agree.
Metformin-associated lactic acidosis (MALA) is rare: 3-10 per 100,000 patient-years in 2023!
Naïve café crème brûlée, Sjögren's syndrome, Ménière, Guillain–Barré, β-blockers & α₁-antitrypsin, 5′-UTR, 10⁻³ mol·L⁻¹.
İstanbul STRASSE straße ﬁne Ⅻ ½ ① ſ DON'T can'T we'Ll
日本語のテキスト 中文 한국어 العربية עברית हिन्दी ไทย русский текст
emoji 😀👩‍⚕️🇬🇧 and zero​width joiners \u00ad soft\u00adhyphen \u200b \ufeff
tabs\tand\r\nnew lines\n\n\n   many     spaces   \n \t mixed   \u00a0nbsp\u3000ideographic
[SEP] [CLS] <|im_start|> <|endoftext|> [MASK]
deoxyribonucleicaciddeoxyribonucleicaciddeoxyribonucleicaciddeoxyribonucleicaciddeoxyribonucleicacid!!!???...---___***
control\x00chars\x01\x07\x1f\x7f end
1234567890 12 345 6789 0.001 -40°C 37°C ±2% ≤5 ≥10 €5 £3 $2 #hash @at ~tilde ^caret `tick` {brace} |pipe| \\back/
x""".split("\n") + ["", " ", "\n", "a" * 101, "a" * 100, "ab " * 40, "GATTACA" * 60, "é" * 70, "e\u0301" * 5, "ﷺ", "\U0001d54f math", "don't 'tis 's", " leading", "trailing ", "  two  ", "\u2028line\u2029para\x85nel"]

def texts():
    r = random.Random(3)
    out = list(TEXT)
    words = [w for t in TEXT for w in t.split(" ")]
    for _ in range(200):
        out.append("".join(r.choice(words) + r.choice([" ", "", "\n", "  ", ", ", "7"]) for _ in range(r.randint(1, 14))))
    return out

def small():
    corpus = [t for t in texts() if "\x00" not in t] * 3
    w = Tokenizer(models.WordPiece(unk_token="[UNK]")); w.normalizer = normalizers.BertNormalizer(); w.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    w.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    w.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    kinds = {"wordpiece": w}
    from tokenizers import Regex
    L3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for name, pre in {"smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
                      "llama3": [pre_tokenizers.Split(Regex(L3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
                      "qwen2": [pre_tokenizers.Split(Regex(L3.replace("{1,3}", "")), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]}.items():
        b = Tokenizer(models.BPE(ignore_merges=name == "llama3")); b.pre_tokenizer = pre_tokenizers.Sequence(pre); b.decoder = decoders.ByteLevel()
        b.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>", "<|im_start|>"], show_progress=False))
        kinds[name] = b
    for name, t in kinds.items():
        t.save(f"{name}.json", pretty=False)
        # Texts never contain control tokens for us, so they are not added tokens here.
        j = json.loads(t.to_str()); j["added_tokens"] = []; t = Tokenizer.from_str(json.dumps(j))
        with open(f"{name}.golden.jsonl", "w") as f:
            for s in texts():
                e = t.encode(s, add_special_tokens=False)
                f.write(json.dumps({"text": s, "ids": e.ids}) + "\n")
            if name == "wordpiece":
                r = random.Random(5)
                for _ in range(60):
                    a, b, n = r.choice(TEXT), r.choice(TEXT), r.randint(4, 40)
                    t.enable_truncation(n, strategy="longest_first")
                    e = t.encode(a, b)
                    f.write(json.dumps({"text": a, "pair": b, "max": n, "ids": e.ids, "types": e.type_ids}) + "\n")

def parity(models_dir, files):
    from transformers import AutoTokenizer
    toks = {"minilm": Tokenizer.from_file(f"{models_dir}/minilm/tokenizer.json"),
            "smollm2": AutoTokenizer.from_pretrained(f"{models_dir}/smollm2", gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf").backend_tokenizer}
    # transformers drops the "smollm" pre-tokenizer that the GGUF names; the model was trained with it.
    toks["smollm2"].pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    for t in toks.values(): t.no_truncation(); t.no_padding()
    for fn in files:
        for line in gzip.open(fn, "rt"):
            o = json.loads(line)
            s = " ".join(str(v) for v in o.values()) if isinstance(o, dict) else str(o)
            for k, t in toks.items():
                print(json.dumps({"model": k, "text": s, "ids": t.encode(s, add_special_tokens=False).ids}))

if sys.argv[1] == "small": small()
else: parity(sys.argv[2], sys.argv[3:])
