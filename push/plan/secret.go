package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/secret"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// ward is the Secrets of one namespace, as far as proxies that may have them ask for them by name. All such proxies of a
// namespace share it; each is sent what it has asked for itself.
type ward struct {
	namespace string
	asked     map[string]*asked // by resource name
	manifest  *manifest.Manifest
	refs      int // views
}

// asked is one resource that somebody asks for.
type asked struct {
	unit  // res nil: there is none to be sent
	needs model.Key
	refs  int // proxies
}

// opened is the private key of one record, or the wish for it.
type opened struct {
	record *model.Secret // what is wanted
	of     *model.Secret // whose key is here; nil: none
	key    *model.PrivateKey
	taken  bool // somebody has been told to open it
}

// The forms of names (istio: pilot/pkg/model/credentials/resource.go). Both lead to a Secret of the proxy's own namespace
// or nowhere.
const (
	secretPrefix        = "kubernetes://"         // NAME, or NAMESPACE/NAME
	gatewaySecretPrefix = "kubernetes-gateway://" // NAMESPACE/NAME
	trustSuffix         = "-cacert"
)

// maxAsked bounds how many Secrets one proxy may ask for.
const maxAsked = 4096

// secretName takes a resource name apart: the Secret's name in the namespace. False: it is no Secret there.
func secretName(namespace, resource string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(resource, gatewaySecretPrefix)
	qualified := ok
	if !ok {
		if rest, ok = strings.CutPrefix(resource, secretPrefix); !ok {
			return "", false
		}
	}
	if in, short, is := strings.Cut(rest, "/"); is {
		return short, in == namespace && short != "" && !strings.Contains(short, "/")
	}
	return rest, !qualified && rest != ""
}

// candidates are the Secrets that a resource may be made of, the first that serves counts, and whether it is trust. The
// trust NAME-cacert stands in the Secret of that name, or in NAME beside its certificate.
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

// secretFor decides which record a resource is made of; nil: there is none.
func (w *world) secretFor(namespace, resource string) (record *model.Secret, trust bool) {
	keys, trust := candidates(namespace, resource)
	for i, key := range keys {
		r, ok := w.Get(key)
		if !ok {
			continue
		}
		s := r.(*model.Secret)
		if trust && (len(s.Spec.GetTrust()) > 0 || i == 0) {
			return s, true // of that name: what it has not, no other Secret stands in for
		}
		if !trust && len(s.Spec.GetKey()) > 0 {
			return s, false
		}
	}
	return nil, false
}

// planSecret plans one resource; what has to be opened for it is noted in keys. It returns what stands in the manifest;
// nil: nothing.
func (w *world) planSecret(namespace, name string, a *asked, keys map[model.Key]*opened) *xds.Resource {
	old := a.unit
	a.unit, a.needs = unit{}, model.Key{}
	record, trust := w.secretFor(namespace, name)
	var spec pool.ResourceSpec
	switch {
	case record == nil || trust && len(record.Spec.GetTrust()) == 0:
		return nil
	case trust:
		spec = secret.Trust{Name: name, Secret: record}
	default:
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

// plan plans some of what is asked for.
func (wd *ward) plan(w *world, names []string, keys map[model.Key]*opened) {
	var puts []*xds.Resource
	var gone []string
	for _, name := range names {
		have := wd.manifest.Get(name)
		switch r := w.planSecret(wd.namespace, name, wd.asked[name], keys); {
		case r == nil:
			gone = append(gone, name)
		case have == nil || have.Version != r.Version: // markers have versions, too
			puts = append(puts, r)
		}
	}
	if len(puts)+len(gone) > 0 {
		wd.manifest = wd.manifest.With(puts, gone)
	}
}

// Ask says that a proxy wants some resources of type Secret by name, and others no more. What it may not have does not
// exist for it. Of what it asks for and is not opened yet the Secrets are returned.
func (p *Planner) Ask(h *Handle, add, drop []string) (pending []model.Key, moved []Moved) {
	pl := h.planned.Load()
	if _, joined := p.handles[h]; !joined || pl.ward == nil {
		return nil, nil
	}
	wd := pl.ward
	for _, name := range drop {
		if h.asks[name] {
			delete(h.asks, name)
			wd.release(name)
		}
	}
	var fresh []string
	for _, name := range add {
		if h.asks[name] {
			continue
		}
		if keys, _ := candidates(wd.namespace, name); keys == nil || len(h.asks) >= maxAsked {
			continue
		}
		if h.asks == nil {
			h.asks = map[string]bool{}
		}
		h.asks[name] = true
		a := wd.asked[name]
		if a == nil {
			a = &asked{}
			wd.asked[name] = a
			fresh = append(fresh, name)
		}
		a.refs++
	}
	wd.plan(p.world, fresh, p.private)
	p.tidyKeys(wd.namespace)
	for name := range h.asks {
		if a := wd.asked[name]; a.needs != (model.Key{}) && p.private[a.needs].of != p.private[a.needs].record {
			pending = append(pending, a.needs)
		}
	}
	return pending, p.composeWard(wd)
}

// refused says why a proxy may not have a Secret of this name, whatever there is; empty: it may.
func (p *Planner) refused(h *Handle, resource string) string {
	pl := h.planned.Load()
	switch {
	case !h.Node.Router:
		return "it is no gateway"
	case h.Node.Verified == "":
		return "it is not authenticated as of any namespace"
	case pl.ward == nil:
		return "its identity is of namespace " + h.Node.Verified + ", not of its own"
	}
	if keys, _ := candidates(pl.ward.namespace, resource); keys == nil {
		return "the name does not lead to a Secret of its namespace " + pl.ward.namespace
	}
	return ""
}

// missing says why there is nothing of a resource that a proxy asks for; empty: there is, or it is being opened.
func (p *Planner) missing(h *Handle, resource string) string {
	if why := p.refused(h, resource); why != "" {
		return why
	}
	pl := h.planned.Load()
	keys, trust := candidates(pl.ward.namespace, resource)
	switch {
	case !h.asks[resource]:
		return fmt.Sprintf("it asks for more than %d", maxAsked)
	case pl.ward.manifest.Get(resource) != nil:
		return ""
	case trust:
		return fmt.Sprintf("there is neither a %v nor a %v with certificates of authorities", keys[0], keys[len(keys)-1])
	}
	return fmt.Sprintf("there is no %v with a certificate and a private key", keys[0])
}

// release drops what nobody asks for any more.
func (wd *ward) release(name string) {
	a := wd.asked[name]
	if a.refs--; a.refs == 0 {
		delete(wd.asked, name)
		wd.manifest = wd.manifest.With(nil, []string{name})
	}
}

// tidyKeys forgets private keys of a namespace that nothing which is asked for needs.
func (p *Planner) tidyKeys(namespace string) {
	needed := map[model.Key]bool{}
	if wd := p.wards[namespace]; wd != nil {
		for _, a := range wd.asked {
			needed[a.needs] = true
		}
	}
	maps.DeleteFunc(p.private, func(key model.Key, _ *opened) bool { return key.Namespace == namespace && !needed[key] })
}

// applySecrets plans again what an edit of Secrets touches.
func (p *Planner) applySecrets(d *dirt) {
	for _, wd := range p.wards {
		var names []string
		for name := range wd.asked {
			keys, _ := candidates(wd.namespace, name)
			if d.everything || slices.ContainsFunc(keys, func(k model.Key) bool { return d.secrets[k] }) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			wd.plan(p.world, names, p.private)
			p.tidyKeys(wd.namespace)
		}
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
func (p *Planner) Opened(record *model.Secret, key model.PrivateKey) []Moved {
	o, wd := p.private[record.Key], p.wards[record.Key.Namespace]
	if o == nil || o.record != record || wd == nil {
		return nil
	}
	o.of, o.key = record, &key
	var names []string
	for name, a := range wd.asked {
		if a.needs == record.Key {
			names = append(names, name)
		}
	}
	wd.plan(p.world, names, p.private)
	return p.composeWard(wd)
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

// composeWard publishes a ward that was planned again.
func (p *Planner) composeWard(wd *ward) (moved []Moved) {
	for _, pl := range p.views {
		if pl.ward != wd {
			continue
		}
		if pl.compose(p) {
			for h := range pl.handles {
				moved = append(moved, Moved{h, Slow})
			}
		}
	}
	return moved
}

// wardOf finds or makes the ward of a view.
func (p *Planner) wardOf(namespace string) *ward {
	if namespace == "" {
		return nil
	}
	wd := p.wards[namespace]
	if wd == nil {
		wd = &ward{namespace: namespace, asked: map[string]*asked{}}
		if p.wards == nil {
			p.wards, p.private = map[string]*ward{}, map[model.Key]*opened{}
		}
		p.wards[namespace] = wd
	}
	wd.refs++
	return wd
}

// wishes are what is asked for of a ward and what is opened for it: what a plan from nothing needs beside the snapshot.
type wishes struct {
	namespace string
	names     []string
	keys      map[model.Key]opened
}

// wishes copies them: they may be used in any goroutine.
func (p *Planner) wishes(namespace string) wishes {
	out := wishes{namespace: namespace, keys: map[model.Key]opened{}}
	if wd := p.wards[namespace]; wd != nil && namespace != "" {
		out.names = slices.Sorted(maps.Keys(wd.asked))
		for _, a := range wd.asked {
			if o := p.private[a.needs]; o != nil {
				out.keys[a.needs] = *o
			}
		}
	}
	return out
}

// fresh plans the wishes from nothing.
func (ws wishes) fresh(w *world) *manifest.Manifest {
	wd := &ward{namespace: ws.namespace, asked: map[string]*asked{}}
	keys := map[model.Key]*opened{}
	for key, o := range ws.keys {
		keys[key] = &o
	}
	for _, name := range ws.names {
		wd.asked[name] = &asked{}
	}
	wd.plan(w, ws.names, keys)
	return wd.manifest
}
