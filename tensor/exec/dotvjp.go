package exec

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// GoMLX writes the gradient of a DotGeneral as a product with all axes spelt out and a
// sum over them, which for a linear layer is an array of rows × in × out that no engine
// but XLA can avoid. Its derivative is two DotGenerals; they are registered in its place.
func init() { graph.VJPRegistration[graph.NodeTypeDotGeneral] = dotGeneralVJP }

// dotGeneralVJP gives the gradients of both operands from v [batch…, left…, right…].
func dotGeneralVJP(n *graph.Node, vs []*graph.Node, _ shapes.Shape) []*graph.Node {
	v := vs[0]
	l, r := n.Inputs()[0], n.Inputs()[1]
	lc, lb, rc, rb := axesOf(n, "lhsContractingAxes"), axesOf(n, "lhsBatchAxes"), axesOf(n, "rhsContractingAxes"), axesOf(n, "rhsBatchAxes")
	lm, rn := others(l.Rank(), lc, lb), others(r.Rank(), rc, rb)
	nb := len(lb)
	batch, left, right := upTo(0, nb), upTo(nb, nb+len(lm)), upTo(nb+len(lm), nb+len(lm)+len(rn))
	return []*graph.Node{
		operandVJP(v, right, batch, r, rn, rb, rc, lb, lm, lc),
		operandVJP(v, left, batch, l, lm, lb, lc, rb, rn, rc),
	}
}

// operandVJP contracts v with the other operand over that one's free axes. What is left
// of both is [batch…, own free…, contracted…], the last in the order that they have in
// the other operand; they go to their places in the own one.
func operandVJP(v *graph.Node, free, batch []int, other *graph.Node, otherFree, otherBatch, otherContracted, ownBatch, ownFree, ownContracted []int) *graph.Node {
	g := graph.DotGeneral(v, free, batch, other, otherFree, otherBatch)
	order := upTo(0, len(otherContracted))
	slices.SortFunc(order, func(a, b int) int { return otherContracted[a] - otherContracted[b] })
	from := slices.Concat(ownBatch, ownFree) // own axis of each axis of g
	for _, k := range order {
		from = append(from, ownContracted[k])
	}
	perm := make([]int, len(from))
	for i, axis := range from {
		perm[axis] = i
	}
	if slices.IsSorted(perm) {
		return g
	}
	return graph.TransposeAllAxes(g, perm...)
}

// axesOf reads the axes of a DotGeneral, which GoMLX keeps to itself.
func axesOf(n *graph.Node, name string) (axes []int) {
	f := reflect.ValueOf(n).Elem().FieldByName("inputs")
	for f.IsValid() && (f.Kind() == reflect.Interface || f.Kind() == reflect.Pointer) {
		f = f.Elem()
	}
	if f.IsValid() && f.Kind() == reflect.Struct {
		f = f.FieldByName(name)
	}
	if !f.IsValid() || f.Kind() != reflect.Slice {
		panic(fmt.Errorf("gradient of DotGeneral: this version of GoMLX has no field %s", name))
	}
	for i := range f.Len() {
		axes = append(axes, int(f.Index(i).Int()))
	}
	return axes
}

// upTo counts from … to-1.
func upTo(from, to int) []int {
	out := []int{}
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// others are the axes below rank that are in neither list.
func others(rank int, a, b []int) (out []int) {
	for i := range rank {
		if !slices.Contains(a, i) && !slices.Contains(b, i) {
			out = append(out, i)
		}
	}
	return
}
