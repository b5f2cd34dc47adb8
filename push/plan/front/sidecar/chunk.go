package sidecar

import (
	"crypto/sha256"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// chunk is a run of virtual hosts that stand together in a route configuration, joined into one fragment, so that an edit
// of one costs its run and a short list of runs, not a list of all. Where runs end is decided by the names alone:
// equal sets of hosts have equal runs, whatever edits led to them.
type chunk struct {
	entries []string // ids, sorted
	frag    *xds.Fragment
	dirty   bool
}

// chunkEnds makes runs of 32 hosts on average.
const chunkEnds = 31

func ends(host string) bool { return xxhash.Sum64String(host)&chunkEnds == 0 }

// runs are those of one route configuration, in order.
type runs []chunk

// find is the run that a host belongs to.
func (cs runs) find(host string) int {
	return min(sort.Search(len(cs), func(i int) bool { return cs[i].entries[len(cs[i].entries)-1] >= host }), len(cs)-1)
}

// touch marks the run of a host, and puts the host in where it is not.
func (cs *runs) touch(host string) {
	if len(*cs) == 0 {
		*cs = runs{{entries: []string{host}, dirty: true}}
		return
	}
	i := cs.find(host)
	c := &(*cs)[i]
	c.dirty = true
	at, there := slices.BinarySearch(c.entries, host)
	if there {
		return
	}
	if at == len(c.entries) && ends(c.entries[at-1]) { // behind the last run, which is closed
		*cs = append(*cs, chunk{entries: []string{host}, dirty: true})
		return
	}
	c.entries = slices.Insert(slices.Clone(c.entries), at, host)
	if at+1 < len(c.entries) && ends(host) {
		rest := chunk{entries: slices.Clone(c.entries[at+1:]), dirty: true}
		c.entries = c.entries[:at+1]
		*cs = slices.Insert(*cs, i+1, rest)
	}
}

// remove takes a host out.
func (cs *runs) remove(host string) {
	if len(*cs) == 0 {
		return
	}
	i := cs.find(host)
	c := &(*cs)[i]
	at, there := slices.BinarySearch(c.entries, host)
	if !there {
		return
	}
	c.dirty = true
	c.entries = slices.Delete(slices.Clone(c.entries), at, at+1)
	if at == len(c.entries) && ends(host) && i+1 < len(*cs) { // its end is gone: the next run belongs to it
		c.entries = append(c.entries, (*cs)[i+1].entries...)
		*cs = slices.Delete(*cs, i+1, i+2)
	}
	if len((*cs)[i].entries) == 0 {
		*cs = slices.Delete(*cs, i, i+1)
	}
}

// joined is the fragment of several fragments in a row.
type joined struct {
	parts intern.List[*xds.Fragment]
}

// Fragment joins the bytes; the hash is that of the parts' hashes.
func (j joined) Fragment() (*xds.Fragment, error) {
	size := 0
	for _, f := range j.parts.All() {
		size += len(f.Bytes)
	}
	out := &xds.Fragment{Bytes: make([]byte, 0, size)}
	sum := sha256.New()
	for _, f := range j.parts.All() {
		out.Bytes = append(out.Bytes, f.Bytes...)
		sum.Write(f.Hash[:])
	}
	out.Hash = xds.Hash(sum.Sum(nil)[:16])
	return out, nil
}

// joinedRuns holds the joined virtual hosts of all scopes; it is not the pool of the builders, because they are no virtual hosts.
var joinedRuns pool.Pool

// join is the fragment of a run; nil where nothing is in it.
func join(parts []*xds.Fragment) *xds.Fragment {
	switch len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	}
	f, _ := joinedRuns.Fragment(joined{fragments.List(parts...)}) // joining cannot fail
	return f
}
