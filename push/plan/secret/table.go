// Package secret plans Envoy's Secrets of what proxies subscribe to: certificates of authorities for all of a namespace, certificates
// with private keys for identities that may list the namespace's Secrets and whose workloads some object makes use them. It also plans
// the configurations of modules that are fetched with a credential, for identities whose workloads a WasmPlugin or TrafficExtension selects.
//
// Owns: the subscriptions of each identity, and the private keys that are opened for them (the planner's goroutine alone).
// Reads: plan/input, push/access.  Never: opens a private key or asks an authoriser by itself; it says what is to be opened (Sealed)
// and asked (Doubted, Rights), and is told (Opened, Authorised).
//
// # Secrets on demand
//
// A stream tells its view which Secrets it subscribes to (serve.SecretSubscriber). Only these are opened, outside of
// the plan loop. Until then they are pending (manifest.Pending): neither sent nor removed. A Secret that does not
// exist, or that this proxy may not have, is removed, which ends Envoy's wait. Proxies of one service account share
// their subscriptions, the opened Secrets and the right to them.
//
// Labels that decide about private keys are those of the configuration: of the Pod that the proxy's token is bound to,
// if the configuration has that Pod (pod.go). Otherwise they are those of all Workloads and endpoints of
// ServiceEntries of the service account, in its namespace, in its own cluster or the config cluster.
//
// # Credentials of registries
//
// Credentials of imagePullSecret are sealed and opened as private keys are. They stand in the configuration of the
// module's filter, where Istio's agent reads and removes them. All proxies of a view share a configuration without
// credentials. The configuration with credentials belongs to an identity (module.go) and overrides the shared one, in
// the layer of one proxy. As in Istio, the right to list Secrets is not required: the author of a WasmPlugin decides
// who fetches the module. Resources with credentials are confidential (xds.Resource.Confidential): pages leave them
// out, and a proxy whose credential has expired is sent no resource of the kind.
package secret

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Table is the subscriptions of all identities.
type Table struct {
	in         *input.Input
	identities map[view.Identity]*Subscriptions
	subscribed map[string]map[*Subscriptions]struct{} // by namespace: those of which something is subscribed to, or fetched with a credential
	fetching   map[*Subscriptions]struct{}            // those that have modules
	keys       keys                                   // private keys that are needed, and credentials
	selected   selectorKeys
}

// Subscriptions are the Secrets of one namespace that proxies of one identity of it subscribe to. All proxies of the identity
// share them; each is sent what it has subscribed to itself.
type Subscriptions struct {
	who      view.Identity
	names    map[string]*subscription // by resource name
	modules  map[model.Key]*module    // by WasmPlugin or TrafficExtension
	manifest *manifest.Manifest       // of names
	right    access.Standing          // to private keys
	needed   bool                     // the right has mattered
	doubted  bool                     // something has changed that the right may depend on
	// selecting is of how many names references and labels decide.
	selecting int
}

// subscription is one resource that some proxy subscribes to.
type subscription struct {
	layer.Unit           // Res nil: there is none to be sent
	needs      model.Key // the Secret whose private key it takes; zero: none
	proxies    int       // that subscribe
	cause, why string    // there is none for this identity; see Missing
	selecting  bool      // see Subscriptions.selects
}

// Names are the Secrets that one proxy subscribes to, by resource name. The zero Names are none.
type Names struct{ names map[string]bool }

// Has says whether the proxy subscribes to a name.
func (n *Names) Has(name string) bool { return n.names[name] }

// All lists the names, in no order.
func (n *Names) All() []string { return slices.Collect(maps.Keys(n.names)) }

// The bounds of subscriptions.
const (
	MaxNames           = 4096         // of one proxy
	MaxNamesOfIdentity = 4 * MaxNames // of all proxies of one identity
)

// New makes a table without subscriptions.
func New(in *input.Input) *Table {
	return &Table{in: in, identities: map[view.Identity]*Subscriptions{}, subscribed: map[string]map[*Subscriptions]struct{}{},
		fetching: map[*Subscriptions]struct{}{}, keys: keys{}}
}

// Read has the table plan with another input from now on.
func (t *Table) Read(in *input.Input) { t.in = in }

// Empty says whether nothing is kept: no identity, no subscription, no private key.
func (t *Table) Empty() bool {
	return len(t.identities)+len(t.subscribed)+len(t.fetching)+len(t.keys) == 0
}

// Subscribed says whether anything of a namespace is subscribed to.
func (t *Table) Subscribed(namespace string) bool { return len(t.subscribed[namespace]) > 0 }

// Keys is the number of private keys that are held, or needed.
func (t *Table) Keys() int { return len(t.keys) }

// Of finds or makes the subscriptions of an identity. Release ends them.
func (t *Table) Of(who view.Identity) *Subscriptions {
	subs := t.identities[who]
	if subs == nil {
		subs = newSubscriptions(who)
		t.identities[who] = subs
	}
	return subs
}

func newSubscriptions(who view.Identity) *Subscriptions {
	return &Subscriptions{who: who, names: map[string]*subscription{}, modules: map[model.Key]*module{}}
}

// Release drops the subscriptions of an identity of which there is no proxy any more.
func (t *Table) Release(subs *Subscriptions) {
	delete(t.identities, subs.who)
	for _, s := range subs.names {
		t.keys.drop(s.needs, subs)
	}
	for _, m := range subs.modules {
		t.keys.drop(m.needs, subs)
	}
	clear(subs.names)
	subs.selecting = 0
	clear(subs.modules)
	t.enlist(subs)
	t.keys.tidy()
}

// Manifest is what all proxies of the identity that subscribe to it have.
func (subs *Subscriptions) Manifest() *manifest.Manifest { return subs.manifest }

// Identity is whose subscriptions they are.
func (subs *Subscriptions) Identity() view.Identity { return subs.who }

// Len is the number of names that are subscribed to.
func (subs *Subscriptions) Len() int { return len(subs.names) }

// Subscribe says that a proxy of the identity subscribes to some resources of type Secret by name, and to others no more. What it may
// not have does not exist for it. Rights and Sealed say afterwards what it waits for.
func (t *Table) Subscribe(subs *Subscriptions, of *Names, add, drop []string) {
	for _, name := range drop {
		if of.names[name] {
			delete(of.names, name)
			t.release(subs, name)
		}
	}
	var fresh []string
	for _, name := range add {
		if of.names[name] {
			continue
		}
		s := subs.names[name]
		if keys, _ := candidates(subs.who.Namespace, name); keys == nil || len(of.names) >= MaxNames || s == nil && len(subs.names) >= MaxNamesOfIdentity {
			continue
		}
		if of.names == nil {
			of.names = map[string]bool{}
		}
		of.names[name] = true
		if s == nil {
			s = &subscription{}
			subs.names[name] = s
			fresh = append(fresh, name)
		}
		s.proxies++
	}
	t.enlist(subs)
	subs.plan(t.in, fresh, t.keys)
	t.keys.tidy()
}

// release drops what nobody subscribes to any more.
func (t *Table) release(subs *Subscriptions, name string) {
	s := subs.names[name]
	if s.proxies--; s.proxies == 0 {
		t.keys.drop(s.needs, subs)
		subs.selects(s, false)
		delete(subs.names, name)
		subs.manifest = subs.manifest.With(nil, []string{name})
	}
}

// enlist keeps the lists of the identities that subscribe to something, or have modules.
func (t *Table) enlist(subs *Subscriptions) {
	namespace := subs.who.Namespace
	if len(subs.names) == 0 {
		subs.needed, subs.doubted, subs.right = false, false, access.Standing{} // nobody keeps it up to date
	}
	if len(subs.modules) > 0 {
		t.fetching[subs] = struct{}{}
	} else {
		delete(t.fetching, subs)
	}
	if len(subs.names) == 0 && !subs.pulls() {
		if delete(t.subscribed[namespace], subs); len(t.subscribed[namespace]) == 0 {
			delete(t.subscribed, namespace)
		}
		return
	}
	if t.subscribed[namespace] == nil {
		t.subscribed[namespace] = map[*Subscriptions]struct{}{}
	}
	t.subscribed[namespace][subs] = struct{}{}
}
