package check

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"navarch.io/navarch/store/admit/inject"
)

// rule is an RBAC rule of deploy/docs/kubernetes.md, Rights, with the roles of navarchd that need it.
type rule struct {
	rbacv1.PolicyRule
	roles    []string
	optional string // the only feature that needs the rule; empty: always required
}

// allow returns a rule for resources of one group. names restrict the rule to objects with these names.
func allow(group string, resources []string, verbs []string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs, ResourceNames: names}
}

var (
	ingest     = []string{"ingest"}
	listWatch  = []string{"list", "watch"}
	everyRole  = []string{"ingest", "xds", "ca", "admit"}
	tokens     = []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}
	automatic  = "automatic addresses of ServiceEntries"
	machines   = "machines that register themselves"
	alone      = "processes with role admit alone"
	objectsAre = "the status of Istio's objects (PILOT_ENABLE_STATUS)"
)

// clusterRules are required in the whole cluster, namespaceRules in the namespace of the control plane. A test compares
// both lists with deploy/docs/kubernetes.md, Rights.
var clusterRules = []rule{
	{allow("", []string{"services", "pods", "nodes", "namespaces", "serviceaccounts"}, listWatch), ingest, ""},
	{allow("", []string{"configmaps"}, []string{"get", "list", "watch", "update"}, "istio-ca-root-cert", "istio-ca-crl"), ingest, ""},
	{allow("", []string{"configmaps"}, []string{"create"}), ingest, ""},
	{allow("", []string{"events"}, []string{"get", "create", "update"}), ingest, "Warning Events about objects that are refused or held"},
	{allow("discovery.k8s.io", []string{"endpointslices"}, listWatch), ingest, ""},
	{allow("discovery.k8s.io", []string{"endpointslices"}, []string{"get"}, "kubernetes"),
		[]string{"admit"}, "reviews of API servers before others"},
	{allow("rbac.authorization.k8s.io", []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, listWatch), ingest, ""},
	{rbacv1.PolicyRule{APIGroups: []string{"networking.istio.io",
		"security.istio.io", "telemetry.istio.io", "extensions.istio.io", "gateway.networking.k8s.io"},
		Resources: []string{"*"}, Verbs: listWatch}, ingest, ""},
	{allow("networking.istio.io", []string{"workloadentries"}, []string{"get", "create", "update", "delete"}), ingest, machines},
	{allow("networking.istio.io", []string{"workloadentries/status"}, []string{"update"}), ingest, machines},
	{allow("networking.istio.io", []string{"workloadgroups"}, []string{"get"}), ingest, machines},
	{rbacv1.PolicyRule{APIGroups: []string{"networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io"},
		Resources: []string{"*"}, Verbs: []string{"get"}}, ingest, objectsAre},
	{allow("networking.istio.io", []string{"destinationrules/status",
		"envoyfilters/status", "gateways/status", "proxyconfigs/status", "serviceentries/status", "sidecars/status",
		"virtualservices/status", "workloadentries/status", "workloadgroups/status"}, []string{"update"}), ingest, objectsAre},
	{allow("security.istio.io", []string{"authorizationpolicies/status", "peerauthentications/status", "requestauthentications/status"},
		[]string{"update"}), ingest, objectsAre},
	{allow("telemetry.istio.io", []string{"telemetries/status"}, []string{"update"}), ingest, objectsAre},
	{allow("extensions.istio.io", []string{"trafficextensions/status", "wasmplugins/status"}, []string{"update"}), ingest, objectsAre},
	{allow("networking.istio.io", []string{"serviceentries"}, []string{"get"}), ingest, automatic},
	{allow("networking.istio.io", []string{"serviceentries/status"}, []string{"update"}), ingest, automatic},
	{allow("networking.istio.io", []string{"proxyconfigs"}, listWatch), []string{"admit"}, alone},
	{allow("admissionregistration.k8s.io", []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}, listWatch),
		[]string{"ingest", "admit"}, ""},
	{allow("admissionregistration.k8s.io", []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
		[]string{"get", "update"}, "istio-validator-istio-system",
		"istiod-default-validator", "istio-sidecar-injector", "istio-revision-tag-default"), ingest, ""},
	{allow("authorization.k8s.io", []string{"subjectaccessreviews"}, []string{"create"}), []string{"ingest", "xds"}, ""},
	{allow("authentication.k8s.io", []string{"tokenreviews"}, []string{"create"}),
		everyRole, "navarchctl removals accept, and --token-review"},
	{rbacv1.PolicyRule{NonResourceURLs: tokens, Verbs: []string{"get"}}, everyRole, ""},
}

var namespaceRules = []rule{
	{allow("", []string{"configmaps"}, listWatch, "istio"), []string{"ingest", "admit"}, ""},
	{allow("", []string{"configmaps"}, listWatch, "istio-sidecar-injector"), []string{"admit"}, ""},
	{allow("", []string{"configmaps"}, listWatch, "istio-ca-root-cert"), []string{"admit"}, alone},
	{allow("", []string{"secrets"}, []string{"get"}, "cacerts", "istio-ca-secret"),
		[]string{"ca"}, "the CA that istiod had (it is not needed with --cacerts)"},
	{allow("networking.istio.io", []string{"gateways"}, []string{"create"}), ingest, ""},
	{allow("", []string{"secrets"}, listWatch), ingest, "other clusters"},
	{allow("", []string{"configmaps"}, []string{"get"}, "istio-ip-autoallocate"), ingest, automatic},
	{allow("coordination.k8s.io", []string{"leases"}, []string{"get"}, "istio-ip-autoallocate"), ingest, automatic},
}

// installs are the kinds of the chart's objects, which its installer creates. A test compares the list with the
// templates.
var installs = []struct {
	group      string
	resource   string
	namespaced bool
}{
	{"", "serviceaccounts", true}, {"", "services", true}, {"", "configmaps", true},
	{"", "secrets", true}, {"", "persistentvolumeclaims", true}, {"apps", "deployments", true}, {"apps", "statefulsets", true},
	{"batch", "jobs", true}, {"batch", "cronjobs", true}, {"autoscaling", "horizontalpodautoscalers", true},
	{"policy", "poddisruptionbudgets", true}, {"networking.k8s.io", "networkpolicies", true}, {"rbac.authorization.k8s.io", "roles", true},
	{"rbac.authorization.k8s.io", "rolebindings", true}, {"rbac.authorization.k8s.io", "clusterroles", false},
	{"rbac.authorization.k8s.io", "clusterrolebindings", false},
	{"admissionregistration.k8s.io", "mutatingwebhookconfigurations", false},
	{"admissionregistration.k8s.io", "validatingwebhookconfigurations", false},
	{"admissionregistration.k8s.io", "validatingadmissionpolicies", false},
	{"admissionregistration.k8s.io", "validatingadmissionpolicybindings", false},
	{"apiextensions.k8s.io", "customresourcedefinitions", false},
}

// question is one right to be checked, by a subject access review.
type question struct {
	resource *authorizationv1.ResourceAttributes
	path     *authorizationv1.NonResourceAttributes
	optional string
}

// String returns the right as "VERB RESOURCE.GROUP/SUBRESOURCE NAME in NAMESPACE", without empty parts, or as "VERB
// PATH".
func (q question) String() string {
	if q.path != nil {
		return q.path.Verb + " " + q.path.Path
	}
	r := q.resource
	text := r.Verb + " " + strings.TrimSuffix(r.Resource+"."+r.Group, ".")
	if r.Subresource != "" {
		text = r.Verb + " " + strings.TrimSuffix(r.Resource+"."+r.Group, ".") + "/" + r.Subresource
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// questions returns the rights of the rules that at least one of the roles needs. The rights are for the given
// namespace. If namespace is empty, they are for the whole cluster.
func questions(rules []rule, namespace string, roles []string) (all []question) {
	for _, of := range rules {
		if !slices.ContainsFunc(of.roles, func(role string) bool { return slices.Contains(roles, role) }) {
			continue
		}
		names := of.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range of.Verbs {
			for _, path := range of.NonResourceURLs {
				all = append(all, question{path: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb}, optional: of.optional})
			}
			for _, group := range of.APIGroups {
				for _, resource := range of.Resources {
					kind, sub, _ := strings.Cut(resource, "/")
					for _, name := range names {
						all = append(all, question{resource: &authorizationv1.ResourceAttributes{Namespace: namespace,
							Verb: verb, Group: group, Resource: kind, Subresource: sub, Name: name},
							optional: of.optional})
					}
				}
			}
		}
	}
	return all
}

// withNames replaces the names of ConfigMaps and webhook configurations by the names that the examined revision uses.
// These names end with the revision and, for the validator, the namespace. withNames changes its argument and returns
// it.
func (k *checker) withNames(all []question) []question {
	hooks := inject.Webhooks{Namespace: k.Namespace, Revision: k.Revision}
	for _, q := range all {
		switch {
		case q.resource == nil:
		case q.resource.Resource == "configmaps" && slices.Contains([]string{"istio", "istio-sidecar-injector"}, q.resource.Name):
			q.resource.Name = inject.NameOf(q.resource.Name, k.Revision)
		case q.resource.Name == "istio-validator-istio-system":
			q.resource.Name = inject.NameOf("istio-validator", k.Revision) + "-" + k.Namespace
		case q.resource.Name == "istio-sidecar-injector":
			q.resource.Name = hooks.Name()
		case q.resource.Name == "istio-revision-tag-default":
			hooks := hooks
			hooks.Tag = "default"
			q.resource.Name = hooks.Name()
		}
	}
	return all
}

// installer checks whether the caller may install the chart. The installer creates and patches the chart's objects, and
// grants navarchd's rights. Kubernetes lets users grant only rights that they have themselves.
func (k *checker) installer(ctx context.Context) {
	var all []question
	for _, of := range installs {
		for _, verb := range []string{"create", "patch"} {
			q := question{resource: &authorizationv1.ResourceAttributes{Verb: verb, Group: of.group, Resource: of.resource}}
			if of.namespaced {
				q.resource.Namespace = k.Namespace
			}
			all = append(all, q)
		}
	}
	all = append(append(all, k.withNames(questions(clusterRules, "", everyRole))...),
		k.withNames(questions(namespaceRules, k.Namespace, everyRole))...)
	const do = "have a cluster administrator install it"
	k.ask(ctx, NameInstaller.of("your rights to install"), all, do, func(ctx context.Context, q question) (bool, error) {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: q.resource,
			NonResourceAttributes: q.path}}
		err := k.API.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, &review)
		return review.Status.Allowed, err
	})
}

// accounts lists the service accounts of the revision's Pods that have the given role, sorted.
func (k *checker) accounts(role string) []string {
	all := map[string]bool{}
	for _, pod := range k.pods {
		if slices.Contains(rolesOf(&pod), role) {
			all[pod.Spec.ServiceAccountName] = true
		}
	}
	return sorted(all)
}

// rights checks whether the service accounts of the control plane's Pods have the rights of their roles.
func (k *checker) rights(ctx context.Context) {
	accounts := map[string][]string{}
	for _, pod := range k.pods {
		for _, role := range rolesOf(&pod) {
			if name := pod.Spec.ServiceAccountName; !slices.Contains(accounts[name], role) {
				accounts[name] = append(accounts[name], role)
			}
		}
	}
	for _, name := range sorted(accounts) {
		roles := accounts[name]
		all := append(k.withNames(questions(clusterRules, "", roles)), k.withNames(questions(namespaceRules, k.Namespace, roles))...)
		check := NameRights.of(fmt.Sprintf("rights of service account %s (%s)", name, strings.Join(roles, ", ")))
		k.ask(ctx, check, all, "give it the rights of deploy/docs/kubernetes.md, Rights, as the chart does",
			func(ctx context.Context, q question) (bool, error) {
				review := accountReview(k.Namespace, name, q.resource, q.path)
				err := k.API.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, &review)
				return review.Status.Allowed, err
			})
	}
}
