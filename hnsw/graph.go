package hnsw

import "math"

// graph is the layered graph, in memory or mapped. Level 0 has 2M places for each
// row, the first unused one holding endMark. Nodes of higher levels are numbered in
// the order of their rows; upLists holds, from upFirst[u] on, M places for each level
// from 1 up, with numbers of that kind.
type graph struct {
	n, m     int
	level0   []uint32
	upRow    []uint32
	upFirst  []uint32
	upLists  []uint32
	entryRow uint32
	entryUp  uint32
	top      int
}

// list0 is row id's places at level 0; nil when id is outside the graph.
func (g *graph) list0(id uint32) []uint32 {
	d := 2 * g.m
	i := int(id) * d
	if i+d > len(g.level0) {
		return nil
	}
	return g.level0[i : i+d : i+d]
}

// upper is the places of node u at level l ≥ 1; nil when there are none.
func (g *graph) upper(u uint32, l int) []uint32 {
	if int(u)+1 >= len(g.upFirst) {
		return nil
	}
	i := int(g.upFirst[u]) + l - 1
	if i >= int(g.upFirst[u+1]) || (i+1)*g.m > len(g.upLists) {
		return nil
	}
	return g.upLists[i*g.m : (i+1)*g.m : (i+1)*g.m]
}

// used cuts a list's places to those in use.
func used(places []uint32) []uint32 {
	for i, x := range places {
		if x == endMark {
			return places[:i]
		}
	}
	return places
}

// setList fills places with ids and end marks.
func setList(places, ids []uint32) {
	n := copy(places, ids)
	for i := n; i < len(places); i++ {
		places[i] = endMark
	}
}

// levelOf draws a row's level from the usual exponential distribution; it depends on
// seed and row alone.
func levelOf(seed uint64, row, m int) int {
	u := (float64(mix(seed, uint64(row))>>11) + 0.5) / (1 << 53)
	return min(int(-math.Log(u)/math.Log(float64(m))), maxLevel)
}

// newGraph lays out an empty graph for n rows in 2mn places; isDup rows stay at level 0, without
// edges.
func newGraph(n, m int, seed uint64, isDup func(row int) bool, level0 []uint32) *graph {
	g := &graph{n: n, m: m, level0: level0}
	for i := range g.level0 {
		g.level0[i] = endMark
	}
	lists := 0
	for i := range n {
		if l := levelOf(seed, i, m); l > 0 && !isDup(i) {
			g.upRow = append(g.upRow, uint32(i))
			g.upFirst = append(g.upFirst, uint32(lists))
			lists += l
		}
	}
	g.upFirst = append(g.upFirst, uint32(lists))
	g.upLists = make([]uint32, lists*m)
	for i := range g.upLists {
		g.upLists[i] = endMark
	}
	return g
}
