"""llama.cpp as a contestant; see bench/decode, whose requests it answers (one stream).

    llamacpp.py MODEL.gguf
"""
import os
import sys
import time

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the library prints
import llama_cpp
import numpy as np

threads = int(os.environ.get("THREADS", "2"))
m = llama_cpp.Llama(sys.argv[1], n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
vocab = m.n_vocab()


def ids(n):
    return [(i * 7919 + 13) % vocab for i in range(n)]


def logits():
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits(m.ctx), shape=(vocab,))


def prompt(n):
    m.reset()
    t = time.perf_counter()
    m.eval(ids(n))
    return time.perf_counter() - t


def decode(streams, n, depth):
    if streams != 1:
        raise ValueError("one stream")
    m.reset()
    m.eval(ids(depth))
    token = 0
    t = time.perf_counter()
    for _ in range(n):
        m.eval([token])
        token = int(logits().argmax())
    return time.perf_counter() - t


print("ready llama.cpp through llama-cpp-python", llama_cpp.__version__, "·", llama_cpp.llama_print_system_info().decode().strip(" |"), file=out, flush=True)
for line in sys.stdin:
    try:
        name, *args = line.split()
        print({"prompt": prompt, "decode": decode}[name](*map(int, args)), file=out, flush=True)
    except Exception as e:
        print("error", e, file=out, flush=True)
