package hnsw

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// PlanOptions describe an index that is to be built.
type PlanOptions struct {
	Rows, Dim, M int // M 0 = 16
	EfConstruct  int // 0 = 200
	Codes        Codes
	Half         bool // vectors are float16 on disk
	Ef, Rescore  int  // of a search; 0 = 100, and what fits the codes
	Segments     int  // 0 = as many as keep one build under 2 M rows, merged to at most 8
	// GraphCached is the share of level 0 that stays in the page cache, 0…1; the rest
	// is read from disk.
	GraphCached float64
	Disk        time.Duration // of a random 4 KiB read; 0 = 100 µs
	DiskQueue   int           // reads the device serves at once; 0 = 8
	Searches    int           // at once; 0 = 2
	Costs       Costs         // zero = DefaultCosts
}

// Costs are measured constants of a machine, per unit of work of one thread.
type Costs struct {
	Node      time.Duration // a neighbour list: marks, pool, bookkeeping
	PerByte   float64       // ns per byte of a code or vector that is scored
	PerRow    time.Duration // of each scored row, beside its bytes
	Query     time.Duration // preparing a query
	BuildByte float64       // ns per byte scored while building, on one core
	Machine   string
}

// DefaultCosts were measured at a million rows of 768 dimensions by `make bench-ann-1m`;
// at a hundred thousand a walk takes a quarter less than they say.
var DefaultCosts = Costs{Node: 350 * time.Nanosecond, PerByte: 0.025, PerRow: 10 * time.Nanosecond, Query: 4 * time.Microsecond, BuildByte: 0.066,
	Machine: "2-vCPU AMD EPYC (Zen 5), AVX-512 VNNI"}

// PlanTerm is one item of disk and memory.
type PlanTerm struct {
	Name string `json:"name"`
	Disk int64  `json:"disk"`
	RAM  int64  `json:"ram"` // resident while searching
	Note string `json:"note,omitempty"`
}

// PlanReport is what an index will take. Times are predicted, not measured.
type PlanReport struct {
	Options  PlanOptions   `json:"options"`
	Terms    []PlanTerm    `json:"terms"`
	Disk     int64         `json:"disk"`
	RAM      int64         `json:"ram"`
	BuildRAM int64         `json:"build_ram"` // of one segment's build
	Build    time.Duration `json:"predicted_build_per_core"`
	// Of one query, in order: lists read, codes scored, vectors read, latency with all
	// in memory, latency with the disk.
	Nodes, Scored, Vectors int
	InRAM                  time.Duration `json:"predicted_latency_in_ram"`
	OnDisk                 time.Duration `json:"predicted_latency_on_disk"`
}

// Validate lists everything that is wrong with the options.
func (o PlanOptions) Validate() error {
	var errs []error
	if o.Rows < 1 {
		errs = append(errs, fmt.Errorf("%d rows", o.Rows))
	}
	if o.Dim < 1 || o.Dim > maxDim {
		errs = append(errs, fmt.Errorf("%d dimensions", o.Dim))
	}
	if o.M != 0 && (o.M < 2 || o.M > maxDegree/2) {
		errs = append(errs, fmt.Errorf("parameter M is %d", o.M))
	}
	if !(o.GraphCached >= 0 && o.GraphCached <= 1) {
		errs = append(errs, fmt.Errorf("cached share of the graph is %g, not 0…1", o.GraphCached))
	}
	if int(o.Codes) >= len(codeNames) {
		errs = append(errs, fmt.Errorf("codes %d are unknown", o.Codes))
	}
	if err := checkCodes(o.Codes, o.Dim); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func or[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Plan computes sizes exactly and predicts times from measured constants.
func Plan(o PlanOptions) (*PlanReport, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	o.M, o.EfConstruct, o.Ef = or(o.M, 16), or(o.EfConstruct, 200), or(o.Ef, 100)
	o.Disk, o.DiskQueue, o.Searches = or(o.Disk, 100*time.Microsecond), or(o.DiskQueue, 8), or(o.Searches, 2)
	o.Segments = or(o.Segments, min(8, (o.Rows+2_000_000-1)/2_000_000))
	if o.Rescore == 0 {
		o.Rescore = map[Codes]int{NoCodes: 10, Int8: 20, FourBit: 30, OneBit: 100, Principal: 40}[o.Codes]
	}
	if o.Costs == (Costs{}) {
		o.Costs = DefaultCosts
	}
	r := &PlanReport{Options: o}
	n := int64(o.Rows)
	width := int64(4)
	if o.Half {
		width = 2
	}
	stride := int64(codeStride(o.Codes, o.Dim))
	uppers := n / int64(o.M-1)
	level0 := n * int64(2*o.M) * 4
	vec := n * int64(o.Dim) * width
	add := func(name string, disk, ram int64, note string) {
		r.Terms = append(r.Terms, PlanTerm{name, disk, ram, note})
		r.Disk += disk
		r.RAM += ram
	}
	if o.Codes == NoCodes {
		add("vectors", vec, vec, "the walk reads them")
	} else {
		add("vectors", vec, 0, fmt.Sprintf("%d read per query", o.Rescore))
		add("codes "+o.Codes.String(), n*stride, n*stride, fmt.Sprintf("%d bytes a row, %.3f of float32", stride, float64(stride)/float64(4*o.Dim)))
	}
	add("graph, level 0", level0, int64(float64(level0)*o.GraphCached), fmt.Sprintf("%d bytes a row, %.0f %% cached", 8*o.M, 100*o.GraphCached))
	add("graph, above", uppers*int64(8+4*o.M), uppers*int64(8+4*o.M), "")
	if o.Codes == Principal {
		proj := 4 * int64(codeWidth(o.Codes, o.Dim)) * int64(o.Dim) * int64(o.Segments)
		add("projections", proj, proj, "one a segment")
	}
	add("marks of searches", 0, int64(o.Searches)*n/int64(8*o.Segments), fmt.Sprintf("%d at once, a bit a row of a segment", o.Searches))
	add("pools, tables", 0, int64(o.Searches)*int64(64<<10)+8<<20, "")

	per := (n + int64(o.Segments) - 1) / int64(o.Segments)
	buildStride := int64(codeStride(Int8, o.Dim))
	r.BuildRAM = per * (buildStride + int64(8*o.M) + 8 + 4 + 4 + 4*int64(o.M)/int64(o.M-1))
	// Work of a walk, fitted from 25,000 to 1,000,000 × 768: lists ≈ ef + descent; the new
	// rows in a list fall from 19 in the first 44 lists to 6.7 in 494.
	perSegment := float64(per)
	nodes := float64(o.Ef) + 2*math.Log(max(perSegment, 2))/math.Log(float64(o.M))
	scored := nodes * float64(o.M) * 1.19 * math.Pow(max(nodes/44, 1), -0.43)
	bytes := float64(stride)
	if o.Codes == NoCodes {
		bytes = float64(int64(o.Dim) * width)
	}
	c := o.Costs
	one := float64(c.Query) + nodes*float64(c.Node) + scored*(float64(c.PerRow)+bytes*c.PerByte)
	if o.Codes != NoCodes {
		one += float64(o.Rescore) * (float64(c.PerRow) + float64(int64(o.Dim)*width)*c.PerByte)
		r.Vectors = o.Rescore * o.Segments
	} else {
		r.Vectors = int(scored) * o.Segments
	}
	r.Nodes, r.Scored = int(nodes)*o.Segments, int(scored)*o.Segments
	r.InRAM = time.Duration(one * float64(o.Segments))
	// The walk's misses wait one after another, rescoring's are in flight together.
	disk := nodes * (1 - o.GraphCached) * float64(o.Disk)
	if o.Codes != NoCodes {
		disk += math.Ceil(float64(o.Rescore)/float64(o.DiskQueue)) * float64(o.Disk)
	}
	r.OnDisk = r.InRAM + time.Duration(disk*float64(o.Segments))
	perRow := float64(o.EfConstruct) * float64(o.M) * 1.3 * (float64(c.PerRow) + float64(buildStride)*c.BuildByte)
	r.Build = time.Duration(perRow * (1 + 0.05*math.Log2(max(perSegment/24000, 1))) * float64(n))
	return r, nil
}

// PaperCorpora are the corpora of the RAG² paper with their numbers of passages,
// 768 dimensions each.
var PaperCorpora = []struct {
	Name string
	Rows int
}{{"PubMed", 69_743_442}, {"PMC", 46_294_271}, {"CPG", 606_785}, {"Textbook", 133_875}}

// String lays the report out as a table.
func (r *PlanReport) String() string {
	var b strings.Builder
	o := r.Options
	fmt.Fprintf(&b, "%d × %d, M %d, codes %v, %d segments\n", o.Rows, o.Dim, o.M, o.Codes, o.Segments)
	fmt.Fprintf(&b, "%-20s %12s %12s\n", "", "disk", "RAM")
	for _, t := range r.Terms {
		fmt.Fprintf(&b, "%-20s %12s %12s  %s\n", t.Name, human(t.Disk), human(t.RAM), t.Note)
	}
	fmt.Fprintf(&b, "%-20s %12s %12s\n", "total", human(r.Disk), human(r.RAM))
	fmt.Fprintf(&b, "memory of a build: %s (one segment); predicted build: %.1f core hours\n", human(r.BuildRAM), r.Build.Hours())
	fmt.Fprintf(&b, "a query reads %d lists, %d codes, %d vectors; predicted %v in RAM, %v with %v reads from disk (constants of %s)\n",
		r.Nodes, r.Scored, r.Vectors, r.InRAM.Round(time.Microsecond), r.OnDisk.Round(10*time.Microsecond), o.Disk, o.Costs.Machine)
	return b.String()
}

func human(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d B", n)
}
