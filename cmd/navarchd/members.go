package main

import (
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/shard/ring"
)

// newest is the page of commits; nil where this process does not write.
func (p *process) newest() func() []inspect.Commit {
	if p.ingester == nil {
		return nil
	}
	return p.written.list
}

// membersPage is /debug/fleet.
type membersPage struct {
	Self    string       `json:"self"`
	Ring    uint64       `json:"ring"` // its version; 0: there is none yet
	Split   []string     `json:"split_namespaces,omitempty"`
	Members []memberLine `json:"members"`
	Streams int          `json:"streams"`
	Share   float64      `json:"share"` // what this replica should serve of all, by weight
	Ready   int          `json:"ready"` // replicas
	Owners  [256]int16   `json:"owners"`
}

type memberLine struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	Weight  uint32 `json:"weight"`
	Shards  int    `json:"shards"`
}

// members is the page of the fleet; nil where this process serves no proxies.
func (p *process) members() func() any {
	if p.fleet == nil {
		return nil
	}
	return func() any {
		r, n := p.fleet.replica.Ring(), p.fleet.replica.Numbers()
		page := membersPage{Self: p.config.processName(), Ring: r.Version(), Split: r.SplitNamespaces(), Members: []memberLine{},
			Streams: p.fleet.streams.Total(), Share: n.Share, Ready: n.Ready}
		at := map[string]int{}
		for i, m := range r.Members() {
			at[m.Name] = i
			page.Members = append(page.Members, memberLine{Name: m.Name, Address: m.Address, Weight: m.Weight})
		}
		for shard := range ring.Shards {
			page.Owners[shard] = -1
			if m, ok := r.Holder(shard); ok {
				page.Owners[shard] = int16(at[m.Name])
				page.Members[at[m.Name]].Shards++
			}
		}
		return page
	}
}
