package xds

import (
	"bytes"
	"iter"
	"slices"

	"google.golang.org/grpc/mem"
)

// Mentions reports whether the bytes of the body contain a string, for instance the name of a cluster. It returns true
// if the string is the value of a field. It may also return true if the string is only a part of another string.
func (r *Resource) Mentions(s string) bool {
	text := []byte(s)
	contains := func(f *Fragment) bool { return bytes.Contains(f.Bytes, text) }
	return bytes.Contains(r.head, text) || slices.ContainsFunc(r.tail, contains)
}

// Buffers returns the result of Delta in the form that gRPC sends. The result is made once, shared and read-only.
// Releasing the buffers has no effect.
func (r *Resource) Buffers() mem.BufferSlice {
	r.box.Do(func() {
		for _, b := range r.Delta() {
			r.boxed = append(r.boxed, mem.SliceBuffer(b))
		}
	})
	return r.boxed
}

// Replaced compares the fragments of r with those of previous, an earlier version of the resource. For each fragment
// that differs from the earlier fragment of the same name, it yields the new and the earlier fragment. Fragments
// without an earlier fragment of the same name are left out. Joined fragments without a name are compared part by part.
// If previous is nil, Replaced yields nothing. The cost grows with the number of fragments.
func (r *Resource) Replaced(previous *Resource) iter.Seq2[*Fragment, *Fragment] {
	return func(yield func(now, was *Fragment) bool) {
		if previous == nil {
			return
		}
		was, now := previous.tail, r.tail
		for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
			was, now = was[1:], now[1:]
		}
		for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
			was, now = was[:len(was)-1], now[:len(now)-1]
		}
		byName := make(map[string]*Fragment, len(was))
		for f := range named(was) {
			byName[f.Name] = f
		}
		for f := range named(now) {
			if old := byName[f.Name]; old != nil && old.Hash != f.Hash && !yield(f, old) {
				return
			}
		}
	}
}

// named iterates over a list of fragments. Instead of a joined fragment without a name, it yields the fragment's parts.
func named(all []*Fragment) iter.Seq[*Fragment] {
	return func(yield func(*Fragment) bool) {
		for _, f := range all {
			of := []*Fragment{f}
			if f.Name == "" && f.Parts != nil {
				of = f.Parts
			}
			for _, one := range of {
				if !yield(one) {
					return
				}
			}
		}
	}
}

// Apart returns the bodies of two versions of a resource, without the fragments that both versions have. The first
// result comes from before, and the second from r. Joined fragments without a name are compared part by part. Neither r
// nor before may be nil. The caller owns the results. The cost is proportional to the number of fragments, and to the
// size of the results.
func (r *Resource) Apart(before *Resource) (was, now []byte) {
	old, new := apart(before.tail, r.tail)
	old, new = apart(slices.Collect(named(old)), slices.Collect(named(new)))
	return joinBytes(before.head, old), joinBytes(r.head, new)
}

// apart returns the fragments that only a has, and those that only b has.
func apart(a, b []*Fragment) (onlyA, onlyB []*Fragment) {
	both := make(map[*Fragment]bool, len(a))
	for _, f := range a {
		both[f] = false
	}
	for _, f := range b {
		if _, is := both[f]; is {
			both[f] = true
		}
	}
	shared := func(f *Fragment) bool { return both[f] }
	return slices.DeleteFunc(slices.Clone(a), shared), slices.DeleteFunc(slices.Clone(b), shared)
}

// joinBytes returns the bytes of a head and of fragments.
func joinBytes(head []byte, tail []*Fragment) []byte {
	all := slices.Clone(head)
	for _, f := range tail {
		all = append(all, f.Bytes...)
	}
	return all
}

// EachName iterates over all strings for which Names returns true, in any order. A string may occur repeatedly.
func (f *Fragment) EachName(yield func(string) bool) {
	for _, name := range f.mentions().names {
		if !yield(name) {
			return
		}
	}
}

// Names reports whether a string field of the fragment equals name, as Resource.Names does.
func (f *Fragment) Names(name string) bool { return slices.Contains(f.mentions().names, name) }

// Pieces iterates over the fragments of the body, which follow the head.
func (r *Resource) Pieces() iter.Seq[*Fragment] { return slices.Values(r.tail) }
