"""Peers of bench/ann: reads commands on stdin, answers each with a line of JSON.

build NAME          builds an index of the vectors on all cores
run NAME EF         searches all queries on one thread; timed by the process's CPU time
drop NAME           frees it
"""
import json, os, sys, time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

vectors, queries, truth = (np.load(p) for p in sys.argv[1:4])
X, Q = vectors.astype(np.float32), queries.astype(np.float32)
K, M, EFC, CORES = 10, 16, 200, os.cpu_count()
built = {}


def hnswlib_build():
    import hnswlib
    h = hnswlib.Index("ip", X.shape[1])
    h.init_index(len(X), M=M, ef_construction=EFC)
    h.set_num_threads(CORES)
    h.add_items(X)
    h.set_num_threads(1)

    def run(ef):
        h.set_ef(ef)
        return h.knn_query(Q, K)[0]
    return run


def faiss_build():
    import faiss
    faiss.omp_set_num_threads(CORES)
    f = faiss.IndexHNSWFlat(X.shape[1], M, faiss.METRIC_INNER_PRODUCT)
    f.hnsw.efConstruction = EFC
    f.add(X)
    faiss.omp_set_num_threads(1)

    def run(ef):
        f.hnsw.efSearch = ef
        return f.search(Q, K)[1]
    return run


def usearch_build(dtype):
    from usearch.index import Index
    u = Index(ndim=X.shape[1], metric="ip", dtype=dtype, connectivity=M, expansion_add=EFC)
    u.add(np.arange(len(X)), X, threads=CORES)

    def run(ef):
        u.expansion_search = ef
        return u.search(Q, K, threads=1).keys
    return run


def blas_build():
    XT = np.ascontiguousarray(X.T)

    def run(ef):
        out = np.empty((len(Q), K), np.int64)
        for i in range(0, len(Q), 512):
            s = Q[i:i + 512] @ XT
            p = np.argpartition(-s, K, axis=1)[:, :K]
            out[i:i + 512] = np.take_along_axis(p, np.argsort(-np.take_along_axis(s, p, 1), axis=1), 1)
        return out
    return run


builders = {"hnswlib": hnswlib_build, "faiss": faiss_build, "usearch": lambda: usearch_build("f32"),
            "usearch-i8": lambda: usearch_build("i8"), "blas": blas_build}

for line in sys.stdin:
    cmd, name, *rest = line.split()
    try:
        if cmd == "build":
            t, c = time.perf_counter(), time.process_time()
            built[name] = builders[name]()
            ans = {"seconds": time.perf_counter() - t, "cpu": time.process_time() - c}
        elif cmd == "run":
            t = time.process_time()
            got = built[name](int(rest[0]))
            s = time.process_time() - t
            hit = sum(len(set(a.tolist()) & set(b.tolist())) for a, b in zip(got, truth))
            ans = {"qps": len(Q) / s, "recall": hit / truth.size}
        else:
            built.pop(name, None)
            ans = {}
    except Exception as e:  # a peer that is missing or fails is reported, not hidden
        ans = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(ans), flush=True)
