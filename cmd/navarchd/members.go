package main

import (
	"fmt"
	"strconv"
	"strings"

	"navarch.io/navarch/shard/ring"
)

// membersPage is /debug/fleet.
type membersPage struct {
	Self    string       `json:"self"`
	Ring    uint64       `json:"ring"` // its version; 0: there is none yet
	Split   []string     `json:"split_namespaces,omitempty"`
	Members []memberLine `json:"members"`
	Streams int          `json:"streams"`
	Share   float64      `json:"share"` // what this replica should serve of all, by weight
	Ready   int          `json:"ready"` // replicas
	// Owners has, for each shard, the index of its owner in Members, -1: nobody; with ?owners=1 only.
	Owners []int16 `json:"owners,omitempty"`
}

type memberLine struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	Weight  uint32 `json:"weight"`
	Shards  int    `json:"shards"`
	Owns    string `json:"owns"` // ranges of shards, at most maxRanges of them
}

// maxRanges bounds the ranges of shards that are named for one replica; ?owners=1 has all.
const maxRanges = 12

// ranges writes an ascending list of shards as a person reads it: "0-31, 40, 52-60".
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

// members is the page of the fleet.
func (f *fleet) members(owners bool) any {
	r, n := f.replica.Ring(), f.replica.Numbers()
	page := membersPage{Self: f.config.processName(), Ring: r.Version(), Split: r.SplitNamespaces(), Members: []memberLine{},
		Streams: f.streams.Total(), Share: n.Share, Ready: n.Ready}
	page.assign(r, owners)
	return page
}

// assign fills in what each member of a ring owns.
func (page *membersPage) assign(r *ring.Ring, owners bool) {
	at := map[string]int{}
	for i, m := range r.Members() {
		at[m.Name] = i
		page.Members = append(page.Members, memberLine{Name: m.Name, Address: m.Address, Weight: m.Weight})
	}
	shards := make([][]int, len(page.Members))
	for shard := range ring.Shards {
		owner := -1
		if m, ok := r.Holder(shard); ok {
			owner = at[m.Name]
			shards[owner] = append(shards[owner], shard)
		}
		if owners {
			page.Owners = append(page.Owners, int16(owner))
		}
	}
	for i := range page.Members {
		page.Members[i].Shards, page.Members[i].Owns = len(shards[i]), ranges(shards[i])
	}
}
