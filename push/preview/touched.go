package preview

import (
	"cmp"
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
// configuration. Resources and virtual hosts that the change removes are not examined.
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
	seen     map[Pair]bool           // examined pairs
	routes   map[examinedRoutes]bool // examined differences of route configurations; most scopes share them
	hosts    map[string]bool         // contents of examined virtual hosts, by the name of their route configuration
	examined int                     // resources and virtual hosts
	more     bool                    // some were left out because of maxExplained, or because the context ended
}

// examinedRoutes identifies the differences of two route configurations with one name.
type examinedRoutes struct {
	name string
	*decoded
}

// touched returns the records from which the resources of groups that differ are made, sorted. Only records of visible
// namespaces that c does not edit are returned. more is true if some records are left out because of the bounds, or
// because ctx ended.
func (j *judge) touched(ctx context.Context, groups []*group, c mirror.Change) (all []Touched, more bool) {
	s := search{judge: j, old: c.Old, keys: map[model.Key]bool{}, seen: map[Pair]bool{},
		routes: map[examinedRoutes]bool{}, hosts: map[string]bool{}}
	s.groups(ctx, groups)
	for _, e := range c.Edits {
		delete(s.keys, e.Key())
	}
	all = []Touched{}
	for _, key := range slices.SortedFunc(maps.Keys(s.keys), model.Key.Compare) {
		r, is := c.Old.Get(key)
		if !is || !j.sees.of(key.Namespace) || !configured(key.Kind) {
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

// groups adds the records of the resources of groups that differ, until some are left out.
func (s *search) groups(ctx context.Context, all []*group) {
	for _, g := range all {
		for _, p := range g.Changed {
			if p.New == nil || p.Type == xds.Endpoint || p.Type == xds.Secret || s.seen[p] {
				continue
			}
			if s.more = s.more || ctx.Err() != nil; s.more {
				return
			}
			s.seen[p] = true
			s.resource(ctx, g.after, p)
		}
	}
}

// resource adds the records of a resource of a proxy. For a route configuration, these are the records of the virtual
// hosts that differ.
func (s *search) resource(ctx context.Context, h *plan.Handle, p Pair) {
	if p.Type != xds.Route {
		s.add(ctx, func() []any { return s.base.Planner.Explain(h, p.Type, p.Name) })
		return
	}
	d := s.decodePair(p)
	config := examinedRoutes{p.Name, d}
	if s.routes[config] {
		return
	}
	s.routes[config] = true
	was := encodedHosts(d.old)
	for name, content := range encodedHosts(d.now) {
		if key := p.Name + "\x00" + content; was[name] != content && !s.hosts[key] {
			s.hosts[key] = true
			s.add(ctx, func() []any { return s.virtualHost(h, p.Name, name) })
		}
	}
}

// add adds the objects of the Specs that examine returns, unless the bound is reached or ctx has ended.
func (s *search) add(ctx context.Context, examine func() []any) {
	if s.examined == maxExplained || ctx.Err() != nil {
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
	for _, r := range s.serving(h, config, name) {
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

// configured reports whether records of a kind change only if somebody edits the configuration.
func configured(k model.Kind) bool {
	switch k {
	case model.KindEndpoints, model.KindWorkload, model.KindSecret, model.KindSecretReader:
		return false
	default:
		return true
	}
}

// encodedHosts returns the encoded virtual hosts of a route configuration, by name. They are compared in this form,
// which is faster than proto.Equal.
func encodedHosts(m proto.Message) map[string]string {
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

// hashed is the content of an object or a record in a report.
type hashed struct {
	object, hash string
	known        bool
}

// hashes returns the content of the objects and touched records of a report.
func (r *Report) hashes() map[string]hashed {
	all := map[string]hashed{}
	for _, t := range r.Touched {
		all[t.Object+"\x00"+t.Record] = hashed{t.Object, t.Hash, true}
	}
	for _, o := range r.Objects {
		all[o.Object] = hashed{o.Object, o.Hash, true}
	}
	return all
}

// newest returns the touched records of all reports. Where reports differ, the report with the highest revision counts.
func newest(all []*Report) []Touched {
	type key struct{ object, record string }
	found := map[key]Touched{}
	for _, r := range slices.SortedStableFunc(slices.Values(all), func(a, b *Report) int { return cmp.Compare(a.Revision, b.Revision) }) {
		for _, t := range r.Touched {
			found[key{t.Object, t.Record}] = t
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Touched) int {
		return strings.Compare(a.Object+"\x00"+a.Record, b.Object+"\x00"+b.Record)
	})
}
