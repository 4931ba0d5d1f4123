package simd

//go:generate sh -c "go run gen_neon.go s > neon_arm64.s; go run gen_neon.go go > n.tmp; mv n.tmp neon_arm64.go"

// Microkernels by rows-1: with strides, and for A in tiles [k][rows].
var (
	gemmNEON     = [6]func(*gemmArgs){gemmNEON1, gemmNEON2, gemmNEON3, gemmNEON4, gemmNEON5, gemmNEON6}
	gemmNEONTile = [6]func(*gemmArgs){gemmNEON1tile, gemmNEON2tile, gemmNEON3tile, gemmNEON4tile, gemmNEON5tile, gemmNEON6tile}
)

// tile runs the microkernel for rows 1 … 6 of one 16-wide panel.
func (g *gemmArgs) tile(rows int) {
	switch {
	case Level < NEON:
		g.tileGo(rows)
	case rows > 1 && g.aRow == 4 && g.aK == 4*rows: // A was packed, with room behind
		gemmNEONTile[rows-1](g)
	default:
		gemmNEON[rows-1](g)
	}
}

func pack16(dst, src []float32, k, ld int) { pack16Go(dst, src, 0, k, ld) }

func packRows(dst, src []float32, rows, k, ld int) { packRowsGo(dst, src, rows, 0, k, ld) }
