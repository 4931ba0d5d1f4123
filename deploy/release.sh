#!/usr/bin/env bash
# Builds what is released for Linux, into dist/:
#   rag2-static    one static binary, no XLA: any Linux of this architecture
#   rag2           with XLA (cgo): GPUs and XLA:CPU; its plugin is found at run time, see `rag2 doctor`
#   NEEDS          the lowest glibc of rag2, read from the binary, and what else it needs
#   SHA256SUMS
# The glibc of the machine that builds is what counts: for older hosts build in deploy/Dockerfile's first stage.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(git describe --tags --always --dirty 2>/dev/null || echo dev)
flags=(-trimpath -ldflags "-s -w -X main.version=$version")
mkdir -p dist
CGO_ENABLED=0 go build "${flags[@]}" -o dist/rag2-static ./cmd/rag2
CGO_ENABLED=1 go build "${flags[@]}" -o dist/rag2 ./cmd/rag2
if readelf -d dist/rag2-static 2>/dev/null | grep -q NEEDED; then echo "release: rag2-static is not static" >&2; exit 1; fi
glibc=$(readelf -V dist/rag2 | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
{
  echo "rag2 $version, $(go env GOOS)/$(go env GOARCH)"
  echo "rag2-static: no library"
  echo "rag2: ${glibc/GLIBC_/glibc } or later, $(readelf -d dist/rag2 | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')"
  echo "xla:cuda: an NVIDIA driver, and a plugin with its libraries: python3 -m pip install \"jax-cuda12-plugin[with-cuda]\""
} > dist/NEEDS
(cd dist && sha256sum rag2 rag2-static NEEDS > SHA256SUMS)
cat dist/NEEDS
