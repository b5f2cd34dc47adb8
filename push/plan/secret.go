package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/build/secret"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// opened is the private key of one record, or the wish for it.
type opened struct {
	record *model.Secret // what is wanted
	of     *model.Secret // whose key is here; nil: none
	key    *model.PrivateKey
	taken  bool // somebody has been told to open it
}

const trustSuffix = "-cacert"

// maxAsked bounds how many Secrets one proxy may ask for.
const maxAsked = 4096

// maxAskedOfIdentity bounds how many Secrets all proxies of one identity may ask for.
const maxAskedOfIdentity = 4 * maxAsked

// secretName takes a resource name apart: the Secret's name in the namespace. False: it is no Secret there.
func secretName(namespace, resource string) (name string, ok bool) {
	if !strings.HasPrefix(resource, access.SecretPrefix) && !strings.HasPrefix(resource, access.GatewaySecretPrefix) {
		return "", false
	}
	ref, ok := access.ParseName(resource)
	return ref.Name, ok && (ref.Namespace == "" || ref.Namespace == namespace)
}

// candidates are the Secrets that a resource may be made of, of whatever origin, the first that serves counts, and whether it is trust.
// The trust NAME-cacert stands in the Secret of that name, or in NAME beside its certificate.
func candidates(namespace, resource string) (keys []model.Key, trust bool) {
	name, ok := secretName(namespace, resource)
	if !ok {
		return nil, false
	}
	keys = []model.Key{{Kind: model.KindSecret, Namespace: namespace, Name: name}}
	if short, is := strings.CutSuffix(name, trustSuffix); is {
		return append(keys, model.Key{Kind: model.KindSecret, Namespace: namespace, Name: short}), true
	}
	return keys, false
}

// secretFor decides which record a resource is made of; nil: there is none. Those of the proxy's own cluster go before the config
// cluster's, and nobody has those of a third (istio: pilot/pkg/credentials/kube/multicluster.go, ForCluster).
func (w *input) secretFor(who view.Identity, resource string) (record *model.Secret, trust bool) {
	keys, trust := candidates(who.Namespace, resource)
	for _, cluster := range slices.Compact([]string{who.Cluster, ""}) {
		for i, key := range keys {
			for r := range w.Named(key.Kind, key.Namespace, key.Name) {
				s := r.(*model.Secret)
				switch {
				case s.Key.Origin.Cluster() != cluster:
				case trust && (len(s.Spec.GetTrust()) > 0 || i == 0):
					return s, true // of that name: what it has not, no other Secret stands in for
				case !trust && len(s.Spec.GetKey()) > 0:
					return s, false
				}
			}
		}
	}
	return nil, false
}

// planSecret plans one resource; what has to be opened for it is noted in keys. It returns what stands in the manifest;
// nil: nothing, and the resource's cause and why say why. Certificates of authorities are for all of the namespace; a private key is
// for who has the right to it, and uses it.
func (w *input) planSecret(subs *subscriptions, name string, a *asked, keys map[model.Key]*opened, labels func() []map[string]string) *xds.Resource {
	old := a.unit
	a.unit, a.needs, a.cause, a.why = unit{}, model.Key{}, "", ""
	record, trust := w.secretFor(subs.who, name)
	var spec pool.ResourceSpec
	switch {
	case record == nil || trust && len(record.Spec.GetTrust()) == 0:
		a.cause, a.why = absent(subs.who.Namespace, name)
		return nil
	case trust:
		spec = secret.Trust{Name: name, Secret: record}
	default:
		if a.cause, a.why = w.unused(subs.who, record.Key, labels); a.cause != "" {
			return nil
		}
		subs.needed = true
		if !subs.right.Known {
			return manifest.Pending(xds.Secret, name)
		}
		if !subs.right.Allowed {
			a.cause, a.why = "may not list Secrets", subs.who.String()+" may not list Secrets: "+subs.right.Why
			return nil
		}
		a.needs = record.Key
		o := keys[record.Key]
		if o == nil {
			o = &opened{}
			keys[record.Key] = o
		}
		if o.record != record {
			o.record, o.taken = record, false
		}
		if o.of != record { // until it is opened the last good one stands
			if a.unit = old; old.res == nil {
				return manifest.Pending(xds.Secret, name)
			}
			return old.res
		}
		spec = secret.Pair{Name: name, Secret: record, Key: o.key}
	}
	var found []Problem
	a.unit, _ = w.make(spec, record.Key, &found) // what it is drawn from was checked before
	return a.res
}

// absent says that there is no Secret to make a resource of.
func absent(namespace, resource string) (cause, why string) {
	keys, trust := candidates(namespace, resource)
	if trust {
		return "no such Secret", fmt.Sprintf("there is neither a %v nor a %v with certificates of authorities", keys[0], keys[len(keys)-1])
	}
	return "no such Secret", fmt.Sprintf("there is no %v with a certificate and a private key", keys[0])
}

// plan plans some of what is asked for.
func (subs *subscriptions) plan(w *input, names []string, keys map[model.Key]*opened) {
	var puts []*xds.Resource
	var gone []string
	labels := w.labelsOf(subs.who)
	for _, name := range names {
		have := subs.manifest.Get(name)
		switch r := w.planSecret(subs, name, subs.asked[name], keys, labels); {
		case r == nil:
			gone = append(gone, name)
		case have == nil || have.Version != r.Version: // markers have versions, too
			puts = append(puts, r)
		}
	}
	if len(puts)+len(gone) > 0 {
		subs.manifest = subs.manifest.With(puts, gone)
	}
}

// SubscribeSecrets says that a proxy wants some resources of type Secret by name, and others no more. What it may not have does not
// exist for it. Rights and Sealed say afterwards what it waits for.
func (p *Planner) SubscribeSecrets(h *Handle, add, drop []string) (moved []Moved) {
	pl := h.planned.Load()
	if _, joined := p.handles[h]; !joined || pl.subscriptions == nil {
		return nil
	}
	subs := pl.subscriptions
	for _, name := range drop {
		if h.asks[name] {
			delete(h.asks, name)
			subs.release(name)
		}
	}
	var fresh []string
	for _, name := range add {
		if h.asks[name] {
			continue
		}
		a := subs.asked[name]
		if keys, _ := candidates(subs.who.Namespace, name); keys == nil || len(h.asks) >= maxAsked || a == nil && len(subs.asked) >= maxAskedOfIdentity {
			continue
		}
		if h.asks == nil {
			h.asks = map[string]bool{}
		}
		h.asks[name] = true
		if a == nil {
			a = &asked{}
			subs.asked[name] = a
			fresh = append(fresh, name)
		}
		a.refs++
	}
	p.enlistSubscriptions(subs)
	p.input.tested(pl.view.Scope)
	subs.plan(p.input, fresh, p.private)
	p.tidyKeys(subs.who.Namespace)
	return p.composeSubscriptions(subs)
}

// pendingKeys are the Secrets of what a proxy asks for that are not opened yet.
func (p *Planner) pendingKeys(h *Handle) (pending []model.Key) {
	subs := h.planned.Load().subscriptions
	for name := range h.asks {
		if a := subs.asked[name]; a.needs != (model.Key{}) && p.private[a.needs].of != p.private[a.needs].record {
			pending = append(pending, a.needs)
		}
	}
	return pending
}

// refused says why a proxy may not have a Secret of this name, whatever there is; empty: it may. The cause is one of a few, for
// which log lines are counted; why is the sentence.
func (p *Planner) refused(h *Handle, resource string) (cause, why string) {
	pl := h.planned.Load()
	switch {
	case h.Node.Verified == view.Identity{}:
		return "not authenticated", "it is not authenticated as of any namespace"
	case pl.subscriptions == nil:
		return "identity of another namespace", "its identity is of namespace " + h.Node.Verified.Namespace + ", not of its own"
	}
	if keys, _ := candidates(pl.subscriptions.who.Namespace, resource); keys == nil {
		return "Secret of another namespace", "the name does not lead to a Secret of its namespace " + pl.subscriptions.who.Namespace
	}
	return "", ""
}

// missing says why there is nothing of a resource that a proxy asks for; empty: there is, or it is waited for.
func (p *Planner) missing(h *Handle, resource string) (cause, why string) {
	if cause, why := p.refused(h, resource); cause != "" {
		return cause, why
	}
	if !h.asks[resource] {
		return "too many names", fmt.Sprintf("it asks for more than %d, or all of its service account for more than %d", maxAsked, maxAskedOfIdentity)
	}
	a := h.planned.Load().subscriptions.asked[resource]
	return a.cause, a.why
}

// tidyKeys forgets private keys of a namespace that nothing which is asked for needs.
func (p *Planner) tidyKeys(namespace string) {
	needed := map[model.Key]bool{}
	for subs := range p.asking[namespace] {
		for _, a := range subs.asked {
			needed[a.needs] = true
		}
	}
	maps.DeleteFunc(p.private, func(key model.Key, _ *opened) bool { return key.Namespace == namespace && !needed[key] })
}

// applySecrets plans again what an edit touches of Secrets, of what refers to them, and of the labels that decide.
func (p *Planner) applySecrets(d *dirt) {
	for namespace, all := range p.asking {
		for subs := range all {
			subs.doubted = subs.doubted || subs.needed && (d.everything || d.granted[namespace] || d.granted[""])
			var names []string
			for name := range subs.asked {
				keys, trust := candidates(namespace, name)
				touched := d.everything || !trust && (d.labelled[namespace] || d.referred[keys[0].Name])
				if touched || slices.ContainsFunc(keys, func(k model.Key) bool { return d.secrets[k] }) {
					names = append(names, name)
				}
			}
			if len(names) > 0 {
				subs.plan(p.input, names, p.private)
			}
		}
		p.tidyKeys(namespace)
	}
}

// Sealed takes the records whose private keys are to be opened, each once: Opened or Unopened answers.
func (p *Planner) Sealed() (records []*model.Secret) {
	for _, o := range p.private {
		if o.of != o.record && !o.taken {
			o.taken = true
			records = append(records, o.record)
		}
	}
	slices.SortFunc(records, func(a, b *model.Secret) int { return a.Key.Compare(b.Key) })
	return records
}

// Opened answers with the private key of a record. One that is not wanted any more is forgotten.
func (p *Planner) Opened(record *model.Secret, key model.PrivateKey) (moved []Moved) {
	o := p.private[record.Key]
	if o == nil || o.record != record {
		return nil
	}
	o.of, o.key = record, &key
	for subs := range p.asking[record.Key.Namespace] {
		var names []string
		for name, a := range subs.asked {
			if a.needs == record.Key {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			subs.plan(p.input, names, p.private)
			moved = append(moved, p.composeSubscriptions(subs)...)
		}
	}
	return moved
}

// Unopened has a record that could not be opened given out by Sealed again, and says whether it is still wanted.
func (p *Planner) Unopened(record *model.Secret) bool {
	o := p.private[record.Key]
	if o == nil || o.record != record {
		return false
	}
	o.taken = false
	return true
}

// secretSubscriptions are what an identity asks for, the right to it, and what is opened for it: what a plan from nothing needs beside the
// snapshot.
type secretSubscriptions struct {
	who   view.Identity
	right access.Standing
	names []string
	keys  map[model.Key]opened
}

// secretSubscriptions copies them: they may be used in any goroutine.
func (p *Planner) secretSubscriptionsOf(who view.Identity) secretSubscriptions {
	out := secretSubscriptions{who: who, keys: map[model.Key]opened{}}
	if subs := p.subscriptions[who]; subs != nil {
		out.right, out.names = subs.right, slices.Sorted(maps.Keys(subs.asked))
		for _, a := range subs.asked {
			if o := p.private[a.needs]; o != nil {
				out.keys[a.needs] = *o
			}
		}
	}
	return out
}

// fresh plans the wishes from nothing.
func (ws secretSubscriptions) fresh(w *input) *manifest.Manifest {
	subs := &subscriptions{who: ws.who, right: ws.right, asked: map[string]*asked{}}
	keys := map[model.Key]*opened{}
	for key, o := range ws.keys {
		keys[key] = &o
	}
	for _, name := range ws.names {
		subs.asked[name] = &asked{}
	}
	subs.plan(w, ws.names, keys)
	return subs.manifest
}
