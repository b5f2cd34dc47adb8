package secret

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/access"
	built "navarch.io/navarch/push/build/extension"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/pullsecret"
)

// A WasmPlugin or TrafficExtension may name a Secret with whose credentials agents fetch its module (imagePullSecret). The configuration that all proxies of a
// view share is without credentials. This file plans the configuration with them, which replaces the shared one in the layer of an identity: for identities of whose workloads
// the extension selects some, by the labels that the source has for them: what a proxy says of its labels is no proof. The right to list Secrets is not asked for, as in Istio: who writes the extension decides who fetches.

// module is the configuration of one extension with a credential.
type module struct {
	layer.Unit           // Res nil: there is none, and proxies have the shared configuration
	needs      model.Key // the Secret whose credentials it takes; zero: none
	views      int       // that have it
	secret     string    // the name of the Secret that the extension names; empty: none
	selects    bool      // the extension has a selector
	cause, why string    // there should be a credential and is none
}

// Use says that one more view of the identity has some extensions whose modules agents fetch.
func (t *Table) Use(subs *Subscriptions, extensions []model.Key) {
	var fresh []model.Key
	for _, key := range extensions {
		m := subs.modules[key]
		if m == nil {
			m = &module{}
			subs.modules[key] = m
			fresh = append(fresh, key)
		}
		m.views++
	}
	subs.planModules(t.in, fresh, t.keys)
	t.enlist(subs)
}

// Disuse ends what Use began.
func (t *Table) Disuse(subs *Subscriptions, extensions []model.Key) {
	for _, key := range extensions {
		m := subs.modules[key]
		if m.views--; m.views == 0 {
			t.keys.drop(m.needs, subs)
			delete(subs.modules, key)
		}
	}
	t.enlist(subs)
	t.keys.tidy()
}

// Modules are the configurations with credentials of some extensions; have, where that is the same.
func (subs *Subscriptions) Modules(extensions []model.Key, have *manifest.Manifest) *manifest.Manifest {
	var puts []*xds.Resource
	same := true
	for _, key := range extensions {
		if m := subs.modules[key]; m != nil && m.Res != nil {
			puts = append(puts, m.Res)
			same = same && have.Get(m.Res.Name) == m.Res
		}
	}
	if same && have.Len() == len(puts) {
		return have
	}
	var none *manifest.Manifest
	return none.With(puts, nil)
}

// ExplainModule is the Spec of the configuration with a credential of one of some extensions; nil: it has none.
func (subs *Subscriptions) ExplainModule(extensions []model.Key, resource string) pool.ResourceSpec {
	for _, key := range extensions {
		if m := subs.modules[key]; m != nil && m.Spec != nil && extension.Name(key) == resource {
			return m.Spec
		}
	}
	return nil
}

// Unfetched is an extension for which some service accounts have no credential though there should be one.
type Unfetched struct {
	Extension model.Key
	Why       string // of one of them
	Accounts  int
}

// Unfetched are all of them, by extension and cause, in order.
func (t *Table) Unfetched() (all []Unfetched) {
	type group struct {
		extension model.Key
		cause     string
	}
	whys := map[group]map[view.Identity]string{} // of each service account, of whose Pods some may be told apart
	for subs := range t.fetching {
		for key, m := range subs.modules {
			if m.cause == "" {
				continue
			}
			g := group{key, m.cause}
			if whys[g] == nil {
				whys[g] = map[view.Identity]string{}
			}
			whys[g][subs.who.OfAccount()] = m.why
		}
	}
	for g, of := range whys {
		all = append(all, Unfetched{g.extension, slices.Min(slices.Collect(maps.Values(of))), len(of)})
	}
	slices.SortFunc(all, func(a, b Unfetched) int {
		return cmp.Or(a.Extension.Compare(b.Extension), strings.Compare(a.Why, b.Why))
	})
	return all
}

// pulls says whether some module should have a credential.
func (subs *Subscriptions) pulls() bool {
	for _, m := range subs.modules {
		if m.secret != "" {
			return true
		}
	}
	return false
}

// readsLabels says whether labels that the source has for workloads of the identity may decide about something.
func (subs *Subscriptions) readsLabels() bool {
	for _, m := range subs.modules {
		if m.secret != "" && m.selects {
			return true
		}
	}
	return subs.selecting > 0
}

// planModules plans again what a change touches of modules.
func (t *Table) planModules(c Change) {
	if !c.All && len(c.Referred)+len(c.Secrets)+len(c.Labelled) == 0 {
		return
	}
	for subs := range t.fetching {
		var some []model.Key
		for key, m := range subs.modules {
			touched := c.All || m.selects && c.Labelled[subs.who.Namespace] || c.Secrets[model.Key{Kind: model.KindSecret, Namespace: key.Namespace, Name: m.secret}]
			if !touched && len(c.Referred) > 0 {
				now, _ := access.PullSecret(recordOf(t.in, key))
				touched = c.Referred[m.secret] || c.Referred[now.Name]
			}
			if touched {
				some = append(some, key)
			}
		}
		if len(some) > 0 {
			subs.planModules(t.in, some, t.keys)
			t.enlist(subs)
		}
	}
}

// planModules plans some modules of the identity.
func (subs *Subscriptions) planModules(in *input.Input, extensions []model.Key, keys keys) {
	labels := labelsOf(in, subs.who)
	for _, key := range extensions {
		m := subs.modules[key]
		keys.drop(m.needs, subs)
		old := m.Unit
		*m = module{views: m.views}
		e, _ := recordOf(in, key).(*model.TrafficExtension)
		if e == nil {
			continue
		}
		record := subs.credentialsFor(in, e, m, labels)
		if record == nil {
			continue
		}
		m.needs = record.Key
		credentials := keys.need(record, subs)
		if credentials == nil { // until they are opened the last good one stands
			if m.Unit = old; old.Res == nil {
				m.Unit.Res = manifest.Pending(xds.Extension, extension.Name(key))
			}
			continue
		}
		var found []input.Problem
		m.Unit, _ = in.Make(built.Pulled{Extension: e, Secret: record, Credentials: credentials}, record.Key, &found) // what it is drawn from was checked before
	}
}

// credentialsFor is the Secret with whose credentials agents of the identity fetch an extension's module; nil: there is none for them, and the module says why.
func (subs *Subscriptions) credentialsFor(in *input.Input, e *model.TrafficExtension, m *module, labels func() []map[string]string) *model.Secret {
	ref, is := access.PullSecret(e)
	if !is {
		return nil
	}
	selector := access.Selector(e)
	m.secret, m.selects = ref.Name, len(selector) > 0
	if m.selects {
		sets := labels()
		switch {
		case len(sets) == 0:
			m.cause = "labels not known"
			m.why = fmt.Sprintf("%v selects by labels, and the configuration has none for %v: no Pod, WorkloadEntry or endpoint of its namespace is of it", e.Key, subs.who)
			return nil
		case !slices.ContainsFunc(sets, func(set map[string]string) bool { return model.Matches(selector, set) }):
			m.cause, m.why = "module of other workloads", fmt.Sprintf("%v does not select %v, by the labels that the configuration has for it", e.Key, subs.who)
			return nil
		}
	}
	registry := extension.Registry(e.Spec.GetWasm())
	for s := range secretsNamed(in, subs.who, model.Key{Kind: model.KindSecret, Namespace: ref.Namespace, Name: ref.Name}) {
		if slices.Contains(s.Spec.GetRegistries(), registry) {
			return s
		}
	}
	m.cause = "no credential"
	m.why = fmt.Sprintf("there is no Secret %s/%s of type %s with a credential for %s", ref.Namespace, ref.Name, pullsecret.Type, registry)
	return nil
}

func recordOf(in *input.Input, key model.Key) model.Record {
	r, _ := in.Get(key)
	return r
}
