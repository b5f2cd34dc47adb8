package inbound

import (
	"fmt"
	"slices"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// authorizers returns the providers of external authorization that the workload's CUSTOM policies name, each once. It
// adds a problem for each policy whose provider cannot be called. The proxy refuses requests that such a policy
// matches, with one exception. If the workload only lacks the provider's cluster, and the provider has failOpen, the
// proxy admits them.
func (wl *Workload) authorizers() intern.List[extauthz.Authorizer] {
	var out []extauthz.Authorizer
	var missing []string // for each element of out, the cluster that the workload lacks, or ""
	for _, p := range wl.policies.All() {
		m := model.Authorization(p)
		if m.GetAction() != securityv1.AuthorizationPolicy_CUSTOM {
			continue
		}
		provider := m.GetProvider().GetName()
		at := slices.IndexFunc(out, func(a extauthz.Authorizer) bool { return a.Provider == provider })
		if at < 0 {
			at = len(out)
			one, cluster := wl.authorizer(provider)
			out, missing = append(out, one), append(missing, cluster)
		}
		if cluster := missing[at]; cluster != "" {
			message := fmt.Sprintf("%q cannot be queried: workloads of namespace %s have no cluster %s, unless a VirtualService routes to it"+
				"; requests that the policy matches are refused, or admitted if the provider has failOpen", provider, wl.key.Namespace, cluster)
			wl.found = append(wl.found, input.NotFound(p.Key, "spec.provider.name", message))
		}
		if wrong := out[at].Wrong; wrong != "" {
			message := fmt.Sprintf("%q cannot be queried: %s; workloads of namespace %s refuse the requests that the policy matches"+
				", and where traffic is not HTTP (TCP, TLS that is passed through) all connections that its rules match "+
				"without their HTTP fields",
				provider, wrong, wl.key.Namespace)
			wl.found = append(wl.found, input.Problem{Key: p.Key, Field: "spec.provider.name", Code: problem.NotFound,
				Analyzer: problem.ReferencedResourceNotFound, Severity: problem.Error, Message: message})
		}
	}
	return authorizers.List(out...)
}

// authorizer finds the service of a provider. The result named missing is the name of the provider's cluster if the
// workload lacks it. It is "" if the workload has the cluster, or if out.Wrong states why there can be no cluster.
func (wl *Workload) authorizer(provider string) (out extauthz.Authorizer, missing string) {
	out.Provider = provider
	service, port, ok := extauthz.Service(wl.in.Mesh.Spec, provider)
	if !ok {
		out.Wrong = extauthz.Unknown
		return out, ""
	}
	host, found, namespaces := wl.in.ProviderServices(service)
	to, asked, there := wl.visibility().Find(wl.in, host, found, port)
	out.Host = host
	if there {
		out.Host = to // differs from host if host is an alias
	}
	if wl.asked == nil {
		wl.asked = map[string]bool{}
	}
	for _, name := range asked {
		wl.asked[name] = true
	}
	switch {
	case namespaces == 0:
		out.Wrong = fmt.Sprintf("there is no service %q", service)
	case namespaces > 1:
		out.Wrong = fmt.Sprintf("services of %d namespaces have the host %q: want NAMESPACE/%s", namespaces, host, host)
	case !there:
		missing = xds.OutboundCluster(port, "", host)
	}
	return out, missing
}
