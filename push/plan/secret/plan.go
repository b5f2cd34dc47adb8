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
	var spec pool.ResourceSpec
	switch {
	case record == nil || trust && len(record.Spec.GetTrust()) == 0:
		s.cause, s.why = absent(subs.who.Namespace, name)
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

// absent says that there is no Secret to make a resource of.
func absent(namespace, resource string) (cause, why string) {
	keys, trust := candidates(namespace, resource)
	if trust {
		return "no such Secret", fmt.Sprintf("there is neither a %v nor a %v with certificates of authorities", keys[0], keys[len(keys)-1])
	}
	return "no such Secret", fmt.Sprintf("there is no %v with a certificate and a private key", keys[0])
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
			var names []string
			for name := range subs.names {
				keys, trust := candidates(namespace, name)
				touched := c.All || !trust && (c.Labelled[namespace] || c.Referred[keys[0].Name])
				if touched || slices.ContainsFunc(keys, func(k model.Key) bool { return c.Secrets[k] }) {
					names = append(names, name)
				}
			}
			if len(names) > 0 {
				subs.plan(t.in, names, t.keys)
			}
		}
	}
	t.planModules(c)
	t.keys.tidy()
}
