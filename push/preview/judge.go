package preview

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// maxApart is the maximum number of decoded route configurations that a judge caches.
const maxApart = 20_000

// maxPlain is the maximum number of workloads without mTLS that risks name.
const maxPlain = 100

// maxEdited is the maximum number of objects of a change that risks may name.
const maxEdited = 1000

// judge finds the facts and risks of views. It decodes each resource once.
type judge struct {
	base    *plan.Base
	sees    Sees
	after   *mirror.Snapshot // the source's snapshot after the change, not resolved
	plain   []string         // result of plainCallers
	edited  []string         // result of editedObjects
	decoder meaning.Decoder
	decoded map[Pair]*decoded      // cache of decodePair, for route configurations
	apart   map[[2]string]*decoded // the same, by what the versions do not have in common
}

// assess sets the facts and risks of the change c, whose differences are in p, and the touched records. The parameter
// base is the copy of the plan with the change. The parameter views is the number of visible views after the change. If
// fleet is false, the plan is about a part of the fleet, and shares of all proxies are no risk.
func (p *Plan) assess(ctx context.Context, base *plan.Base, c mirror.Change, sees Sees, views int, fleet bool) {
	j := newJudge(base, c, sees)
	groups := alike(p.Views)
	all := func(yield func(meaning.View) bool) {
		for _, g := range groups {
			if ctx.Err() != nil || !yield(j.view(g)) {
				return
			}
		}
	}
	reach := meaning.Reach{MeshWide: meshWide(c), Edited: j.edited, Proxies: p.Affected(), All: p.Proxies,
		Views: [2]int{p.AllViews, views}, Bytes: growth(p.Views), Found: patchRisks(ctx, base.Planner, c, sees)}
	if !fleet {
		reach.All, reach.Views = 0, [2]int{}
	}
	p.Summary = meaning.Over(ctx, all, reach)
	p.Touched, p.MoreTouched = j.touched(ctx, groups, c)
}

// newJudge returns the judge of the change c. The parameter base is the copy of the plan with the change.
func newJudge(base *plan.Base, c mirror.Change, sees Sees) *judge {
	return &judge{base: base, sees: sees, after: c.New, decoded: map[Pair]*decoded{}, apart: map[[2]string]*decoded{},
		plain: plainCallers(c.New, sees), edited: editedObjects(c, sees)}
}

// growth returns the sizes in bytes of one proxy's configuration, before and after a change. It chooses a proxy of the
// view that grows most in proportion to its size before. Without growth, both sizes are 0.
func growth(views []View) (most [2]int64) {
	sizes := map[*manifest.Manifest]int64{}
	size := func(m *manifest.Manifest) int64 {
		sum, known := sizes[m]
		if !known {
			for r := range m.All() {
				sum += int64(r.Size())
			}
			sizes[m] = sum
		}
		return sum
	}
	for i := range views {
		v, more := &views[i], int64(0)
		for _, p := range v.Changed {
			more += sizeOf(p.New) - sizeOf(p.Old)
		}
		if more <= 0 {
			continue
		}
		var before int64
		for t := range xds.NumTypes {
			for _, m := range v.Before.Types[t] {
				before += size(m)
			}
		}
		if most[0] == 0 || more*most[0] > (most[1]-most[0])*before {
			most = [2]int64{before, before + more}
		}
	}
	return most
}

// sizeOf returns the size of a resource in bytes. For nil it returns 0.
func sizeOf(r *xds.Resource) int64 {
	if r == nil {
		return 0
	}
	return int64(r.Size())
}

// plainCallers returns visible workloads without mTLS, as "name.namespace", at most maxPlain. They may send requests in
// plain text.
func plainCallers(s *mirror.Snapshot, sees Sees) (all []string) {
	for r := range s.All(model.KindWorkload) {
		w := r.(*model.Workload)
		if !w.Spec.GetEndpoint().GetMtls() && sees.of(w.Key.Namespace) && len(all) < maxPlain {
			all = append(all, normal.SourceObject(w.Key).Name+"."+w.Key.Namespace)
		}
	}
	return all
}

// editedObjects returns at most maxEdited visible objects of a change, as "Kind namespace/name", sorted.
func editedObjects(c mirror.Change, sees Sees) (all []string) {
	for _, e := range c.Edits {
		if key := e.Key(); sees.of(key.Namespace) && len(all) < maxEdited {
			all = append(all, nameOf(key))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// exists reports whether a snapshot has a record of an object, named as "Kind namespace/name".
func exists(s *mirror.Snapshot, name string) bool {
	word, rest, _ := strings.Cut(name, " ")
	namespace, name, _ := strings.Cut(rest, "/")
	for _, kind := range model.Kinds() {
		if kind.String() != word {
			continue
		}
		for range s.Named(kind, namespace, name) {
			return true
		}
	}
	return false
}

// group represents several views by one of them, and counts the proxies of all. The views of a group differ only in
// parts that the change does not affect.
type group struct {
	*View
	proxies int
	members []map[identity]*plan.Handle // View.identities of each view
}

// alike groups views with the same outbound side and the same differences. Most views of a namespace differ only in
// their inbound sides.
func alike(views []View) (groups []*group) {
	type outbound struct {
		was, is [xds.NumTypes][2]*manifest.Manifest
		changed intern.List[Pair]
	}
	at := map[outbound]*group{}
	for i := range views {
		v := &views[i]
		key := outbound{changed: pairs.List(v.Changed...)}
		for t := range xds.NumTypes {
			key.was[t] = [2]*manifest.Manifest{v.Before.Types[t][manifest.Scope], v.Before.Types[t][manifest.Variant]}
			key.is[t] = [2]*manifest.Manifest{v.After.Types[t][manifest.Scope], v.After.Types[t][manifest.Variant]}
		}
		if at[key] == nil {
			at[key] = &group{View: v}
			groups = append(groups, at[key])
		}
		at[key].proxies += len(v.Proxies)
		at[key].members = append(at[key].members, v.identities)
	}
	return groups
}

var pairs intern.Table[Pair]

// view converts a group of views for package meaning.
func (j *judge) view(v *group) meaning.View {
	out := meaning.View{Label: v.Label, Proxies: v.proxies, PlainCallers: j.plain, Edited: j.edited,
		Before: j.decoder.Set(v.Before), After: j.decoder.Set(v.After),
		Exists:      func(name string) bool { return exists(j.after, name) },
		Objects:     func(t xds.Type, name string) []string { return j.objects(v.after, t, name) },
		Refused:     func(secret string) string { return j.refused(v.members, secret) },
		Unreachable: func(config, host string) []*routev3.Route { return j.unreachable(v.after, config, host) }}
	for _, p := range v.Changed {
		d := j.decodePair(p)
		pair := meaning.Pair{Type: p.Type, Name: p.Name, Old: d.old, New: d.now, Versions: d.versions}
		for _, r := range []*xds.Resource{p.Old, p.New} {
			pair.Confidential = pair.Confidential || r != nil && r.Confidential
		}
		out.Pairs = append(out.Pairs, pair)
	}
	return out
}

// refused returns the reason why proxies of some identities may not have a Secret after the change. If other identities
// may have it, or several reasons exist, the result is the first reason, with the number of refused identities.
func (j *judge) refused(views []map[identity]*plan.Handle, secret string) string {
	reasons := map[identity]string{}
	for _, identities := range views {
		for who, h := range identities {
			if _, known := reasons[who]; !known {
				reasons[who] = j.base.Planner.DeniedSecret(h, secret)
			}
		}
	}
	all := len(reasons)
	maps.DeleteFunc(reasons, func(_ identity, why string) bool { return why == "" })
	if len(reasons) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Values(reasons)))
	if all == 1 {
		return first
	}
	return fmt.Sprintf("%s (%d of %d identities are refused)", first, len(reasons), all)
}

// decoded contains both versions of a resource; a missing version is nil. Pairs with equal types, names and versions
// have equal content.
type decoded struct {
	old, now proto.Message
	versions [2]string
}

// decodePair decodes both versions of a resource. A route configuration may have thousands of virtual hosts. Of these,
// decodePair decodes only those that differ. Most scopes have the same, so these are decoded once.
func (j *judge) decodePair(p Pair) *decoded {
	if p.Type != xds.Route || p.Old == nil || p.New == nil {
		return j.decodeWhole(p)
	}
	if known := j.decoded[p]; known != nil {
		return known
	}
	was, is := p.New.Apart(p.Old)
	key := [2]string{string(was), string(is)}
	d := j.apart[key]
	if d == nil {
		a, b := &routev3.RouteConfiguration{}, &routev3.RouteConfiguration{}
		if proto.Unmarshal(was, a) != nil || proto.Unmarshal(is, b) != nil {
			return j.decodeWhole(p)
		}
		d = &decoded{a, b, key}
	}
	if len(j.decoded) < maxApart {
		j.decoded[p], j.apart[key] = d, d
	}
	return d
}

// decodeWhole decodes both versions of a resource completely.
func (j *judge) decodeWhole(p Pair) *decoded {
	d := &decoded{old: j.decoder.Message(p.Old), now: j.decoder.Message(p.New)}
	for i, r := range []*xds.Resource{p.Old, p.New} {
		if r != nil {
			d.versions[i] = r.Version
		}
	}
	return d
}

// objects returns the visible objects from which a resource is made after the change. For a route configuration it
// returns nil, because its many objects do not identify the cause of one rule.
func (j *judge) objects(h *plan.Handle, t xds.Type, name string) (all []string) {
	if t == xds.Route {
		return nil
	}
	for _, at := range inspect.Blame(j.base.Planner.Explain(h, t, name), "") {
		if j.sees.of(at.Key.Namespace) {
			all = append(all, nameOf(at.Key))
		}
	}
	return all
}

// nameOf returns the name of the object of a record, as "Kind namespace/name".
func nameOf(key model.Key) string {
	if id := normal.SourceObject(key); id != (object.ID{}) {
		return id.String()
	}
	return key.String()
}

// unreachable returns the routes that the plan leaves out of a virtual host because earlier routes match all their
// requests. name is the name host:port of the virtual host. If the route configuration has no such virtual host, the
// result is nil.
func (j *judge) unreachable(h *plan.Handle, config, name string) []*routev3.Route {
	if all := j.serving(h, config, name); len(all) > 0 {
		return all[0].Spec.Unreachable()
	}
	return nil
}

// serving returns the virtual hosts with the name host:port that a route configuration of a proxy has after the change.
func (j *judge) serving(h *plan.Handle, config, name string) (all []host.Routed) {
	for _, r := range j.base.Planner.Serving(h, name[:max(0, strings.LastIndexByte(name, ':'))]) {
		if r.Config == config && xds.VirtualHost(r.Spec.Host, r.Spec.Port) == name {
			all = append(all, r)
		}
	}
	return all
}
