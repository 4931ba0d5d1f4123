#!/bin/bash
# Runs the tests of kernels and native engine for arm64 under qemu-user, on any machine.
set -eu -o pipefail
cd "$(dirname "$0")/.."
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
if [ -z "$qemu" ] && [ "$(go env GOHOSTARCH)" != arm64 ]; then
	echo "test-arm64: missing Debian package: qemu-user-static; nothing was tested" >&2
	exit 3
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for p in tensor/simd tensor/native; do
	GOARCH=arm64 CGO_ENABLED=0 go test -c -o "$work/test" "./$p"
	for isa in generic neon; do
		echo "$p RAG2_ISA=$isa"
		(cd "$p" && RAG2_ISA=$isa $qemu "$work/test" -test.short "$@")
	done
done
