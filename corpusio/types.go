package corpusio

// Record is one source document as a reader emits it: a PubMed citation, a PMC
// article, a guideline or a textbook module, before it is cut into passages.
type Record struct {
	Corpus   string    `json:"corpus"`            // corpus name, e.g. "pubmed"
	ID       string    `json:"id"`                // PMID, PMCID, guideline id, module id; unique within the corpus
	Title    string    `json:"title,omitempty"`   // plain text, inline markup removed
	Sections []Section `json:"sections"`          // document order; never nil for an indexed record
	Year     int       `json:"year,omitempty"`    // 0 = unknown
	Journal  string    `json:"journal,omitempty"` // journal, publisher or book title
	MeSH     []string  `json:"mesh,omitempty"`    // MeSH descriptor names
	URL      string    `json:"url,omitempty"`
	Source   Source    `json:"source"` // where it was read from
}

// Section is a run of text under one heading path.
type Section struct {
	Path []string `json:"path,omitempty"` // headings, outermost first; empty for an unlabelled abstract
	Text string   `json:"text"`           // plain text; paragraphs separated by "\n"
}

// Source is the provenance of a record: file (and member inside an archive),
// and the byte offset or line at which it starts.
type Source struct {
	File   string `json:"file"`
	Member string `json:"member,omitempty"`
	Offset int64  `json:"offset,omitempty"` // bytes into the decompressed member
	Line   int    `json:"line,omitempty"`
}

// Passage is the unit of retrieval: a window of words of one record.
type Passage struct {
	ID      string   `json:"id"`     // "<corpus>:<doc>#<n>"
	Corpus  string   `json:"corpus"` // corpus name
	Doc     string   `json:"doc"`    // Record.ID
	Title   string   `json:"title,omitempty"`
	Section string   `json:"section,omitempty"` // heading path joined by " > "
	Text    string   `json:"text"`
	Year    int      `json:"year,omitempty"`
	Journal string   `json:"journal,omitempty"`
	MeSH    []string `json:"mesh,omitempty"`
	URL     string   `json:"url,omitempty"`
	Start   int      `json:"start"` // first word of the window within the record
	End     int      `json:"end"`   // one past the last word
}

// Skip says why a piece of input did not become a record.
type Skip struct {
	Source Source `json:"source"`
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason"` // short stable phrase, e.g. "no text", "deleted", "malformed"
	Detail string `json:"detail,omitempty"`
}

// Handler receives what a reader finds. A non-nil error stops the reader and is
// returned by it unchanged.
type Handler struct {
	Record func(*Record) error   // required
	Skip   func(Skip) error      // optional
	Delete func(id string) error // optional: a DeleteCitation
	// Progress is told the number of compressed bytes consumed so far of the
	// current input file. Optional.
	Progress func(bytes int64)
}
