"""Unigram (SentencePiece) and SentencePiece-BPE vocabularies with goldens of tokenizers and sentencepiece.

  unigram.py small           unigram.json (+ spiece.model of the same), nmt_nfkc.model.gz, spbpe.json and goldens (committed)
  unigram.py train OUT TEXTS.jsonl   OUT/unigram/{spiece.model,tokenizer.json}: 8,000 pieces with nmt_nfkc, and
                                     OUT/llama3/tokenizer.json: byte-level BPE of 8,000 tokens with Llama-3's pre-tokenizer
  unigram.py ids OUT TEXTS.jsonl > F ids of every text by tokenizers and sentencepiece, with the seconds they took on stderr
                                     (RAG2_TOKENIZER_GOLDENS=F RAG2_TOKENIZER_DIR=OUT go test ./models/tokenizer -run Parity)
"""
import gzip, json, os, re, shutil, sys, tempfile
here = os.path.dirname(os.path.abspath(__file__))
exec(open(os.path.join(here, "gen.py")).read().split("if sys.argv[1]")[0])
import sentencepiece as spm
from tokenizers import AddedToken, Regex
from transformers import T5Tokenizer

# Rules of a small normalisation map: source and target code points.
RULES = [("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", ""), ("\u00ad", ""), ("\ufb01", "fi"), ("\u00bd", "1\u20442"), ("\u2122", "TM"),
         ("e\u0301", "\u00e9"), ("a\u0308", "\u00e4"), ("\u216b", "XII"), ("\u2460", "1"), ("\u017f", "s"), ("\u212b", "\u00c5"), ("\ufdfa", "\u0635\u0644\u0649"), ("\x01", ""), ("\x7f", "")]

def corpus():
    demo = os.path.join(here, "..", "demo")
    out = [l.strip() for l in re.sub(r"<[^>]+>", " ", open(f"{demo}/pubmed.xml").read()).split("\n") if l.strip()]
    return out + [t for t in texts() if "\x00" not in t and "\n" not in t]

def train(prefix, lines, size, **kw):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("\n".join(lines)); f.flush()
        spm.SentencePieceTrainer.train(input=f.name, model_prefix=prefix, vocab_size=size, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.9995, num_threads=2, minloglevel=2, **kw)
    os.remove(prefix + ".vocab")

def convert(model):
    """tokenizer.json as transformers makes it of a T5 spiece.model, with its 100 extra ids."""
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(model, f"{d}/spiece.model")
        return T5Tokenizer.from_pretrained(d)

def golden(name, encode, extra=()):
    with open(name, "w") as f:
        for s in texts() + list(extra):
            f.write(json.dumps({"text": s, "ids": encode(s)}) + "\n")

EXTRA = ["A\u030a x", "e\u0301e\u0301", "\u212b\u0301", "\r\n\r\n", "a\u0308\u0301b", "  \u00a0 x", "\u2581under\u2581score \u2581", "\ud55c\uad6d", "\u1112\u1161\u11ab", "x\u200by", "[HELPFUL] is text"]

def small():
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for a, b in RULES:
            f.write(" ".join(f"{ord(c):x}" for c in a) + "\t" + " ".join(f"{ord(c):x}" for c in b) + "\n")
        f.flush()
        train("unigram", corpus(), 800, normalization_rule_tsv=f.name)
    t = convert("unigram.model")
    t.add_tokens(["[HELPFUL]", "[NOT_HELPFUL]"])
    t.backend_tokenizer.save("unigram.json", pretty=False)
    j = json.load(open("unigram.json")); j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] not in ("[HELPFUL]", "[NOT_HELPFUL]")]
    plain = Tokenizer.from_str(json.dumps(j))
    golden("unigram.golden.jsonl", lambda s: plain.encode(s, add_special_tokens=False).ids, EXTRA)
    p = spm.SentencePieceProcessor(model_file="unigram.model")
    golden("spiece.golden.jsonl", p.encode, EXTRA)
    os.replace("unigram.model", "spiece.model")
    train("nmt_nfkc", corpus(), 800, normalization_rule_name="nmt_nfkc")
    p = spm.SentencePieceProcessor(model_file="nmt_nfkc.model")
    golden("nmt_nfkc.golden.jsonl", p.encode, EXTRA)
    with open("nmt_nfkc.model", "rb") as f, gzip.GzipFile("nmt_nfkc.model.gz", "wb", 9, mtime=0) as o: o.write(f.read())
    os.remove("nmt_nfkc.model")
    # Llama-2 and Mistral: BPE over characters with byte fallback, words marked by U+2581.
    b = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    b.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    b.train_from_iterator([t for t in corpus() if len(t) < 400], trainers.BpeTrainer(vocab_size=900, special_tokens=special, limit_alphabet=90, show_progress=False, max_token_length=12))
    b.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    j = json.loads(b.to_str()); j["added_tokens"] = [a for a in j["added_tokens"] if a["id"] < 3]
    # No token of the real vocabularies spans a space.
    bad = {k for k in j["model"]["vocab"] if re.search("[^▁]▁", k)}
    keep = [m for m in j["model"]["merges"] if not ({m[0], m[1], m[0] + m[1]} & bad)]
    names = [k for k, _ in sorted(j["model"]["vocab"].items(), key=lambda x: x[1]) if k not in bad]
    j["model"]["vocab"] = {k: i for i, k in enumerate(names)}; j["model"]["merges"] = keep
    j["post_processor"] = json.loads(Tokenizer.from_str(json.dumps(j)).to_str())["post_processor"]
    b = Tokenizer.from_str(json.dumps(j))
    b.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    b.save("spbpe.json", pretty=False)
    j = json.loads(b.to_str()); j["added_tokens"] = []
    plain = Tokenizer.from_str(json.dumps(j))
    golden("spbpe.golden.jsonl", lambda s: plain.encode(s, add_special_tokens=False).ids, EXTRA)

def lines(path):
    for l in open(path): yield json.loads(l)["text"]

def big(out, path):
    os.makedirs(f"{out}/unigram", exist_ok=True); os.makedirs(f"{out}/llama3", exist_ok=True)
    sample = [" ".join(t.split())[:2000] for i, t in enumerate(lines(path)) if i % 4 == 0]
    train(f"{out}/unigram/m", sample, 8000, normalization_rule_name="nmt_nfkc", input_sentence_size=100000, shuffle_input_sentence=True)
    os.replace(f"{out}/unigram/m.model", f"{out}/unigram/spiece.model")
    convert(f"{out}/unigram/spiece.model").backend_tokenizer.save(f"{out}/unigram/tokenizer.json", pretty=False)
    b = Tokenizer.from_file(os.path.join(here, "llama3.json")); pre = b.pre_tokenizer
    b = Tokenizer(models.BPE(ignore_merges=True)); b.pre_tokenizer = pre; b.decoder = decoders.ByteLevel()
    b.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=8000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False))
    b.save(f"{out}/llama3/tokenizer.json", pretty=False)

def ids(out, path):
    import time
    toks = {}
    for k in ("unigram", "llama3"):
        j = json.load(open(f"{out}/{k}/tokenizer.json"))
        j["added_tokens"] = [a for a in j["added_tokens"] if k == "unigram" and a["content"] == "<unk>"]  # texts never hold control tokens
        if k == "unigram": j["post_processor"] = None
        t = Tokenizer.from_str(json.dumps(j)); toks[k] = lambda s, t=t: t.encode(s, add_special_tokens=False).ids
    p = spm.SentencePieceProcessor(model_file=f"{out}/unigram/spiece.model"); toks["spiece"] = p.encode
    all = list(lines(path))
    for k, f in toks.items():
        start = time.time(); got = [f(s) for s in all]
        print(f"{k}: {len(all)} texts, {sum(len(s.encode()) for s in all) / 1e6:.1f} MB in {time.time() - start:.1f} s", file=sys.stderr)
        for s, i in zip(all, got): print(json.dumps({"model": k, "text": s, "ids": i}))

if sys.argv[1] == "small": os.chdir(here); small()
elif sys.argv[1] == "train": big(sys.argv[2], sys.argv[3])
else: ids(sys.argv[2], sys.argv[3])
