package inbound

import (
	"fmt"
	"slices"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// authorizers finds the providers of external authorization that the workload's CUSTOM policies name. What a policy matches whose provider cannot be
// asked is refused, and the policy has a problem.
func (wl *Workload) authorizers() intern.List[extauthz.Authorizer] {
	var out []extauthz.Authorizer
	for _, p := range wl.policies.All() {
		m := model.Authorization(p)
		if m.GetAction() != securityv1.AuthorizationPolicy_CUSTOM {
			continue
		}
		provider := m.GetProvider().GetName()
		at := slices.IndexFunc(out, func(a extauthz.Authorizer) bool { return a.Provider == provider })
		if at < 0 {
			at = len(out)
			out = append(out, wl.authorizer(provider))
		}
		if wrong := out[at].Wrong; wrong != "" {
			wl.found = append(wl.found, input.Problem{Key: p.Key, Field: "spec.provider.name", Code: problem.NotFound, Analyzer: problem.ReferencedResourceNotFound, Severity: problem.Error,
				Message: fmt.Sprintf("%q cannot be asked: %s; what the policy matches is refused, by workloads of namespace %s", provider, wrong, wl.key.Namespace)})
		}
	}
	return authorizers.List(out...)
}

// authorizer finds the service of a provider.
func (wl *Workload) authorizer(provider string) extauthz.Authorizer {
	out := extauthz.Authorizer{Provider: provider}
	service, _, ok := extauthz.Service(wl.in.Mesh.Spec, provider)
	if !ok {
		out.Wrong = "MeshConfig has no valid extensionProviders of this name with envoyExtAuthzHttp or envoyExtAuthzGrpc"
		return out
	}
	host, _, namespaces := wl.in.ProviderServices(service)
	out.Host = host
	if wl.asked == nil {
		wl.asked = map[string]bool{}
	}
	wl.asked[host] = true
	switch {
	case namespaces == 0:
		out.Wrong = fmt.Sprintf("there is no service %q", service)
	case namespaces > 1:
		out.Wrong = fmt.Sprintf("services of %d namespaces have the host %q: want NAMESPACE/%s", namespaces, host, host)
	}
	return out
}
