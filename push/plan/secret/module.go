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

// A WasmPlugin or TrafficExtension may name a Secret (imagePullSecret). Agents use its credentials to fetch the module.
// All proxies of a view (proxies with equal configuration) share a configuration without credentials. This file plans
// configurations with credentials, each for one identity (a service account). Such a configuration overrides the shared
// configuration.
//
// An identity gets the credentials if the extension selects some workload of the identity. Selectors are compared with
// labels of the configuration, because labels that a proxy states are not verified. As in Istio, the right to list
// Secrets is not required, because the author of the extension decides who fetches the module.

// module is the configuration of one extension with a credential.
type module struct {
	layer.Unit           // if Res is nil, proxies use the shared configuration
	needs      model.Key // the Secret with the credentials; zero without credentials
	views      int       // number of views that use the extension
	secret     string    // the name of the Secret that the extension names; empty if it names no Secret
	selects    bool      // the extension has a selector
	cause, why string    // set if a required credential is missing
}

// Use records that one more view of an identity uses some extensions whose modules agents fetch. The parameter
// extensions has the keys of WasmPlugins and TrafficExtensions. For each extension that is new for the identity, Use
// plans the configuration with credentials.
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
	t.updateLists(subs)
}

// Disuse undoes one call of Use with the same arguments. It panics for an extension without such a call.
func (t *Table) Disuse(subs *Subscriptions, extensions []model.Key) {
	for _, key := range extensions {
		m := subs.modules[key]
		if m.views--; m.views == 0 {
			t.keys.drop(m.needs, subs)
			delete(subs.modules, key)
		}
	}
	t.updateLists(subs)
	t.keys.tidy()
}

// Modules returns a manifest with the configurations of the given extensions that contain credentials. Extensions
// without such a configuration are left out. While credentials are not opened (decrypted) yet, the manifest has a
// marker (manifest.Pending) or the previous configuration. The parameter have may be nil. If it already contains
// exactly these configurations, it is the result.
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

// ExplainModule returns the Spec (the inputs) of the configuration with credentials that has the given resource name.
// It searches only the given extensions, and returns nil if it does not find a built configuration.
func (subs *Subscriptions) ExplainModule(extensions []model.Key, resource string) pool.ResourceSpec {
	for _, key := range extensions {
		if m := subs.modules[key]; m != nil && m.Spec != nil && extension.Name(key) == resource {
			return m.Spec
		}
	}
	return nil
}

// Unfetched describes an extension whose module some agents cannot fetch, because a credential is missing. The cause is
// the same for all these agents' service accounts.
type Unfetched struct {
	Extension model.Key
	Why       string // the message for one of these service accounts
	Accounts  int    // the number of these service accounts
}

// Unfetched returns an element for each pair of an extension and a cause for which its credentials are missing. The
// result is sorted by extension and then by Why. It is nil if no credentials are missing.
func (t *Table) Unfetched() (all []Unfetched) {
	type group struct {
		extension model.Key
		cause     string
	}
	whys := map[group]map[view.Identity]string{} // by service account, to merge identities that are bound to Pods
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

// pulls reports whether some module of the identity needs a credential.
func (subs *Subscriptions) pulls() bool {
	for _, m := range subs.modules {
		if m.secret != "" {
			return true
		}
	}
	return false
}

// readsLabels reports whether the configured labels of the identity's workloads may decide about a key or credential.
func (subs *Subscriptions) readsLabels() bool {
	for _, m := range subs.modules {
		if m.secret != "" && m.selects {
			return true
		}
	}
	return subs.selecting > 0
}

// planModules plans again the modules that a change touches.
func (t *Table) planModules(c Change) {
	if !c.All && len(c.Referred)+len(c.Secrets)+len(c.Labelled) == 0 {
		return
	}
	for subs := range t.fetching {
		var some []model.Key
		for key, m := range subs.modules {
			touched := c.All || m.selects && c.Labelled[subs.who.Namespace] ||
				c.Secrets[model.Key{Kind: model.KindSecret, Namespace: key.Namespace, Name: m.secret}]
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
			t.updateLists(subs)
		}
	}
}

// planModules plans the given modules of the identity.
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
		if credentials == nil { // the previous configuration stays in effect until the credentials are opened
			if m.Unit = old; old.Res == nil {
				m.Unit.Res = manifest.Pending(xds.Extension, extension.Name(key))
			}
			continue
		}
		var found []input.Problem
		// Make cannot fail, because the record was validated before.
		m.Unit, _ = in.Make(built.Pulled{Extension: e, Secret: record, Credentials: credentials}, record.Key, &found)
	}
}

// credentialsFor returns the Secret whose credentials agents of the identity use to fetch an extension's module. It
// returns nil if the module needs no credential. It also returns nil if the identity has no credential. In this case,
// m.cause and m.why contain the reason.
func (subs *Subscriptions) credentialsFor(in *input.Input, e *model.TrafficExtension, m *module,
	labels func() []map[string]string) *model.Secret {
	ref, is := access.PullSecret(e)
	if !is {
		return nil
	}
	selectors := access.Selectors(e)
	m.secret, m.selects = ref.Name, !access.SelectsAll(selectors)
	if m.selects {
		sets := labels()
		switch {
		case len(sets) == 0:
			m.cause = "labels not known"
			m.why = fmt.Sprintf("%v selects by labels, and the configuration knows no labels of %v: "+
				"no Pod, WorkloadEntry or endpoint of its namespace is of it", e.Key, subs.who)
			return nil
		case !access.Selected(selectors, sets):
			m.cause = "module of other workloads"
			m.why = fmt.Sprintf("%v does not select %v, by the labels that the configuration has for it", e.Key, subs.who)
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

// recordOf returns the record of a key, or nil.
func recordOf(in *input.Input, key model.Key) model.Record {
	r, _ := in.Get(key)
	return r
}
