#!/usr/bin/env bash
# Builds libtokenizers.a, the Rust library behind daulet/tokenizers, from the Go module's source, for
# `go build -tags daulet` (the oracle of package models/tokenizer; no other build needs it):
#   tokenizers.sh MODULE_DIR    into $RAG2_CACHE/tokenizers
# The module takes tiktoken-rs from a git branch; the registry's release of the same version replaces it.
set -euo pipefail
cache=${RAG2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rag2}/tokenizers
if [ -f "$cache/libtokenizers.a" ]; then echo "tokenizers: already in $cache"; exit 0; fi
command -v cargo >/dev/null || { echo "tokenizers: cargo is not there; install Rust" >&2; exit 1; }
echo "tokenizers: building libtokenizers.a into $cache (a few minutes)"
mkdir -p "$cache"
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cp -r "$1/Cargo.toml" "$1/src" "$1/benches" "$tmp/"
chmod -R u+w "$tmp"
sed -i 's|^tiktoken-rs = .*|tiktoken-rs = "=0.9.1"|' "$tmp/Cargo.toml"
(cd "$tmp" && cargo build --release --quiet)
mv "$tmp/target/release/libtokenizers.a" "$cache/libtokenizers.a.part"
mv "$cache/libtokenizers.a.part" "$cache/libtokenizers.a"
