package xds

import (
	"slices"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/mem"
)

// run is resources that follow one another in a response, encoded as one piece: a response of a thousand resources is a
// thousand pieces otherwise, each of which gRPC touches ten times for every stream. It hangs on its first resource, so
// that streams, scopes and views that send the same resources share it. Immutable, as is a list of them.
type run struct {
	set  []*Resource
	wire mem.Buffer // nil: the resources were met together once; they are joined when they are met again
	size int        // of the encoding, bytes
}

const (
	// runBytes is the greatest length of a run. Most end before: at a resource whose name says so.
	runBytes = 64 << 10
	// runCut is how many resources lie between two whose names begin a run, in the mean. Where a run begins depends on
	// one name only, so that an edit, or a resource that one proxy alone has, breaks up one run and leaves the others.
	runCut = 64
	// runsOfLead is how many runs a resource leads at most: proxies that see other services may have others after it. The last ones stay.
	runsOfLead = 4
)

// Pack is resources as `resources` fields (number 2) of a DeltaDiscoveryResponse, in the order of the set, and the length
// in bytes. The pieces are shared by all streams and never changed; the slice is the caller's.
func Pack(set []*Resource) (bufs mem.BufferSlice, size int) {
	if len(set) == 1 {
		return slices.Clone(set[0].Buffers()), set[0].WireSize()
	}
	for len(set) > 0 {
		lead := set[0]
		if u := lead.runOf(set); u != nil {
			if u.wire == nil {
				joined := u.join()
				lead.leads(joined, u)
				u = joined
			}
			bufs, size, set = append(bufs, u.wire), size+u.size, set[len(u.set):]
			continue
		}
		n, bytes := meet(set)
		bufs = slices.Grow(bufs, n)
		for _, r := range set[:n] {
			bufs = append(bufs, r.Buffers()...)
		}
		size, set = size+bytes, set[n:]
	}
	return bufs, size
}

// runOf is the run that a set begins with, the resource first; nil: it leads none of these.
func (r *Resource) runOf(set []*Resource) *run {
	if all := r.runs.Load(); all != nil {
		for _, u := range *all {
			if u.begins(set) {
				return u
			}
		}
	}
	return nil
}

// leads puts a run first among those of the resource; of another one's in the place, if there is one. Where two streams do so at once,
// one run is forgotten, and met again.
func (r *Resource) leads(u, inPlaceOf *run) {
	all := []*run{u}
	if known := r.runs.Load(); known != nil {
		for _, one := range *known {
			if one != inPlaceOf && len(all) < runsOfLead {
				all = append(all, one)
			}
		}
	}
	r.runs.Store(&all)
}

// begins says whether a set starts with the run.
func (u *run) begins(set []*Resource) bool {
	return len(u.set) <= len(set) && slices.Equal(u.set, set[:len(u.set)])
}

// meet remembers the run that a set begins with: how many resources, and of what length. One is nothing to remember.
func meet(set []*Resource) (n, size int) {
	n, size = 1, set[0].WireSize()
	for n < len(set) && set[0].joins() && set[n].joins() && !set[n].cuts() {
		more := set[n].WireSize()
		if size+more > runBytes {
			break
		}
		n, size = n+1, size+more
	}
	if n > 1 {
		set[0].leads(&run{set: slices.Clone(set[:n]), size: size}, nil)
	}
	return n, size
}

func (u *run) join() *run {
	flat := make([]byte, 0, u.size)
	for _, r := range u.set {
		for _, b := range r.Delta() {
			flat = append(flat, b...)
		}
	}
	return &run{set: u.set, size: u.size, wire: mem.SliceBuffer(flat)}
}

// joins says whether a resource may be part of a run: large ones are pieces of their own without a copy, and of private
// keys there is no second one.
func (r *Resource) joins() bool { return r.Type != Secret && r.size <= runBytes/4 }

// cuts says whether a resource is the first of a run wherever it is sent.
func (r *Resource) cuts() bool { return xxhash.Sum64String(r.Name)%runCut == 0 }

// WireSize is the length of Delta in bytes.
func (r *Resource) WireSize() (size int) {
	for _, b := range r.Delta() {
		size += len(b)
	}
	return size
}
