package secret

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/build/secret"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

const trustSuffix = xds.AuthoritiesSuffix

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

// Anywhere is a key as candidates has it: of no origin.
func Anywhere(key model.Key) model.Key {
	key.Origin = origin.Origin{}
	return key
}

// secretFor decides which record a resource is made of; nil: there is none. Those of the proxy's own cluster go before the config
// cluster's, and nobody has those of a third (istio: pilot/pkg/credentials/kube/multicluster.go, ForCluster).
func secretFor(in *input.Input, who view.Identity, resource string) (record *model.Secret, trust bool) {
	keys, trust := candidates(who.Namespace, resource)
	for s := range secretsNamed(in, who, keys...) {
		switch {
		case trust && (len(s.Spec.GetTrust()) > 0 || s.Key.Name == keys[0].Name):
			return s, true // of that name: what it has not, no other Secret stands in for
		case !trust && len(s.Spec.GetChain()) > 0 && len(s.Spec.GetKey()) > 0:
			return s, false
		}
	}
	return nil, false
}

// secretsNamed are the Secrets of some names: of the cluster of an identity, then of the config cluster.
func secretsNamed(in *input.Input, who view.Identity, keys ...model.Key) iter.Seq[*model.Secret] {
	return func(yield func(*model.Secret) bool) {
		for _, cluster := range slices.Compact([]string{who.Cluster, ""}) {
			for _, key := range keys {
				for r := range in.Named(key.Kind, key.Namespace, key.Name) {
					if s := r.(*model.Secret); s.Key.Origin.Cluster() == cluster && !yield(s) {
						return
					}
				}
			}
		}
	}
}

// planOne plans one resource; which private key has to be opened for it is noted in keys. It returns the resource for the manifest;
// nil: there is none, and the subscription's cause and why say why. Certificates of authorities are for all proxies of the namespace; a private key
// is for proxies whose service account has the right to it, and that use it.
func (subs *Subscriptions) planOne(in *input.Input, name string, keys keys, labels func() []map[string]string) *xds.Resource {
	s := subs.names[name]
	old := s.Unit
	keys.drop(s.needs, subs)
	s.Unit, s.needs, s.cause, s.why = layer.Unit{}, model.Key{}, "", ""
	record, trust := secretFor(in, subs.who, name)
	subs.selects(s, record != nil && !trust)
	var spec pool.ResourceSpec
	switch {
	case record == nil || trust && len(record.Spec.GetTrust()) == 0:
		s.cause = noSecret
		return nil
	case trust:
		spec = secret.Trust{Name: name, Secret: record}
	default:
		if s.cause, s.why = unused(in, subs.who, record.Key, labels); s.cause != "" {
			return nil
		}
		subs.needed = true
		if !subs.right.Known {
			return manifest.Pending(xds.Secret, name)
		}
		if !subs.right.Allowed {
			s.cause, s.why = "may not list Secrets", subs.who.String()+" may not list Secrets: "+subs.right.Why
			return nil
		}
		s.needs = record.Key
		key := keys.need(record, subs)
		if key == nil { // until it is opened the last good one stands
			if s.Unit = old; old.Res == nil {
				return manifest.Pending(xds.Secret, name)
			}
			return old.Res
		}
		spec = secret.Pair{Name: name, Secret: record, Key: key}
	}
	var found []input.Problem
	s.Unit, _ = in.Make(spec, record.Key, &found) // what it is drawn from was checked before
	return s.Res
}

// noSecret is the cause of what there is no Secret for.
const noSecret = "no such Secret"

// absent says which Secret there would have to be to make a resource of.
func absent(namespace, resource string) string {
	keys, trust := candidates(namespace, resource)
	if trust {
		return fmt.Sprintf("there is neither a %v nor a %v with certificates of authorities", keys[0], keys[len(keys)-1])
	}
	return fmt.Sprintf("there is no %v with a certificate and a private key", keys[0])
}

// plan plans some of what is subscribed to.
func (subs *Subscriptions) plan(in *input.Input, names []string, keys keys) {
	var puts []*xds.Resource
	var gone []string
	labels := labelsOf(in, subs.who)
	for _, name := range names {
		have := subs.manifest.Get(name)
		switch r := subs.planOne(in, name, keys, labels); {
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

// Change is what a step touches of Secrets.
type Change struct {
	All      bool
	Secrets  map[model.Key]bool
	Referred map[string]bool // names of Secrets that are used or not, in whatever namespace
	Labelled map[string]bool // namespaces: labels that the source has for workloads of theirs
	Granted  map[string]bool // namespaces: the right to list Secrets there; "": in all
}

// Plan plans again what a change touches of Secrets, of what refers to them, and of the labels that decide.
func (t *Table) Plan(c Change) {
	for namespace, all := range t.subscribed {
		for subs := range all {
			subs.doubted = subs.doubted || subs.needed && (c.All || c.Granted[namespace] || c.Granted[""])
			if names := subs.touched(c); len(names) > 0 {
				subs.plan(t.in, names, t.keys)
			}
		}
	}
	t.planModules(c)
	t.keys.tidy()
}

// touched are the names that a change touches. A name costs nothing where it is of no Secret and none came: a client may subscribe to thousands of
// these, and have labels change beside them.
func (subs *Subscriptions) touched(c Change) (names []string) {
	selected := subs.selecting > 0 && (c.Labelled[subs.who.Namespace] || len(c.Referred) > 0)
	if !c.All && !selected && len(c.Secrets) == 0 {
		return nil
	}
	for name, s := range subs.names {
		if !c.All && !s.selecting && len(c.Secrets) == 0 {
			continue
		}
		keys, _ := candidates(subs.who.Namespace, name)
		if c.All || s.selecting && (c.Labelled[subs.who.Namespace] || c.Referred[keys[0].Name]) || slices.ContainsFunc(keys, func(k model.Key) bool { return c.Secrets[k] }) {
			names = append(names, name)
		}
	}
	return names
}

// selects says whether references and labels decide about a subscription: there is a Secret with a private key.
func (subs *Subscriptions) selects(s *subscription, is bool) {
	if s.selecting != is {
		s.selecting = is
		subs.selecting += map[bool]int{true: 1, false: -1}[is]
	}
}
