package xds

import (
	"slices"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/mem"
)

// run is a sequence of resources that is encoded as one piece. Without runs, a response with a thousand resources would
// have a thousand pieces, each of which gRPC accesses ten times for every stream. A run is stored in its first
// resource, so that all streams that send the sequence share it. Runs and lists of runs are immutable.
type run struct {
	set  []*Resource
	wire mem.Buffer // nil: the sequence was sent once, and is encoded when it is sent again
	size int        // length of the encoding in bytes
}

const (
	// runBytes is the maximum length of a run in bytes. Most runs are shorter, because they end before a resource for
	// which startsRun returns true.
	runBytes = 64 << 10
	// runCut is the mean number of resources between two for which startsRun returns true. The start of a run depends
	// on one name only. So an edit, or a resource that only one proxy has, changes only one run.
	runCut = 64
	// runsOfLead is the maximum number of runs that begin with one resource, because different proxies may have
	// different resources after it. The latest runs are kept.
	runsOfLead = 4
)

// Pack encodes resources as fields `resources` (number 2) of a DeltaDiscoveryResponse, in the order of set. size is the
// length of all pieces in bytes. An empty set has no pieces. The pieces are shared and read-only, and the caller owns
// the slice. Pack keeps no reference to set. It is safe for concurrent use.
func Pack(set []*Resource) (bufs mem.BufferSlice, size int) {
	if len(set) == 1 {
		return slices.Clone(set[0].Buffers()), set[0].WireSize()
	}
	for len(set) > 0 {
		lead := set[0]
		if u := lead.runOf(set); u != nil {
			if u.wire == nil {
				joined := u.join()
				lead.addRun(joined, u)
				u = joined
			}
			bufs, size, set = append(bufs, u.wire), size+u.size, set[len(u.set):]
			continue
		}
		n, bytes := recordRun(set)
		bufs = slices.Grow(bufs, n)
		for _, r := range set[:n] {
			bufs = append(bufs, r.Buffers()...)
		}
		size, set = size+bytes, set[n:]
	}
	return bufs, size
}

// runOf returns a recorded run with which a set begins, or nil. r is the first resource of the set.
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

// addRun adds a run to the resource's runs as the first, and removes the run that it replaces (may be nil). If two
// streams call it at the same time, one of the runs is lost and recorded again later.
func (r *Resource) addRun(u, inPlaceOf *run) {
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

// begins reports whether a set starts with the run.
func (u *run) begins(set []*Resource) bool {
	return len(u.set) <= len(set) && slices.Equal(u.set, set[:len(u.set)])
}

// recordRun records the run with which a set begins, without encoding it. It returns the number of the run's resources
// and their length in bytes. It does not record a run of one resource.
func recordRun(set []*Resource) (n, size int) {
	n, size = 1, set[0].WireSize()
	for n < len(set) && set[0].joinable() && set[n].joinable() && !set[n].startsRun() {
		more := set[n].WireSize()
		if size+more > runBytes {
			break
		}
		n, size = n+1, size+more
	}
	if n > 1 {
		set[0].addRun(&run{set: slices.Clone(set[:n]), size: size}, nil)
	}
	return n, size
}

// join returns the run with its encoding.
func (u *run) join() *run {
	flat := make([]byte, 0, u.size)
	for _, r := range u.set {
		for _, b := range r.Delta() {
			flat = append(flat, b...)
		}
	}
	return &run{set: u.set, size: u.size, wire: mem.SliceBuffer(flat)}
}

// joinable reports whether a resource may be part of a run. Large resources are sent as separate pieces, without a
// copy. Private keys must not be copied.
func (r *Resource) joinable() bool { return r.Type != Secret && r.size <= runBytes/4 }

// startsRun reports whether a resource always begins a new run.
func (r *Resource) startsRun() bool { return xxhash.Sum64String(r.Name)%runCut == 0 }

// WireSize returns the length of Delta in bytes.
func (r *Resource) WireSize() (size int) {
	for _, b := range r.Delta() {
		size += len(b)
	}
	return size
}
