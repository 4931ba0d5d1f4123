#!/usr/bin/env bash
# Trains the demo's reranker and filter again, by rag2's own commands, and judges both.
#   train.sh RAG2 PYTHON BIOASQ WORK OUT
# BIOASQ is a directory of BioASQ's golden files (*.json.gz), WORK holds what is made on
# the way, OUT gets reranker/ and filter/. PYTHON has numpy, tokenizers and safetensors.
# A run that was stopped goes on where it was. About an hour on two cores.
set -euo pipefail
[ -d "$3" ] || { echo "demo-weights: no directory $3: give BioASQ's golden files (*.json.gz) as BIOASQ=DIR" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
rag2=$(realpath "$1") python=$2 bioasq=$(realpath "$3") work=$4 out=$5
mkdir -p "$work" "$out"
work=$(realpath "$work") out=$(realpath "$out")
export RAG2_HOME=$work/home RAG2_ENGINE=native
step() { # step FILE COMMAND...: unless FILE is there
  if [ -e "$1" ]; then return; fi
  shift
  echo "+ rag2 $*"
  "$rag2" "$@"
}

# Snippets are the corpus; questions are divided into train, dev and test.
step "$work/data/test.jsonl" reranker bioasq "$bioasq"/*.json.gz --out "$work/data"
[ -e "$work/home/corpora/bioasq" ] || "$rag2" corpus add bioasq "$work/data/corpus.jsonl" --format medrag
"$rag2" index build bioasq
for part in train dev test; do
  step "$work/data/groups.$part.jsonl" reranker mine --pairs "$work/data/$part.jsonl" --out "$work/data/groups.$part.jsonl" --depth 60 --keep 16 --positives $([ $part = train ] && echo 12 || echo 3)
done
# The reranker takes at most three right texts of a question, so that none outweighs the others.
step "$work/data/groups.rerank.jsonl" reranker mine --pairs "$work/data/train.jsonl" --out "$work/data/groups.rerank.jsonl" --depth 60 --keep 16 --positives 3
step "$work/data/groups.steer.jsonl" reranker mine --pairs "$work/data/dev.jsonl" --out "$work/data/groups.steer.jsonl" --depth 60 --keep 16 --positives 1
head -60 "$work/data/groups.steer.jsonl" > "$work/data/groups.steer60.jsonl"

# Reranker: low-rank additions to MiniLM.
step "$work/reranker/adapter_model.safetensors" reranker train --groups "$work/data/groups.rerank.jsonl" --held-out "$work/data/groups.steer60.jsonl" \
  --base minilm --out "$work/reranker" --lora 16 --lora-alpha 32 --lr 1e-3 --warmup 30 --batch 8 --negatives 3 --max-tokens 80 --freeze-layers 2 \
  --epochs 2 --eval-every 60 --patience 5 --checkpoint-every 30 --weights-dtype F16
# How much the retrieval score counts beside it is chosen on dev.jsonl.
"$rag2" reranker eval --pairs "$work/data/test.jsonl" --held-out "$work/data/dev.jsonl" --cross-encoder "$work/reranker" --depth 30 | tee "$work/reranker.txt"

# Filter: a T5 with a vocabulary of its own, on BioASQ's relevance.
[ -e "$work/base/tokenizer.json" ] || "$python" "$here/base.py" "$work/data/train.jsonl" "${RAG2_MODELS_DIR:-$RAG2_CACHE/models}/minilm" "$work/base"
for part in train dev test; do
  step "$work/data/gold.$part.json" filter gold --groups "$work/data/groups.$part.jsonl" --out "$work/data/gold.$part.json" --random 0.5
done
step "$work/filter/model.safetensors" filter train --records "$work/data/gold.train.json" --held-out "$work/data/gold.dev.json" --base "$work/base" --out "$work/filter" \
  --lr 5e-4 --warmup 40 --batch 32 --epochs 1 --max-tokens 160 --eval-every 70 --checkpoint-every 20 --weights-dtype F16
"$rag2" filter eval --records "$work/data/gold.test.json" --held-out "$work/data/gold.dev.json" --judge "$work/filter" --out "$work/filter.html" | tee "$work/filter.txt"

for m in reranker filter; do
  mkdir -p "$out/$m"
  (cd "$work/$m" && cp -- *.json *.safetensors "$out/$m")
done
du -sh "$out/reranker" "$out/filter"
