package simd

//go:generate sh -c "go run gen_neon.go s > neon_arm64.s; go run gen_neon.go go > n.tmp; mv n.tmp neon_arm64.go"

// tile runs the microkernel for rows 1 … 6 of one 16-wide panel.
func (g *gemmArgs) tile(rows int) {
	if Level < NEON {
		g.tileGo(rows)
		return
	}
	if rows > 1 && g.aRow == 4 && g.aK == 4*rows { // A was packed, with room behind
		switch rows {
		case 2:
			gemmNEON2tile(g)
		case 3:
			gemmNEON3tile(g)
		case 4:
			gemmNEON4tile(g)
		case 5:
			gemmNEON5tile(g)
		default:
			gemmNEON6tile(g)
		}
		return
	}
	switch rows {
	case 1:
		gemmNEON1(g)
	case 2:
		gemmNEON2(g)
	case 3:
		gemmNEON3(g)
	case 4:
		gemmNEON4(g)
	case 5:
		gemmNEON5(g)
	default:
		gemmNEON6(g)
	}
}

func pack16(dst, src []float32, k, ld int) { pack16Go(dst, src, 0, k, ld) }

func packRows(dst, src []float32, rows, k, ld int) { packRowsGo(dst, src, rows, 0, k, ld) }
