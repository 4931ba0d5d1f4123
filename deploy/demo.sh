#!/usr/bin/env bash
# The main job from end to end: four demo corpora are read and indexed, one question
# is answered and its trace printed.
#   deploy/demo.sh RAG2 HOME QUESTION
# QUESTION is an id of testdata/demo/questions.jsonl or a question in words.
set -euo pipefail
rag2=$1 home=$2 question=$3
demo=$(cd "$(dirname "$0")/../testdata/demo" && pwd)
export RAG2_HOME=$home

add() { "$rag2" corpus add "$1" "$2" --replace; }
add pubmed "$demo/pubmed.xml"
add pmc "$demo/pmc.xml"
add cpg "$demo/guidelines.jsonl"
add textbooks "$demo/textbook"
"$rag2" index build
echo

# Reranker and filter are small ones trained for the demo; MODELS.md there says where the weight 25 and the threshold 0.6 come from.
llm=(--llm smollm2 --cross-encoder "$demo/reranker" --rerank-retrieval 25 --filter "$demo/filter" --filter-threshold 0.6 --rationale-tokens 256 --answer-tokens 256 --trace)
if [[ $question =~ ^demo-[0-9]+$ ]]; then
  "$rag2" ask --file "$demo/questions.jsonl" --id "$question" "${llm[@]}"
else
  "$rag2" ask "$question" "${llm[@]}"
fi
