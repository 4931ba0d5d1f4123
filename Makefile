# rag2: `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CACHE ?= $(if $(RAG2_CACHE),$(RAG2_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/rag2)
DEMO_HOME ?= $(CACHE)/demo
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
QUESTION ?= demo-11
export RAG2_CACHE := $(CACHE)
export GOMLX_NO_AUTO_INSTALL := 1

.DEFAULT_GOAL := help
ISAS ?= generic neon avx2 avx512 avx512vnni avx512bf16

.PHONY: help build static release bench-gpu demo demo-weights test test-isa test-arm64 test-avx512 test-race models xla tokenizers bench bench-peers bench-quality bench-ann bench-ann-1m lint clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/rag2 (with XLA where cgo is available)
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/rag2 ./cmd/rag2

static: ## build bin/rag2-static: one static binary, no XLA
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/rag2-static ./cmd/rag2

release: ## build what is released into dist/, with the lowest glibc it needs
	@deploy/release.sh

bench-gpu: ## compare and measure every model on a GPU (without one: small shapes on XLA:CPU): bench/gpu.json
	@bench/gpu.sh

models: ## fetch the demo's sentence encoder and LLM into the cache
	@deploy/fetch/fetch.sh models

xla: ## fetch the XLA:CPU plugin into the cache
	@deploy/fetch/fetch.sh xla

tokenizers: ## build the Rust tokenizers library for `go build -tags daulet` (needs cargo) and compare with it
	@deploy/fetch/tokenizers.sh "$$(go mod download -json github.com/daulet/tokenizers | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"
	CGO_LDFLAGS='-L$(CACHE)/tokenizers' go test -tags daulet ./models/tokenizer

demo: build models xla ## ingest and index the demo corpora, answer a question, print the trace
	@deploy/demo.sh bin/rag2 '$(DEMO_HOME)' '$(QUESTION)'

PYTHON ?= python3
BIOASQ ?= ../shared/data/questions/bioasq

demo-weights: build models ## train the demo's reranker and filter again from BioASQ's golden files (an hour; PYTHON has numpy, tokenizers, safetensors)
	@RAG2_MODELS_DIR='$(CACHE)/models' deploy/demo-weights/train.sh bin/rag2 '$(PYTHON)' '$(BIOASQ)' '$(CACHE)/demo-weights' testdata/demo

test: models xla ## every test, and the static build
	go vet ./...
	CGO_ENABLED=0 go build -o bin/rag2-static ./cmd/rag2
	RAG2_MODELS_DIR='$(CACHE)/models' go test -timeout 20m ./...

test-isa: ## the kernels' and the native engine's tests at every instruction set level that this CPU runs
	@go build -o bin/isacheck ./tensor/simd/isacheck; for isa in $(ISAS); do \
	  if ! RAG2_ISA=$$isa bin/isacheck >/dev/null 2>&1; then skipped="$${skipped:-} $$isa"; continue; fi; \
	  echo "RAG2_ISA=$$isa"; RAG2_ISA=$$isa go test -count=1 -short ./tensor/simd/... ./tensor/native/...; \
	done; \
	if [ -n "$${skipped:-}" ]; then echo "skipped, this CPU does not run:$$skipped (make test-arm64 and make test-avx512 do, emulated)"; fi

test-arm64: ## the same for arm64 (NEON), under qemu-user
	@deploy/test-arm64.sh

test-avx512: ## the same with AVX-512 and VNNI, in an emulated machine (Bochs; ten minutes; KERNEL=vmlinuz)
	@deploy/test-avx512.sh $(if $(KERNEL),-k $(KERNEL))

test-race: models xla ## the tests under the race detector (race_mu: go-xla's own pool tells it of its locks)
	RAG2_MODELS_DIR='$(CACHE)/models' go test -race -tags race_mu -short -timeout 40m ./...

bench: models xla ## benchmarks of every hot path (a few minutes)
	RAG2_MODELS_DIR='$(CACHE)/models' go test -run '^$$' -bench . -benchtime=100ms ./...

bench-peers: models xla ## encoder and generation beside torch, onnxruntime, XLA:CPU and llama.cpp (PYTHON has them); writes bench/RESULTS.md, T5.md, GENERATION.md
	go run ./bench/peers -python '$(PYTHON)' -o bench/RESULTS.md
	go run ./bench/peers -python '$(PYTHON)' -t5 -o bench/T5.md
	go run ./bench/peers -python '$(PYTHON)' -llama '$(CACHE)/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf' -o bench/GENERATION.md

SHARED_VECTORS ?= ../shared/data/vectors

bench-quality: models ## what 16 and 8 bits cost an encoder, beside onnxruntime's int8 (five minutes; needs PYTHON with it)
	@go run ./cmd/rag2 bench quality --models-dir '$(CACHE)/models' --passages '$(SHARED_VECTORS)/passages.jsonl.gz' --passages-first 2000 --queries '$(SHARED_VECTORS)/questions.jsonl.gz'
	@'$(PYTHON)' bench/peers/quality.py '$(CACHE)/models/minilm' '$(SHARED_VECTORS)/passages.jsonl.gz' '$(SHARED_VECTORS)/questions.jsonl.gz' 2000

bench-ann: ## the vector index beside hnswlib, faiss and usearch: bench/ann.md and plots (needs PYTHON with them)
	go run ./bench/ann -python '$(PYTHON)' -data '$(SHARED_VECTORS)' -work '$(CACHE)/ann' -out bench

bench-ann-1m: ## the same on a million vectors, and on disk under a memory limit (hours, resumable; as root): bench/ann-1m.md
	go run ./bench/ann -million -python '$(PYTHON)' -data '$(SHARED_VECTORS)' -work '$(CACHE)/ann1m' -out bench

lint: ## gofmt, go vet, golangci-lint when installed
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run; fi

clean: ## remove build results (the cache stays)
	rm -rf bin
