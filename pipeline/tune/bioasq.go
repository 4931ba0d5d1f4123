package tune

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path"
	"strings"
)

// Chunk is a passage in MedRAG's format, as `corpus add --format medrag` reads it.
type Chunk struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Content  string `json:"content"`
	Contents string `json:"contents"`
}

// BioASQ is the gold of BioASQ's task B: its snippets as a corpus, and for each question
// the snippets that annotators marked.
type BioASQ struct {
	Chunks []Chunk
	Pairs  []Pair
}

// ReadBioASQ reads golden files, {"questions": [{"id", "body", "snippets": [{"text",
// "document"}]}]}, .gz too. A snippet's document is the last part of its address, the
// PMID, with a number: "28293123.2". Equal texts are one snippet. Questions without
// snippets, and those that occur again, are left out.
func ReadBioASQ(paths []string) (*BioASQ, error) {
	b := &BioASQ{}
	doc := map[string]string{} // by text
	count := map[string]int{}
	seen := map[string]bool{}
	for _, p := range paths {
		raw, err := readAll(p)
		if err != nil {
			return nil, err
		}
		var j struct {
			Questions []struct {
				ID       string `json:"id"`
				Body     string `json:"body"`
				Snippets []struct {
					Text     string `json:"text"`
					Document string `json:"document"`
				} `json:"snippets"`
			} `json:"questions"`
		}
		if err := json.Unmarshal(raw, &j); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if len(j.Questions) == 0 {
			return nil, fmt.Errorf("%s: no questions; BioASQ's golden files have them", p)
		}
		for _, q := range j.Questions {
			pair := Pair{ID: q.ID, Query: strings.Join(strings.Fields(q.Body), " ")}
			own := map[string]bool{}
			for _, s := range q.Snippets {
				text := strings.Join(strings.Fields(s.Text), " ")
				if text == "" || own[text] {
					continue
				}
				own[text] = true
				if doc[text] == "" {
					pmid := path.Base(s.Document)
					count[pmid]++
					doc[text] = fmt.Sprintf("%s.%d", pmid, count[pmid])
					b.Chunks = append(b.Chunks, Chunk{ID: doc[text], Content: text, Contents: text})
				}
				pair.Positives = append(pair.Positives, Positive{doc[text], text})
			}
			if pair.ID == "" || pair.Query == "" || len(pair.Positives) == 0 || seen[pair.ID] || seen[pair.Query] {
				continue
			}
			seen[pair.ID], seen[pair.Query] = true, true
			b.Pairs = append(b.Pairs, pair)
		}
	}
	return b, nil
}

// Split divides pairs by a hash of the question's id into train, dev and test, which get
// these shares of the questions.
func Split(pairs []Pair, dev, test float64) (train, held, last []Pair) {
	for _, p := range pairs {
		h := fnv.New64a()
		h.Write([]byte(p.ID))
		x := h.Sum64()
		x ^= x >> 33 // the finaliser of MurmurHash3 spreads it over all bits
		x *= 0xff51afd7ed558ccd
		x ^= x >> 33
		switch u := float64(x>>11) / (1 << 53); {
		case u < test:
			last = append(last, p)
		case u < test+dev:
			held = append(held, p)
		default:
			train = append(train, p)
		}
	}
	return
}

func readAll(path string) ([]byte, error) {
	h, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	if !strings.HasSuffix(path, ".gz") {
		return io.ReadAll(h)
	}
	z, err := gzip.NewReader(h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
