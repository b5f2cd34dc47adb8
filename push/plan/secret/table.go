// Package secret plans the Envoy Secrets that proxies subscribe to. Certificates of authorities are for all proxies of
// a namespace. A certificate with a private key is for an identity (the verified service account of proxies) under two
// conditions. The identity may list the namespace's Secrets, and an object of the configuration makes workloads of the
// identity use the Secret. The package also plans the configurations of WebAssembly modules that agents fetch with a
// credential. Such a configuration is for identities whose workloads its WasmPlugin or TrafficExtension selects.
//
// Owns: the subscriptions of each identity, and the private keys that are opened for them. Only the planner's goroutine
// uses these.
// Reads: plan/input, push/access.
// Never: opens a private key or calls an authoriser. The caller opens the keys of Sealed, queries the rights of Doubted
// and Rights, and passes the answers to Opened and Authorised.
//
// # Secrets on demand
//
// A stream passes the names of its Secrets to the plan (serve.SecretSubscriber). Only the private keys of these Secrets
// are opened (decrypted), outside of the plan loop. Until a Secret is opened, it is pending (manifest.Pending), which
// means that it is neither sent nor removed. A Secret that does not exist, or that the proxy may not have, is removed,
// which ends Envoy's wait. All proxies of one identity share the subscriptions. Opened Secrets are shared by all
// identities, and the right to Secrets belongs to the service account.
//
// Labels that decide about private keys come from the configuration. If the proxy's token is bound to a Pod of the
// configuration, they are the labels of this Pod (pod.go). If not, they are the labels of all Workloads of the service
// account, and of its endpoints in ServiceEntries. Only records of the proxy's own cluster and of the config cluster
// are considered.
//
// # Credentials of registries
//
// Credentials of an imagePullSecret are encrypted and opened like private keys. The configuration of the module's
// filter contains them. Istio's agent reads them there, and removes them. All proxies of a view share a configuration
// without credentials. The configuration with credentials belongs to an identity (module.go) and overrides the shared
// configuration. As in Istio, the right to list Secrets is not required, because the author of a WasmPlugin decides who
// fetches the module. Resources with credentials are confidential (xds.Resource.Confidential). Pages that show
// configuration leave out such resources. A proxy whose credential has expired is not sent such resources.
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

// Table contains the subscriptions of all identities. It is not safe for concurrent use.
type Table struct {
	in         *input.Input
	identities map[view.Identity]*Subscriptions
	// subscribed contains, by namespace, the Subscriptions with a name or with a module that needs a credential.
	subscribed map[string]map[*Subscriptions]struct{}
	fetching   map[*Subscriptions]struct{} // the Subscriptions with modules
	keys       keys                        // private keys and credentials that are needed
	selected   selectorKeys
}

// Subscriptions contains the Secrets that proxies of one identity subscribe to, and the modules with credentials. All
// proxies of the identity share it. The stream of a proxy is sent only the Secrets that this proxy subscribes to.
type Subscriptions struct {
	who       view.Identity
	names     map[string]*subscription // by resource name
	modules   map[model.Key]*module    // by WasmPlugin or TrafficExtension
	manifest  *manifest.Manifest       // the resources of names
	right     access.Standing          // the right to private keys
	needed    bool                     // the right is needed (Table.Rights)
	doubted   bool                     // the right may have changed
	selecting int                      // number of names that references and labels decide about
}

// subscription is one resource that some proxy subscribes to.
type subscription struct {
	layer.Unit           // Res is nil if there is no resource to send
	needs      model.Key // the Secret with the private key; zero if none is needed
	proxies    int       // number of proxies that subscribe
	cause, why string    // set if there is no resource for this identity (Missing)
	selecting  bool      // see Subscriptions.selects
}

// Names is the set of resource names that one proxy subscribes to. Table.Subscribe changes the set. The zero Names is
// empty. Names is not safe for concurrent use.
type Names struct{ names map[string]bool }

// Has reports whether the proxy subscribes to a name.
func (n *Names) Has(name string) bool { return n.names[name] }

// All returns the names, in no order. The caller owns the result.
func (n *Names) All() []string { return slices.Collect(maps.Keys(n.names)) }

// The maximum numbers of subscribed names.
const (
	MaxNames           = 4096         // of one proxy
	MaxNamesOfIdentity = 4 * MaxNames // of all proxies of one identity
)

// New returns a table without subscriptions that plans with an input.
func New(in *input.Input) *Table {
	return &Table{in: in, identities: map[view.Identity]*Subscriptions{}, subscribed: map[string]map[*Subscriptions]struct{}{},
		fetching: map[*Subscriptions]struct{}{}, keys: keys{}}
}

// Read replaces the input that the table plans with. It does not plan anything. For that, call Plan.
func (t *Table) Read(in *input.Input) { t.in = in }

// Empty reports whether the table contains no identity, no subscription and no private key.
func (t *Table) Empty() bool {
	return len(t.identities)+len(t.subscribed)+len(t.fetching)+len(t.keys) == 0
}

// Subscribed reports whether identities of a namespace subscribe to a Secret, or use a module with a credential.
func (t *Table) Subscribed(namespace string) bool { return len(t.subscribed[namespace]) > 0 }

// Keys returns the number of private keys and credentials that resources need, opened or not.
func (t *Table) Keys() int { return len(t.keys) }

// Of returns the subscriptions of an identity. For a new identity, Of creates empty subscriptions. Release
// removes the subscriptions.
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

// Release removes the subscriptions of an identity from the table, with all names and modules. The caller must not use
// subs after the call.
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
	t.updateLists(subs)
	t.keys.tidy()
}

// Manifest returns the resources of all names that proxies of the identity subscribe to, with markers for pending
// resources. Resources of modules are not included. The result is nil or empty without resources, and is immutable.
func (subs *Subscriptions) Manifest() *manifest.Manifest { return subs.manifest }

// Identity returns the identity of the subscriptions.
func (subs *Subscriptions) Identity() view.Identity { return subs.who }

// Len returns the number of names that proxies of the identity subscribe to, each counted once.
func (subs *Subscriptions) Len() int { return len(subs.names) }

// Subscribe changes the subscriptions of a proxy. It first drops and then adds the given names, both in the proxy's
// Names and in the identity's Subscriptions. After that it plans the names that are new for the identity. It ignores
// names above the maximum numbers, and names that refer neither to a Secret of the identity's namespace nor to a
// ConfigMap. After the call, Rights and Sealed include the rights and keys that the new names need.
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
		keys, _ := candidates(subs.who.Namespace, name)
		if keys == nil || len(of.names) >= MaxNames || s == nil && len(subs.names) >= MaxNamesOfIdentity {
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
	t.updateLists(subs)
	subs.plan(t.in, fresh, t.keys)
	t.keys.tidy()
}

// Move moves the subscriptions of a proxy to another identity. If both identities have the same service account, a
// right that is known stays known. Private keys that are opened stay opened.
func (t *Table) Move(from, to *Subscriptions, of *Names) {
	names := of.All()
	if len(names) > 0 && !to.right.Known && from.who.OfAccount() == to.who.OfAccount() {
		to.right, to.doubted = from.right, from.doubted
	}
	var moved Names
	t.Subscribe(to, &moved, names, nil) // first, because keys that nobody needs are dropped
	t.Subscribe(from, of, nil, names)
	*of = moved
}

// release ends one proxy's subscription to a name. After the last subscription it removes the name.
func (t *Table) release(subs *Subscriptions, name string) {
	s := subs.names[name]
	if s.proxies--; s.proxies == 0 {
		t.keys.drop(s.needs, subs)
		subs.selects(s, false)
		delete(subs.names, name)
		subs.manifest = subs.manifest.With(nil, []string{name})
	}
}

// updateLists updates subscribed and fetching for an identity.
func (t *Table) updateLists(subs *Subscriptions) {
	namespace := subs.who.Namespace
	if len(subs.names) == 0 {
		subs.needed, subs.doubted, subs.right = false, false, access.Standing{} // the right is not queried again from now on
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
