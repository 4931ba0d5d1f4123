package bench

import (
	"os"
	"path/filepath"
	"testing"

	"rag2/models"
	"rag2/pipeline"
	"rag2/pipeline/home"
	"rag2/pipeline/ingest"
	"rag2/tensor"
	_ "rag2/tensor/native" // the default engine
)

// BenchmarkRetrieve is the retrieval of one question from the four demo corpora with
// real weights: encode, search, merge.
func BenchmarkRetrieve(b *testing.B) {
	dir := filepath.Join(os.Getenv("RAG2_MODELS_DIR"), "minilm")
	if _, err := os.Stat(dir); err != nil {
		b.Skip("RAG2_MODELS_DIR holds no minilm; make bench sets it")
	}
	e, err := tensor.Open(os.Getenv("RAG2_ENGINE"), tensor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	enc, err := models.OpenEncoder(e, models.EncoderSpec{QueryDir: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer enc.Close()
	h := home.Home{Dir: b.TempDir()}
	p := &pipeline.Pipeline{Encoder: enc}
	for name, path := range map[string]string{"pubmed": "pubmed.xml", "pmc": "pmc.xml", "cpg": "guidelines.jsonl", "textbooks": "textbook"} {
		if _, err := ingest.Add(b.Context(), h, name, []string{filepath.Join("../testdata/demo", path)}, ingest.AddOptions{}); err != nil {
			b.Fatal(err)
		}
		if _, err := ingest.BuildIndex(b.Context(), h, name, enc, ingest.IndexOptions{}); err != nil {
			b.Fatal(err)
		}
		c, err := h.Open(name, enc.Fingerprint(), "")
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		p.Corpora = append(p.Corpora, pipeline.Local{Corpus: c})
	}
	q := pipeline.Question{Stem: "Which vitamin falls under metformin?", Options: []pipeline.Option{{Key: "A", Text: "Folate"}, {Key: "B", Text: "Vitamin B12"}}}
	b.ReportAllocs()
	for b.Loop() {
		t, err := p.Retrieve(b.Context(), q, pipeline.Options{Query: pipeline.QueryQuestion}, pipeline.Observer{})
		if err != nil || len(t.Kept()) != 8 {
			b.Fatal(err)
		}
	}
}
