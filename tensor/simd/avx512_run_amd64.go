package simd

import "unsafe"

//go:generate sh -c "go run gen_avx512.go gen_bf16.go s > avx512_amd64.s; go run gen_avx512.go gen_bf16.go go > a.tmp; mv a.tmp avx512_amd64.go"

// gemmZArgs are an AVX-512 microkernel's arguments; strides in bytes, masks of the
// columns of two panels. The assembly knows the offsets.
type gemmZArgs struct {
	k            int
	a            unsafe.Pointer
	aRow, aK     int
	b, b2        unsafe.Pointer
	bK           int
	init         unsafe.Pointer
	initLd       int
	c            unsafe.Pointer
	cLd          int
	mask1, mask2 uint64
	next         unsafe.Pointer // fetched by packed kernels, two lines for two k, and by those of pairs
	step         int            // of next, for two lines; 0 fetches nothing new
}

// rowsZ is the most rows of a tile, of 32 columns: 28 of the 32 registers are sums.
const rowsZ = 14

var zerosZ [2 * PanelWidth]float32

// columnMask is the mask of w columns, at most a panel's.
func columnMask(w int) uint64 { return 1<<min(PanelWidth, max(0, w)) - 1 }

// runFast is Run for AVX-512; false when the level is lower.
func (g *Gemm) runFast(m0, m1, p0, p1 int) bool {
	pairs := g.Half.Format == BlockBF16Pairs
	if Level < AVX512 || pairs && Level < BF16 {
		return false
	}
	depth := g.Half.Format.depth(g.K)
	passes := (depth + blockK - 1) / blockK
	tiles := (m1 - m0 + rowsZ - 1) / rowsZ
	if g.Shared != nil && m0 == 0 && m1 == g.M {
		_ = g.Shared[16*tiles*depth-1]
		for pass := range passes {
			g.passZ(m0, m1, tiles, p0, p1, depth*pass/passes, depth*(pass+1)/passes, true)
		}
		return true
	}
	pack := (pairs || g.AK == 1 && p1-p0 >= 4 && len(g.Scratch) >= GemmScratch) && (m1-m0)/tiles >= 8
	block := tiles      // tiles whose rows of A stay packed
	if pairs && !pack { // fewer than 16 rows: panels are read in order where these fit
		passes = (m1-m0)*depth/len(g.Scratch) + 1
	}
	if pack {
		block = len(g.Scratch) / (16 * ((depth + passes - 1) / passes))
	}
	blocks := (tiles + block - 1) / block
	for b := range blocks {
		t0, t1 := tiles*b/blocks, tiles*(b+1)/blocks
		for pass := range passes {
			g.passZ(m0+(m1-m0)*t0/tiles, m0+(m1-m0)*t1/tiles, t1-t0, p0, p1, depth*pass/passes, depth*(pass+1)/passes, pack)
		}
	}
	return true
}

// passZ adds up k0 ≤ k < k1, of pairs for BlockBF16Pairs, for rows m0 … m1 in tiles.
func (g *Gemm) passZ(m0, m1, tiles, p0, p1, k0, k1 int, pack bool) {
	k := k1 - k0
	at := func(t int) int { return m0 + (m1-m0)*t/tiles }
	pairs := g.Half.Format == BlockBF16Pairs
	packed := g.Scratch
	switch {
	case pack && g.Shared != nil && m0 == 0 && m1 == g.M:
		packed = g.Shared[16*tiles*k0:]
	case pack && pairs:
		for t := range tiles {
			g.packPairs(words(packed[t*16*k:(t+1)*16*k]), at(t), at(t+1)-at(t), k0, k1)
		}
	case pack:
		for t := range tiles {
			packZ(packed[t*16*k:(t+1)*16*k], g.A[at(t)*g.ARow+k0:], at(t+1)-at(t), k, g.ARow)
		}
	case pairs: // fewer than 16 rows
		for i := m0; i < m1; i++ {
			g.roundPairs(words(packed[(i-m0)*k:(i-m0+1)*k]), i, k0)
		}
	}
	width := 2
	if g.Half.Format != 0 && !pairs {
		width = 1 // a panel is widened at a time
	}
	// Panels in memory: the first's address, the bytes of each and of all.
	panels0, panel, all := unsafe.Pointer(nil), 4*PanelWidth*g.K, 0
	switch {
	case pairs:
		panels0, panel, all = unsafe.Pointer(&g.Half.Data[0]), g.Half.Format.PanelBytes(g.K), len(g.Half.Data)
	case g.BK == 0 && g.Half.Format == 0:
		panels0, all = unsafe.Pointer(&g.B[0]), 4*len(g.B)
	}
	pa, pc := unsafe.Pointer(&g.A[0]), unsafe.Pointer(&g.C[0])
	for p := p0; p < p1; p += width {
		panels := min(width, p1-p)
		a := gemmZArgs{k: k, bK: 4 * PanelWidth, cLd: 4 * g.CRow, mask1: columnMask(g.N - p*PanelWidth), mask2: columnMask(g.N - (p+1)*PanelWidth)}
		switch {
		case panels0 != nil:
			a.b = unsafe.Add(panels0, p*panel+4*PanelWidth*k0)
		case g.Half.Format != 0:
			a.b = g.Half.at(p, k0, k, g.K)
		default:
			a.b, a.bK = unsafe.Pointer(&g.B[k0*g.BK+p*PanelWidth]), 4*g.BK
		}
		if panels == 2 {
			a.b2 = unsafe.Add(a.b, 4*PanelWidth)
			if panels0 != nil {
				a.b2 = unsafe.Add(a.b, panel)
			}
		}
		for t := range tiles {
			i, rows := at(t), at(t+1)-at(t)
			a.c = unsafe.Add(pc, 4*(i*g.CRow+p*PanelWidth))
			switch {
			case k0 > 0 || g.Add:
				a.init, a.initLd = a.c, a.cLd
			case g.Bias != nil:
				a.init, a.initLd = unsafe.Pointer(&g.Bias[p*PanelWidth]), 0
			default:
				a.init, a.initLd = unsafe.Pointer(&zerosZ), 0
			}
			if pack {
				a.a = unsafe.Pointer(&packed[t*16*k])
				a.next, a.step = a.b, 0
				// The last two tiles bring the next two panels into L2; otherwise memory rests
				// while all tiles but the first run.
				if n := width + t - max(0, tiles-2); tiles > 1 && n >= width && (p+n+1)*panel <= all {
					a.next, a.step = unsafe.Add(a.b, n*panel), 8*PanelWidth
				}
				if pairs {
					gemmBPacked(rows, panels, &a)
				} else {
					gemmZPacked(rows, panels, &a)
				}
				continue
			}
			if pairs {
				a.a, a.aRow, a.aK = unsafe.Pointer(&packed[(i-m0)*k]), 4*k, 4
				a.next, a.step = a.b, 0
				if t == tiles-1 && (p+4)*panel <= all {
					a.next, a.step = unsafe.Add(a.b, 2*panel), 8*PanelWidth
				}
				gemmB(rows, panels, &a)
				continue
			}
			a.a, a.aRow, a.aK = unsafe.Add(pa, 4*(i*g.ARow+k0*g.AK)), 4*g.ARow, 4*g.AK
			gemmZ(rows, panels, &a)
		}
	}
}

// SharedRows is what packing all of A once takes, for products that Run computes in
// several calls with all rows and with B of format f (0: float32): floats of memory and tasks of PackShared; 0 where Run
// does better by itself.
func SharedRows(f BlockFormat, m, k int) (floats, tasks int) {
	tiles := (m + rowsZ - 1) / rowsZ
	if Level < AVX512 || m == 0 || m/tiles < 8 || k == 0 || f == BlockBF16Pairs && Level < BF16 {
		return 0, 0
	}
	k = f.depth(k)
	return 16 * tiles * k, tiles * ((k + blockK - 1) / blockK)
}

// PackShared is one task of packing A [m,k], rows aRow apart, for Gemm.Shared.
func PackShared(f BlockFormat, dst, a []float32, aRow, m, k, task int) {
	depth := f.depth(k)
	tiles, passes := (m+rowsZ-1)/rowsZ, (depth+blockK-1)/blockK
	pass, t := task/tiles, task%tiles
	k0, k1 := depth*pass/passes, depth*(pass+1)/passes
	i := m * t / tiles
	rows := m*(t+1)/tiles - i
	dst = dst[16*tiles*k0+t*16*(k1-k0):][:16*(k1-k0)]
	if f == BlockBF16Pairs {
		g := Gemm{K: k, A: a, ARow: aRow, AK: 1}
		g.packPairs(words(dst), i, rows, k0, k1)
		return
	}
	packZ(dst, a[i*aRow+k0:], rows, k1-k0, aRow)
}

// words is memory of floats that holds pairs.
func words(f []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(f))), len(f))
}

// packZ writes dst[k][16] from 8 to 14 rows of src, ld floats apart: the first eight,
// then the last eight.
func packZ(dst, src []float32, rows, k, ld int) {
	n := k &^ 7
	if n > 0 {
		_, _ = dst[16*n-1], src[(rows-1)*ld+n-1]
		packT8(&dst[0], &src[0], n/8, 4*ld)
		packT8(&dst[8], &src[(rows-8)*ld], n/8, 4*ld)
	}
	for i := n; i < k; i++ {
		for r := range 8 {
			dst[16*i+r], dst[16*i+8+r] = src[r*ld+i], src[(rows-8+r)*ld+i]
		}
	}
}

// int8ZArgs are an int8 kernel's arguments, like gemmZArgs.
type int8ZArgs struct {
	k8             int
	a              unsafe.Pointer
	aRow           int
	b, b2          unsafe.Pointer
	c              unsafe.Pointer
	cLd            int
	zero, rowScale unsafe.Pointer // of the first group's rows
	mask1, mask2   uint64
	next           unsafe.Pointer // fetched, a line for each step of 8
	step           int
	groupRows      int            // from a group's rows to the next one's
	bias           unsafe.Pointer // of the columns, or zeros
}

// runFast is Run for AVX-512; false when the level is lower.
func (w *Int8Weights) runFast(q *Int8Rows, bias, c []float32, cRow, m0, m1, p0, p1 int) bool {
	if Level < AVX512 {
		return false
	}
	most := 5
	if Level >= VNNI {
		most = 6
	}
	rb, panel := RowBytes(w.K), int8Panel(w.K)
	_ = w.Data[p1*panel-1]
	tiles := (m1 - m0 + most - 1) / most
	ahead := min(5, tiles-1) // tiles that bring the next panels into L2, each its part of them
	for p := p0; p < p1; p += 2 {
		a := int8ZArgs{k8: int8K(w.K) / 8, aRow: rb, b: unsafe.Pointer(&w.Data[p*panel]), cLd: 4 * cRow, groupRows: 4 * q.M, bias: unsafe.Pointer(&zerosZ),
			mask1: columnMask(w.N - p*PanelWidth), mask2: columnMask(w.N - (p+1)*PanelWidth)}
		if p+1 < w.panels {
			a.b2 = unsafe.Add(a.b, panel)
		}
		if bias != nil {
			a.bias = unsafe.Pointer(&bias[p*PanelWidth])
		}
		for t := range tiles {
			i := m0 + (m1-m0)*t/tiles
			rows := m0 + (m1-m0)*(t+1)/tiles - i
			a.a, a.zero, a.rowScale = unsafe.Pointer(&q.Data[i*rb]), unsafe.Pointer(&q.Zero[i]), unsafe.Pointer(&q.Scale[i])
			a.c = unsafe.Pointer(&c[(i-m0)*cRow+(p-p0)*PanelWidth])
			a.next, a.step = a.b, 0
			if n := t - (tiles - ahead); n >= 0 && p+4 <= w.panels { // beyond p1 too: whoever takes pieces in turn goes on there
				a.next, a.step = unsafe.Add(a.b, 2*panel+n*(2*panel/ahead)), 64
			}
			if Level >= VNNI {
				int8VNNI(rows, min(2, p1-p), &a)
			} else {
				int8Z(rows, min(2, p1-p), &a)
			}
		}
	}
	return true
}
