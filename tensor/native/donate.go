package native

import "slices"

// inPlace tells for each output which parameter, or -1, it may take the memory of when
// that is donated: the output is a DynamicUpdateSlice of the whole parameter, and
// nothing reads the parameter afterwards.
func inPlace(order []*unit, outs []*value) []int {
	into := make([]int, len(outs))
	taken := map[*value]bool{}
	for i, v := range outs {
		into[i] = -1
		if v == nil || v.over == nil || taken[v.over] {
			continue
		}
		at := slices.Index(order, v.unit)
		free := at >= 0
		for j, u := range order {
			n := 0
			for _, in := range u.inputs {
				if in == v.over {
					n++
				}
			}
			free = free && (j < at || n == 0 || j == at && n == 1)
		}
		if free {
			into[i], taken[v.over] = v.over.index, true
		}
	}
	return into
}

// takeOver moves the memory of a donated buffer to a new one, for an output; nil when
// that cannot be: the memory is not flat, or not the backend's own.
func (b *Backend) takeOver(from *Buffer) *Buffer {
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.shared || from.adopted || from.mem == nil {
		return nil
	}
	to := &Buffer{backend: b, shape: from.shape, mem: from.mem, bytes: from.bytes}
	from.mem = nil
	return to
}

// output is the buffer of output i: a new one, or a donated input's memory.
func (e *Executable) output(i int, x *execution, donate []bool) *Buffer {
	if p := e.inPlace[i]; p >= 0 && donate != nil && donate[p] {
		for j, other := range x.params {
			if j != p && other == x.params[p] {
				return e.backend.newBuffer(e.outputs[i])
			}
		}
		if b := e.backend.takeOver(x.params[p]); b != nil {
			return b
		}
	}
	return e.backend.newBuffer(e.outputs[i])
}
