package label

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"strings"

	"rag2/internal/atomicfile"
	"rag2/models"
)

// Record is a training example in the authors' format: Question is the filter's whole
// input, Answer the token it is to give.
type Record struct {
	ID       string `json:"id"`
	Answer   string `json:"answer"`
	Dataset  string `json:"dataset_name"`
	Question string `json:"question"`
}

// Records are the training examples of a label file: its pairs that are not discarded.
func (f *File) Records(dataset string) []Record {
	var out []Record
	for _, q := range f.Questions {
		for _, p := range q.Pairs {
			token := TokenHelpful
			switch p.Label {
			case NotHelpful:
				token = TokenNotHelpful
			case Helpful:
			default:
				continue
			}
			out = append(out, Record{fmt.Sprintf("%s/%d", q.ID, p.N), token, dataset,
				models.FilterText(q.Question, models.JoinTitle(p.Snippet.Title, p.Snippet.Text))})
		}
	}
	return out
}

// Split divides records into training and dev by the question they belong to, so that
// no question is on both sides: share of the questions, chosen by a hash of their id.
func Split(records []Record, share float64) (train, dev []Record) {
	for _, r := range records {
		h := fnv.New32a()
		h.Write([]byte(QuestionOf(r.ID)))
		if float64(mix(h.Sum32()))/(1<<32) < share {
			dev = append(dev, r)
		} else {
			train = append(train, r)
		}
	}
	return
}

// QuestionOf is the question's part of a record's id, "question/n".
func QuestionOf(id string) string {
	if i := strings.LastIndexByte(id, '/'); i >= 0 {
		return id[:i]
	}
	return id
}

// mix spreads a hash over all its bits (the finaliser of MurmurHash3).
func mix(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// WriteRecords writes a JSON array, as the authors' trainer reads it.
func WriteRecords(path string, records []Record) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if records == nil {
		records = []Record{}
	}
	if err := enc.Encode(records); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Commit()
}

// ReadRecords reads a JSON array of records.
func ReadRecords(path string) ([]Record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []Record
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i, r := range out {
		if r.Answer != TokenHelpful && r.Answer != TokenNotHelpful {
			return nil, fmt.Errorf("%s: record %d (%s): answer %q; %s or %s", path, i, r.ID, r.Answer, TokenHelpful, TokenNotHelpful)
		}
	}
	return out, nil
}
