package fleet

import (
	"fmt"
	"strconv"
	"strings"

	"navarch.io/navarch/shard/ring"
)

// page is the content of /debug/fleet.
type page struct {
	Self    string       `json:"self"`
	Ring    uint64       `json:"ring"` // version of the ring; 0: there is no ring yet
	Split   []string     `json:"split_namespaces,omitempty"`
	Members []memberLine `json:"members"`
	Streams int          `json:"streams"`
	Share   float64      `json:"share"` // target number of streams of this replica: a part of all streams, by its weight
	Ready   int          `json:"ready"` // number of ready replicas
	// Owners has for each shard the index of its owner in Members (-1: no owner). It is set only with ?owners=1.
	Owners []int16 `json:"owners,omitempty"`
}

type memberLine struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	Weight  uint32 `json:"weight"`
	Shards  int    `json:"shards"`
	Owns    string `json:"owns"` // ranges of shards, at most maxRanges
}

// maxRanges is the maximum number of listed ranges of one replica. The query ?owners=1 shows the owner of every shard.
const maxRanges = 12

// ranges formats an ascending list of shards: "0-31, 40, 52-60". After maxRanges ranges it writes only the number of
// the remaining shards.
func ranges(shards []int) string {
	var parts []string
	for i := 0; i < len(shards); {
		if len(parts) == maxRanges {
			return fmt.Sprintf("%s and %d more", strings.Join(parts, ", "), len(shards)-i)
		}
		first, next := i, i+1
		for next < len(shards) && shards[next] == shards[next-1]+1 {
			next++
		}
		part := strconv.Itoa(shards[first])
		if next-first > 1 {
			part += "-" + strconv.Itoa(shards[next-1])
		}
		parts, i = append(parts, part), next
	}
	return strings.Join(parts, ", ")
}

// Page returns the content of /debug/fleet, for encoding as JSON. If owners is true, it includes the owner of each
// shard.
func (f *Fleet) Page(owners bool) any {
	r, n := f.replica.Ring(), f.replica.Numbers()
	p := page{Self: f.cfg.Name, Ring: r.Version(), Split: r.SplitNamespaces(), Members: []memberLine{},
		Streams: f.streams.Total(), Share: n.Share, Ready: n.Ready}
	p.assign(r, owners)
	return p
}

// assign adds the members of the ring r to the page, with their shards. If owners is true, it also adds the owner of
// each shard.
func (p *page) assign(r *ring.Ring, owners bool) {
	at := map[string]int{}
	for i, m := range r.Members() {
		at[m.Name] = i
		p.Members = append(p.Members, memberLine{Name: m.Name, Address: m.Address, Weight: m.Weight})
	}
	shards := make([][]int, len(p.Members))
	for shard := range ring.Shards {
		owner := -1
		if m, ok := r.Holder(shard); ok {
			owner = at[m.Name]
			shards[owner] = append(shards[owner], shard)
		}
		if owners {
			p.Owners = append(p.Owners, int16(owner))
		}
	}
	for i := range p.Members {
		p.Members[i].Shards, p.Members[i].Owns = len(shards[i]), ranges(shards[i])
	}
}
