package meaning

import "google.golang.org/protobuf/reflect/protoreflect"

// without returns the elements of the list l that are not in the list other. If l contains an element more often than
// the other list does, the result contains each extra occurrence.
func without(fd protoreflect.FieldDescriptor, l, other protoreflect.List, depth int) (rest []protoreflect.Value) {
	counts := map[string]int{}
	for _, sum := range (digester{}).elements(fd, other, depth) {
		counts[sum]++
	}
	for i, sum := range (digester{}).elements(fd, l, depth) {
		if counts[sum]--; counts[sum] < 0 {
			rest = append(rest, l.Get(i))
		}
	}
	return rest
}
