package preview

import (
	"context"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The bounds of the touched records of a plan.
const (
	maxTouched   = 1000 // records
	maxExplained = 2000 // resources and virtual hosts whose records are looked up
)

// Touched is a record from which a resource that differs is made, as it is before the change. Records of the change
// itself are not touched records. Endpoints, Pods and Secrets are left out, because they change without an edit of the
// configuration.
type Touched struct {
	Object string `json:"object"`           // "Kind namespace/name"
	Record string `json:"record,omitempty"` // key of the record, if its text differs from Object
	Hash   string `json:"hash"`             // content of the record (HashOf)
}

// HashOf returns a hash of the records of an object, for comparison. The order of the records makes no difference.
// Without records, the result is empty.
func HashOf(records []model.Record) string {
	var parts []string
	for _, r := range records {
		parts = append(parts, r.Meta().Key.String()+" "+r.Meta().Hash.String())
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return model.HashOf([]byte(strings.Join(parts, "\n"))).String()
}

// search collects the records from which resources are made.
type search struct {
	*judge
	old      *mirror.Snapshot // before the change, not resolved
	keys     map[model.Key]bool
	seen     map[*xds.Resource]bool
	hosts    map[string]bool // contents of examined virtual hosts; most scopes share them
	examined int             // resources and virtual hosts
	more     bool            // some were left out because of maxExplained
}

// touched returns the records from which the resources of groups that differ are made, sorted. Only records of visible
// namespaces that c does not edit are returned. more is true if some records are left out because of the bounds.
func (j *judge) touched(ctx context.Context, groups []*group, c mirror.Change) (all []Touched, more bool) {
	s := search{judge: j, old: c.Old, keys: map[model.Key]bool{}, seen: map[*xds.Resource]bool{}, hosts: map[string]bool{}}
	for _, g := range groups {
		for _, p := range g.Changed {
			if p.New == nil || p.Type == xds.Endpoint || p.Type == xds.Secret || s.seen[p.New] {
				continue
			}
			if s.seen[p.New] = true; ctx.Err() != nil {
				return nil, true
			}
			s.resource(g.after, p)
		}
	}
	for _, e := range c.Edits {
		delete(s.keys, e.Key())
	}
	all = []Touched{}
	for _, key := range slices.SortedFunc(maps.Keys(s.keys), model.Key.Compare) {
		r, is := c.Old.Get(key)
		if !is || !j.sees.of(key.Namespace) || !guarded(key.Kind) {
			continue
		}
		if len(all) == maxTouched {
			return all, true
		}
		one := Touched{Object: nameOf(key), Record: key.String(), Hash: HashOf([]model.Record{r})}
		if one.Record == one.Object {
			one.Record = ""
		}
		all = append(all, one)
	}
	return all, s.more
}

// resource adds the records of a resource of a proxy. For a route configuration, these are the records of the virtual
// hosts that differ.
func (s *search) resource(h *plan.Handle, p Pair) {
	if p.Type != xds.Route {
		s.add(func() []any { return s.base.Planner.Explain(h, p.Type, p.Name) })
		return
	}
	old, now := s.decodePair(p)
	was := contentsOf(old)
	for name, content := range contentsOf(now) {
		if key := p.Name + "\x00" + content; was[name] != content && !s.hosts[key] {
			s.hosts[key] = true
			s.add(func() []any { return s.virtualHost(h, p.Name, name) })
		}
	}
}

// add adds the objects of the Specs that examine returns, unless the bound is reached.
func (s *search) add(examine func() []any) {
	if s.examined == maxExplained {
		s.more = true
		return
	}
	s.examined++
	for _, key := range inspect.Objects(examine()) {
		s.keys[key] = true
	}
}

// virtualHost returns the Spec of a virtual host and of its clusters, and the objects that define its host and
// destinations. Among these are VirtualServices without precedence, which an edit may give precedence.
func (s *search) virtualHost(h *plan.Handle, config, name string) (all []any) {
	for _, r := range s.base.Planner.Serving(h, name[:max(0, strings.LastIndexByte(name, ':'))]) {
		if r.Config != config || xds.VirtualHost(r.Spec.Host, r.Spec.Port) != name {
			continue
		}
		all = append(all, r.Spec)
		hosts := []string{r.Spec.Host}
		for _, d := range r.Spec.Destinations.All() {
			hosts = append(hosts, d.Host)
			all = append(all, s.base.Planner.Explain(h, xds.Cluster, d.Cluster.String())...)
		}
		for _, host := range hosts {
			for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry, model.KindVirtualService} {
				for r := range s.old.ByHost(kind, host) {
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// guarded reports whether records of a kind change only if somebody edits the configuration.
func guarded(k model.Kind) bool {
	switch k {
	case model.KindEndpoints, model.KindWorkload, model.KindSecret, model.KindSecretReader:
		return false
	default:
		return true
	}
}

// contentsOf returns the encoded virtual hosts of a route configuration, by name. They are compared in this form, which
// is faster than proto.Equal.
func contentsOf(m proto.Message) map[string]string {
	all := map[string]string{}
	if rc, is := m.(*routev3.RouteConfiguration); is {
		for _, v := range rc.GetVirtualHosts() {
			raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(v)
			if err == nil {
				all[v.GetName()] = string(raw)
			}
		}
	}
	return all
}

// Stale returns a sentence for each object of the plan r, and for each touched record, that differs in the report now
// of the same change, which is made later. The result is nil if the plan still holds. If one of the reports lacks
// records, because of the bounds, a replica without an answer, or a refused object, only records that both have are
// compared.
func (r *Report) Stale(now *Report) (all []string) {
	was, is := r.hashes(), now.hashes()
	partial := r.MoreTouched || now.MoreTouched || now.Refused() || len(r.Partial)+len(now.Partial) > 0
	for _, key := range slices.Sorted(maps.Keys(was)) {
		a, b := was[key], is[key]
		switch {
		case !b.known && (partial || !a.known):
		case !b.known:
			all = append(all, a.object+" is deleted, or is no longer behind what changes")
		case a.hash == b.hash:
		case a.hash == "":
			all = append(all, a.object+" has been created")
		case b.hash == "":
			all = append(all, a.object+" has been deleted")
		default:
			all = append(all, a.object+" has changed")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if !was[key].known && !partial {
			all = append(all, is[key].object+" is new behind what changes")
		}
	}
	return slices.Compact(all)
}

// content is the content of an object or a record in a report.
type content struct {
	object, hash string
	known        bool
}

// hashes returns the content of the objects and touched records of a report.
func (r *Report) hashes() map[string]content {
	all := map[string]content{}
	for _, t := range r.Touched {
		all[t.Object+"\x00"+t.Record] = content{t.Object, t.Hash, true}
	}
	for _, o := range r.Objects {
		all[o.Object] = content{o.Object, o.Hash, true}
	}
	return all
}

// newest returns the touched records of all reports. Where reports differ, the report with the highest revision counts.
func newest(all []*Report) []Touched {
	type key struct{ object, record string }
	found := map[key]Touched{}
	for _, r := range slices.SortedStableFunc(slices.Values(all), func(a, b *Report) int { return int(a.Revision - b.Revision) }) {
		for _, t := range r.Touched {
			found[key{t.Object, t.Record}] = t
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Touched) int {
		return strings.Compare(a.Object+"\x00"+a.Record, b.Object+"\x00"+b.Record)
	})
}
