package endpoint

import "slices"

// perPiece is the number of steps between two pauses. So many steps take about two milliseconds of processor time.
const perPiece = 2000

// pacer divides work on the endpoints of one assignment into pieces.
type pacer struct {
	pause func() // called between two pieces
	steps int
}

// step counts one step of the work, and pauses after each piece.
func (p *pacer) step() {
	if p.steps++; p.steps%perPiece == 0 {
		p.pause()
	}
}

// sorted returns a list in order. Equal elements keep their order. sorted sorts pieces of the list, and merges the
// pieces. The result may share memory with the argument list.
func sorted[T any](p *pacer, list []T, compare func(a, b T) int) []T {
	if slices.IsSortedFunc(list, compare) { // most assignments have one locality, and members are in order of address
		return list
	}
	for piece := range slices.Chunk(list, perPiece) {
		slices.SortStableFunc(piece, compare)
		p.pause()
	}
	if len(list) <= perPiece {
		return list
	}
	other := make([]T, 0, len(list))
	for size := perPiece; size < len(list); size *= 2 {
		other = other[:0]
		for pair := range slices.Chunk(list, 2*size) {
			other = merge(p, other, pair[:min(size, len(pair))], pair[min(size, len(pair)):], compare)
		}
		list, other = other, list
	}
	return list
}

// merge merges the sorted lists a and b, and appends the result to the parameter to. Elements of a precede equal
// elements of b.
func merge[T any](p *pacer, to, a, b []T, compare func(a, b T) int) []T {
	for len(a) > 0 && len(b) > 0 {
		if p.step(); compare(b[0], a[0]) < 0 {
			to, b = append(to, b[0]), b[1:]
		} else {
			to, a = append(to, a[0]), a[1:]
		}
	}
	return append(append(to, a...), b...)
}
