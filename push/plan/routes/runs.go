package routes

import (
	"crypto/sha256"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// run is a sequence of neighbouring virtual hosts that are joined into one fragment (encoded bytes). After an edit of
// one virtual host, only its run is joined again. Only the ids decide where runs end. So equal sets of virtual hosts
// have equal runs, whatever the order of the edits was.
type run struct {
	ids   []string // sorted
	frag  *xds.Fragment
	stale bool // frag has to be joined again
}

// runMask sets the average length of a run to 32 virtual hosts.
const runMask = 31

// endsRun reports whether a run ends at this id.
func endsRun(id string) bool { return xxhash.Sum64String(id)&runMask == 0 }

// runs lists the runs of one route configuration, in order.
type runs []run

// find returns the index of the run that an id belongs to. The list rs must not be empty.
func (rs runs) find(id string) int {
	return min(sort.Search(len(rs), func(i int) bool { return rs[i].ids[len(rs[i].ids)-1] >= id }), len(rs)-1)
}

// touch marks the run of an id as stale, and inserts the id if it is missing.
func (rs *runs) touch(id string) {
	if len(*rs) == 0 {
		*rs = runs{{ids: []string{id}, stale: true}}
		return
	}
	i := rs.find(id)
	r := &(*rs)[i]
	r.stale = true
	at, there := slices.BinarySearch(r.ids, id)
	if there {
		return
	}
	if at == len(r.ids) && endsRun(r.ids[at-1]) { // the id follows the last run, which is complete
		*rs = append(*rs, run{ids: []string{id}, stale: true})
		return
	}
	r.ids = slices.Insert(slices.Clone(r.ids), at, id)
	if at+1 < len(r.ids) && endsRun(id) {
		behind := run{ids: slices.Clone(r.ids[at+1:]), stale: true}
		r.ids = r.ids[:at+1]
		*rs = slices.Insert(*rs, i+1, behind)
	}
}

// remove removes an id, if it is present.
func (rs *runs) remove(id string) {
	if len(*rs) == 0 {
		return
	}
	i := rs.find(id)
	r := &(*rs)[i]
	at, there := slices.BinarySearch(r.ids, id)
	if !there {
		return
	}
	r.stale = true
	r.ids = slices.Delete(slices.Clone(r.ids), at, at+1)
	if at == len(r.ids) && endsRun(id) && i+1 < len(*rs) { // the removed id ended the run, so the next run joins this run
		r.ids = append(r.ids, (*rs)[i+1].ids...)
		*rs = slices.Delete(*rs, i+1, i+2)
	}
	if len((*rs)[i].ids) == 0 {
		*rs = slices.Delete(*rs, i, i+1)
	}
}

// joined is the Spec (the input) of a fragment that concatenates several fragments.
type joined struct {
	parts intern.List[*xds.Fragment]
}

// Fragment concatenates the bytes of the parts, and computes the hash from their hashes. The result has no name. The
// error is always nil.
func (j joined) Fragment() (*xds.Fragment, error) {
	size := 0
	for _, f := range j.parts.All() {
		size += len(f.Bytes)
	}
	out := &xds.Fragment{Bytes: make([]byte, 0, size), Parts: j.parts.All()}
	sum := sha256.New()
	for _, f := range j.parts.All() {
		out.Bytes = append(out.Bytes, f.Bytes...)
		sum.Write(f.Hash[:])
	}
	out.Hash = xds.Hash(sum.Sum(nil)[:16])
	return out, nil
}

// joinedRuns is the pool of joined fragments, which all scopes share. It is separate from the pool of virtual hosts,
// because the size of that pool is the number of virtual hosts.
var joinedRuns pool.Pool

// join concatenates fragments. For an empty list the result is nil. For a single fragment the result is this fragment.
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
