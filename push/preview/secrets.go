package preview

import (
	"bytes"
	"slices"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/xds"
)

// A proxy subscribes to a Secret after it has received a listener or cluster that names the Secret. The plan reports a
// missing Secret when a proxy subscribes to it. A preview therefore subscribes in the copy of the plan. It compares the
// views before that, because a Secret is sent after its subscription.

// subscriptions returns the names of Secrets to which proxies subscribe because of a change. Names that the previous
// version of the same resource has are left out. Of the proxies with equal views and service accounts, the result has
// one, because they share their subscriptions.
func subscriptions(views []View) map[*plan.Handle][]string {
	all, known := map[*plan.Handle][]string{}, map[*xds.Resource][]string{}
	for i := range views {
		var names []string
		for _, p := range views[i].Changed {
			had := namedSecrets(known, p.Old)
			for _, name := range namedSecrets(known, p.New) {
				if !slices.Contains(had, name) {
					names = append(names, name)
				}
			}
		}
		if len(names) == 0 {
			continue
		}
		for _, h := range views[i].identities {
			all[h] = names
		}
	}
	return all
}

// namedSecrets returns the names of the Secrets that a listener or cluster makes Envoy request. For nil and for other
// types it returns nil. The parameter known caches the names.
func namedSecrets(known map[*xds.Resource][]string, r *xds.Resource) []string {
	if r == nil || r.Type != xds.Listener && r.Type != xds.Cluster {
		return nil
	}
	names, is := known[r]
	if !is {
		if body := r.Body(); bytes.Contains(body, []byte("kubernetes")) || bytes.Contains(body, []byte("configmap://")) {
			names, _ = inspect.SecretsOf(r) // cannot fail: the resource is encoded by the plan
		}
		known[r] = names
	}
	return names
}
