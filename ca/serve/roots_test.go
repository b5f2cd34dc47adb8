package serve

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// A report names at most 256 roots, unchanged: an agent trusts the roots of one mesh.
func TestRootsOfAReport(t *testing.T) {
	const one = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		text  string
		times int
		want  int // roots; 0: it is refused
	}{{one, 1, 1}, {one, 256, 1}, {one, 257, 0}, {one, 0, 0}, {one[1:], 1, 0}, {one + "00", 1, 0}, {"x" + one[1:], 1, 0}} {
		list := &structpb.ListValue{}
		for range c.times {
			list.Values = append(list.Values, structpb.NewStringValue(c.text))
		}
		if got, err := fingerprints(list); len(got) != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%d times %q: %v, %v", c.times, c.text, got, err)
		}
	}
}
