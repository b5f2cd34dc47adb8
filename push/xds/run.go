package xds

import (
	"slices"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/mem"
)

// run is a sequence of resources that is encoded as one piece. Without runs, a response with a thousand resources would
// have a thousand pieces. For every stream, gRPC would access each piece ten times. A run is stored in its first
// resource. Therefore all streams that send the sequence share the run. Runs and lists of runs are immutable.
type run struct {
	set  []*Resource
	wire mem.Buffer // encoded resources; nil until the sequence is sent for the second time
	size int        // length of the encoding in bytes
}

const (
	// runBytes is the maximum length of a run in bytes. Most runs are shorter, because they end before a resource for
	// which startsRun returns true.
	runBytes = 64 << 10
	// runCut: startsRun returns true for one in runCut resources on average. The result depends only on the resource's
	// name. Therefore a changed or additional resource usually changes only one run.
	runCut = 64
	// runsOfLead is the maximum number of runs that are stored in one resource. Different proxies may have different
	// resources after this one. The latest runs are kept.
	runsOfLead = 4
)

// Pack encodes the resources of the slice set as fields `resources` (number 2) of a DeltaDiscoveryResponse, in the same
// order. bufs has the pieces of the encoding, and size is their total length in bytes. For an empty set, bufs is empty.
// The pieces are shared and read-only, and the caller owns the slice bufs. Pack keeps no reference to set. It is safe
// for concurrent use.
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

// runOf returns a stored run that is a prefix of set, or nil if there is no such run. r is the first resource of set.
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

// addRun puts u first in the list of the resource's runs. It removes the run inPlaceOf, which may be nil. If two
// streams call addRun at the same time, one of the two runs may be lost. The lost run is stored again later.
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

// begins reports whether the run is a prefix of set.
func (u *run) begins(set []*Resource) bool {
	return len(u.set) <= len(set) && slices.Equal(u.set, set[:len(u.set)])
}

// recordRun determines the run at the start of set, and stores it without its encoding. It returns the number of the
// run's resources and their total length in bytes. It does not store a run of one resource.
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

// joinable reports whether a resource may be in a run with others. Large resources are sent as separate pieces, to save
// a copy. Secrets may contain private keys, which must not be copied.
func (r *Resource) joinable() bool { return r.Type != Secret && r.size <= runBytes/4 }

// startsRun reports whether a resource always begins a new run.
func (r *Resource) startsRun() bool { return xxhash.Sum64String(r.Name)%runCut == 0 }

// WireSize returns the total length in bytes of the slices that Delta returns.
func (r *Resource) WireSize() (size int) {
	for _, b := range r.Delta() {
		size += len(b)
	}
	return size
}
