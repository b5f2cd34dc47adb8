package debug

import (
	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/push/join"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
)

// mostOwn is the maximum number of proxies whose own resources are archived. Other proxies share the resources of one
// proxy of their view (the proxies with equal planned configuration).
const mostOwn = 200

// Archive returns the connected proxies for a report, in no particular order, and adds the resources of these proxies
// to sets. The proxies of one view, which have equal planned configuration, share the resources of one proxy. Proxies
// that refuse something or are behind get their own resources. At most 200 proxies get their own. The field Set of a
// proxy is the number of its resources in sets.
func (p *Proxies) Archive(sets *report.Sets) []report.Proxy {
	infos := p.Server.Inspect()
	all := make([]report.Proxy, 0, len(infos))
	views, streams := map[view.View][]int{}, make([]serve.StreamInfo, 0, len(infos))
	for _, info := range infos {
		proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy)
		if !ok { // its stream has ended
			continue
		}
		s := p.stream(info)
		of := proxy.View()
		views[of] = append(views[of], len(all))
		streams = append(streams, info)
		all = append(all, report.Proxy{Node: report.Node(*proxy.Node), Identity: s.Identity, Address: s.Address, Connected: s.Connected,
			Behind: s.Behind, Revision: s.Revision, Types: report.StatesOf(&s.Types), Set: -1})
	}
	own := 0
	for _, members := range views {
		own += p.archiveView(sets, all, streams, members, mostOwn-own)
	}
	return all
}

// archiveView adds the resources of the proxies of one view to sets. At most limit proxies that refuse something or are
// behind get sets of their own. The result is the number of these proxies. All other proxies share the set of the first
// proxy that is in sync. If no proxy is in sync, they share the set of the first of them.
func (p *Proxies) archiveView(sets *report.Sets, all []report.Proxy, streams []serve.StreamInfo, members []int, limit int) (own int) {
	held := func(i int) int {
		resources, _ := p.Server.Dump(streams[i].ID) // an ended stream holds nothing
		return sets.Add(resources)
	}
	common := -1
	var others []int
	for _, i := range members {
		refuses, behind := all[i].Ill()
		switch {
		case !refuses && !behind && common < 0:
			common = held(i)
			all[i].Set = common
		case (refuses || behind) && own < limit:
			own++
			all[i].Set = held(i)
		default:
			others = append(others, i)
		}
	}
	if common < 0 && len(others) > 0 {
		common = held(others[0])
	}
	for _, i := range others {
		all[i].Set = common
	}
	return own
}
