package input

import (
	"cmp"
	"slices"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// service identifies a service by one of its hosts and its namespace.
type service struct{ host, namespace string }

// AccountsOf returns the service accounts of a service's endpoints in a snapshot. The service is identified by a host
// and its namespace. Endpoints of any health count. Endpoints without an account are ignored. Each account is listed
// once, as "namespace/name". The list is sorted, nil without accounts, and belongs to the caller.
func AccountsOf(s *mirror.Snapshot, host, namespace string) []string {
	type account struct{ namespace, name string }
	var last account // neighbouring endpoints mostly have the same account, so this saves nearly all look-ups
	seen := map[account]bool{}
	var out []string
	for r := range s.ByHost(model.KindEndpoints, host) {
		slice := r.(*model.Endpoints)
		if slice.Key.Namespace != namespace {
			continue
		}
		for _, e := range slice.Spec.GetEndpoints() {
			of := account{cmp.Or(e.GetNamespace(), namespace), e.GetServiceAccount()}
			if of == last || of.name == "" {
				continue
			}
			if last = of; !seen[of] {
				seen[of] = true
				out = append(out, of.namespace+"/"+of.name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Accounts returns the result of AccountsOf for the Input's snapshot, as an interned list. Interned lists with equal
// elements are equal. The result is cached.
func (in *Input) Accounts(host, namespace string) intern.List[string] {
	key := service{host, namespace}
	list, ok := in.accounts[key]
	if !ok {
		list = strs.List(AccountsOf(in.Snapshot, host, namespace)...)
		in.accounts[key] = list
	}
	return list
}
