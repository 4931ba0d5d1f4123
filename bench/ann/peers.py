"""Peers of bench/ann: reads commands on stdin, answers each with a line of JSON.

build NAME FILE     builds an index of the vectors on all cores and keeps it; hnswlib goes on where it was stopped
load NAME FILE      reads it
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
CHUNK = 50_000  # rows between two saves of hnswlib


def hnswlib_index(path, build):
    import hnswlib
    h = hnswlib.Index("ip", X.shape[1])
    part = path if os.path.exists(path) else path + ".part"
    if os.path.exists(part):
        h.load_index(part, max_elements=len(X))
    else:
        h.init_index(len(X), M=M, ef_construction=EFC)
    if build:
        h.set_num_threads(CORES)
        while (n := h.get_current_count()) < len(X):
            h.add_items(X[n:n + CHUNK], np.arange(n, min(n + CHUNK, len(X))))
            if len(X) > 2 * CHUNK:
                h.save_index(path + ".tmp")
                os.replace(path + ".tmp", path + ".part")
                print("hnswlib:", h.get_current_count(), file=sys.stderr, flush=True)
        h.save_index(path)
    h.set_num_threads(1)

    def run(ef):
        h.set_ef(ef)
        return h.knn_query(Q, K)[0]
    return run


def faiss_index(path, build):
    import faiss
    if build:
        faiss.omp_set_num_threads(CORES)
        f = faiss.IndexHNSWFlat(X.shape[1], M, faiss.METRIC_INNER_PRODUCT)
        f.hnsw.efConstruction = EFC
        f.add(X)
        faiss.write_index(f, path)
    else:
        f = faiss.read_index(path)
    faiss.omp_set_num_threads(1)

    def run(ef):
        f.hnsw.efSearch = ef
        return f.search(Q, K)[1]
    return run


def usearch_index(dtype, path, build):
    from usearch.index import Index
    u = Index(ndim=X.shape[1], metric="ip", dtype=dtype, connectivity=M, expansion_add=EFC)
    if build:
        u.add(np.arange(len(X)), X, threads=CORES)
        u.save(path)
    else:
        u.load(path)

    def run(ef):
        u.expansion_search = ef
        return u.search(Q, K, threads=1).keys
    return run


def blas_index(path, build):
    XT = np.ascontiguousarray(X.T)

    def run(ef):
        out = np.empty((len(Q), K), np.int64)
        for i in range(0, len(Q), 512):
            s = Q[i:i + 512] @ XT
            p = np.argpartition(-s, K, axis=1)[:, :K]
            out[i:i + 512] = np.take_along_axis(p, np.argsort(-np.take_along_axis(s, p, 1), axis=1), 1)
        return out
    return run


makers = {"hnswlib": hnswlib_index, "faiss": faiss_index, "usearch": lambda *a: usearch_index("f32", *a),
          "usearch-i8": lambda *a: usearch_index("i8", *a), "blas": blas_index}

for line in sys.stdin:
    cmd, name, *rest = line.split()
    try:
        if cmd in ("build", "load"):
            t, c = time.perf_counter(), time.process_time()
            built[name] = makers[name](rest[0], cmd == "build")
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
