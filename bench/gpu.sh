#!/usr/bin/env bash
# Every model on a GPU: compared with native, and measured; one JSON and one table, in under 8 minutes.
#   bench/gpu.sh [OUT.json]     xla:cuda when there is an NVIDIA GPU and a CUDA plugin (python3's site-packages have one after
#                               `pip install "jax-cuda12-plugin[with-cuda]"`), else xla:cpu with small shapes: its JSON says
#                               "proves: code path" and leaves the cells of the GPU empty
#   RAG2_GPU_ENGINE, RAG2_GPU_TMP    another engine; where checkpoints are written (25 GB for a GPU, 80 MB else), and removed
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-bench/gpu.json}
engine=${RAG2_GPU_ENGINE:-}
if [ -z "$engine" ]; then
  engine=xla:cpu
  if [ -e /dev/nvidia0 ]; then engine=xla:cuda; fi
fi
tmp=$(mktemp -d "${RAG2_GPU_TMP:-${TMPDIR:-/tmp}}/rag2-gpu.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/gpu" ./bench/gpu
if [ "${engine#xla:cuda}" != "$engine" ]; then
  python3 testdata/fullsize.py "$tmp/check" 2
  python3 testdata/fullsize.py "$tmp/full" 32
  "$tmp/gpu" -engine "$engine" -models "$tmp/full" -check "$tmp/check" -o "$out"
else
  python3 testdata/fullsize.py "$tmp/small" 2 small
  "$tmp/gpu" -engine "$engine" -models "$tmp/small" -check "$tmp/small" -small -each 500ms -o "$out"
fi
