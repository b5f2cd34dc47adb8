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

// secretName returns the name of the Secret that a resource name refers to. The result ok is false if the resource name
// does not refer to a Secret of the namespace.
func secretName(namespace, resource string) (name string, ok bool) {
	if !model.NamesSecret(resource) {
		return "", false
	}
	ref, ok := access.ParseName(resource)
	return ref.Name, ok && (ref.Namespace == "" || ref.Namespace == namespace)
}

// candidates returns the keys, without origin, of the Secrets that may provide a resource, in order of precedence. It
// returns no keys if the name refers neither to a Secret of the namespace nor to a ConfigMap. The result trust is true
// if the resource contains certificates of authorities. The resource NAME-cacert has these certificates from the Secret
// NAME-cacert, or otherwise from the Secret NAME. A ConfigMap has only certificates of authorities, and may be in any
// namespace.
func candidates(namespace, resource string) (keys []model.Key, trust bool) {
	ref, trust := access.ConfigMap(resource)
	name := model.ConfigMapPrefix + ref.Name
	if !trust {
		if name, trust = secretName(namespace, resource); !trust {
			return nil, false
		}
		ref.Namespace, trust = namespace, false
	}
	keys = []model.Key{{Kind: model.KindSecret, Namespace: ref.Namespace, Name: name}}
	if short, is := strings.CutSuffix(name, model.AuthoritiesSuffix); is {
		return append(keys, model.Key{Kind: model.KindSecret, Namespace: ref.Namespace, Name: short}), true
	}
	return keys, trust
}

// Anywhere returns the key with an empty origin, the form of keys in Change.Secrets. The origin is the cluster that the
// record comes from.
func Anywhere(key model.Key) model.Key {
	key.Origin = origin.Origin{}
	return key
}

// secretFor returns the record that provides a resource, or nil. The result trust is true if the record provides
// certificates of authorities. Secrets of the proxy's own cluster precede Secrets of the config cluster. Other clusters
// are ignored (istio: pilot/pkg/credentials/kube/multicluster.go, ForCluster).
func secretFor(in *input.Input, who view.Identity, resource string) (record *model.Secret, trust bool) {
	keys, trust := candidates(who.Namespace, resource)
	for s := range secretsNamed(in, who, keys...) {
		switch {
		case trust && (len(s.Spec.GetTrust()) > 0 || s.Key.Name == keys[0].Name):
			return s, true // the Secret NAME-cacert hides other candidates, even if it has no certificates
		case !trust && len(s.Spec.GetChain()) > 0 && len(s.Spec.GetKey()) > 0:
			return s, false
		}
	}
	return nil, false
}

// secretsNamed yields the Secrets with the given keys in the identity's cluster, and then in the config cluster.
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

// planOne plans one resource, and records in keys the private key that the resource needs. It returns the resource for
// the manifest. If there is no resource to send, it returns nil, and sets the fields cause and why of the subscription.
// Certificates of authorities are for all proxies of the namespace. A private key is for proxies whose service account
// may list Secrets and whose workloads use the Secret.
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
		if key == nil { // the previous resource stays in effect until the key is opened
			if s.Unit = old; old.Res == nil {
				return manifest.Pending(xds.Secret, name)
			}
			return old.Res
		}
		spec = secret.Pair{Name: name, Secret: record, Key: key}
	}
	var found []input.Problem
	s.Unit, _ = in.Make(spec, record.Key, &found) // cannot fail: the record was validated before
	return s.Res
}

// noSecret is the cause if no Secret or ConfigMap provides a resource.
const noSecret = "no such Secret"

// describeAbsence says which Secrets or ConfigMap could provide a resource and are missing.
func describeAbsence(namespace, resource string) string {
	keys, trust := candidates(namespace, resource)
	if ref, is := access.ConfigMap(resource); is {
		return fmt.Sprintf("there is no ConfigMap %s/%s with certificates of authorities (key ca.crt or cacert)", ref.Namespace, ref.Name)
	}
	if trust {
		return fmt.Sprintf("there is neither a %v nor a %v with certificates of authorities", keys[0], keys[len(keys)-1])
	}
	return fmt.Sprintf("there is no %v with a valid certificate and private key (keys tls.crt and tls.key)", keys[0])
}

// plan plans the subscriptions with the given names, and updates the manifest.
func (subs *Subscriptions) plan(in *input.Input, names []string, keys keys) {
	var puts []*xds.Resource
	var gone []string
	labels := labelsOf(in, subs.who)
	for _, name := range names {
		have := subs.manifest.Get(name)
		switch r := subs.planOne(in, name, keys, labels); {
		case r == nil:
			gone = append(gone, name)
		case have == nil || have.Version != r.Version: // manifest.Pending and other markers have versions too
			puts = append(puts, r)
		}
	}
	if len(puts)+len(gone) > 0 {
		subs.manifest = subs.manifest.With(puts, gone)
	}
}

// Change describes the changes of a step (the planning of one change of the configuration) that concern Secrets. A nil
// map means that nothing of its kind changed.
type Change struct {
	All      bool               // all inputs may have changed
	Secrets  map[model.Key]bool // changed Secrets and ConfigMaps, by key without origin (Anywhere)
	Referred map[string]bool    // names of Secrets, in any namespace, to which references were added or removed
	Labelled map[string]bool    // namespaces in which labels of workloads in the configuration changed
	Granted  map[string]bool    // namespaces in which the right to list Secrets may have changed; "" for all
}

// Plan plans again the subscriptions and modules that a change touches. It also marks the service accounts whose rights
// may have changed. Doubted returns these accounts. The caller must pass the new input to Read before it calls Plan.
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

// touched returns the subscribed names that a change touches. If no Secret has changed, it skips names for which labels
// and references do not matter, such as names without a Secret. A client may subscribe to thousands of such names while
// labels change.
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
		selecting := s.selecting && (c.Labelled[subs.who.Namespace] || c.Referred[keys[0].Name])
		if c.All || selecting || slices.ContainsFunc(keys, func(k model.Key) bool { return c.Secrets[k] }) {
			names = append(names, name)
		}
	}
	return names
}

// selects stores whether references and labels decide about a subscription. They decide if the resource comes from a
// Secret with a private key.
func (subs *Subscriptions) selects(s *subscription, is bool) {
	if s.selecting != is {
		s.selecting = is
		subs.selecting += map[bool]int{true: 1, false: -1}[is]
	}
}
