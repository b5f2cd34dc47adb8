package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/model"
)

// gateway has the fields of Istio's Gateway that determine the Pods and the Secrets of the Gateway.
type gateway struct {
	Metadata metav1.ObjectMeta
	Spec     struct {
		Selector map[string]string
		Servers  []struct {
			TLS struct {
				CredentialName  string
				CredentialNames []string
			}
		}
	}
}

// name returns "namespace/name".
func (g *gateway) name() string { return g.Metadata.Namespace + "/" + g.Metadata.Name }

// credentials lists the values of credentialName and credentialNames.
func (g *gateway) credentials() (all []string) {
	for _, s := range g.Spec.Servers {
		all = append(append(all, s.TLS.CredentialNames...), s.TLS.CredentialName)
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// unserved contains the prefixes of credentialName that Navarch does not support, each with the reason
// (deploy/docs/gateways.md, Not served yet).
var unserved = map[string]string{model.ExternalCredential: "is not served yet",
	model.ConfigMapCredential: "is a ConfigMap, which has no private key"}

// gateways checks each Gateway: its selector must match Pods. If it names credentials, the Pods' service accounts must
// be allowed to list the Secrets of the Pods' namespace. Each Gateway of the Gateway API is reported as a fault.
// Without Gateways there is no result.
func (k *checker) gateways(ctx context.Context) {
	check := NameGateways.of("gateways")
	served, err := k.served(ctx, kinds[0].group, kinds[0].versions)
	if err != nil || served["gateways"] == "" {
		return // the check of the definitions reports this
	}
	var list struct{ Items []gateway }
	if err := k.get(ctx, "/apis/"+kinds[0].group+"/"+served["gateways"]+"/gateways", &list); err != nil {
		k.cannot(check, err)
		return
	}
	faults, pods := k.ofGatewayAPI(ctx), map[string]bool{}
	rights := map[string]bool{} // "namespace/account": whether it may list Secrets of its namespace
	for _, g := range list.Items {
		found, err := k.servers(ctx, &g, pods, rights)
		if err != nil {
			k.cannot(check, err)
			return
		}
		faults = append(faults, found...)
	}
	switch check = check.count(len(faults)); {
	case len(faults) > 0:
		k.add(check, Warning, some(faults), "see deploy/docs/gateways.md: right to list Secrets, selectors, what is not served yet")
	case len(list.Items) > 0:
		k.add(check, OK, fmt.Sprintf("%d Gateways are for %d Pods, which may list the Secrets that they need", len(list.Items), len(pods)), "")
	}
}

// servers returns the faults of one Gateway. It adds the Pods that the Gateway selects to the map pods, and the Secrets
// that the Gateway names to k.secrets. For a Gateway without a selector, Pods are not examined. The map rights caches
// which service accounts may list Secrets. The error is that of the API server.
func (k *checker) servers(ctx context.Context, g *gateway, pods, rights map[string]bool) (faults []string, err error) {
	needs := g.credentials()
	for _, name := range needs {
		for form, why := range unserved {
			if strings.HasPrefix(name, form) {
				faults = append(faults, fmt.Sprintf("Gateway %s: credentialName %s %s", g.name(), name, why))
			}
		}
	}
	if len(g.Spec.Selector) == 0 {
		return faults, nil
	}
	var list corev1.PodList
	selector := labels.Set(g.Spec.Selector).String()
	if err := k.get(ctx, "/api/v1/pods?labelSelector="+url.QueryEscape(selector), &list); err != nil {
		return nil, fmt.Errorf("Pods of Gateway %s: %w", g.name(), err)
	}
	if len(list.Items) == 0 {
		faults = append(faults, fmt.Sprintf("Gateway %s: no Pod has the labels %s", g.name(), selector))
	}
	for _, pod := range list.Items {
		pods[pod.Namespace+"/"+pod.Name] = true
		for _, name := range needs {
			if secret, ok := access.ParseName(name); ok {
				k.secrets[cmp.Or(secret.Namespace, pod.Namespace)+"/"+secret.Name] = g.name()
			}
		}
		account := pod.Namespace + "/" + pod.Spec.ServiceAccountName
		if _, known := rights[account]; !known && len(needs) > 0 {
			if rights[account], err = k.listsSecrets(ctx, pod.Namespace, pod.Spec.ServiceAccountName); err != nil {
				return nil, fmt.Errorf("rights of service account %s: %w", account, err)
			}
			if !rights[account] {
				faults = append(faults, fmt.Sprintf("Gateway %s: service account %s of its Pods may not list Secrets of its namespace",
					g.name(), account))
			}
		}
	}
	return faults, nil
}

// gatewaySecrets checks whether the service accounts of replicas with role ingest may read the Secrets that Gateways
// name. Without such Secrets there is no result.
func (k *checker) gatewaySecrets(ctx context.Context) {
	check := NameGatewaySecrets.of("secrets of gateways")
	var faults []string
	for _, account := range k.accounts("ingest") {
		for _, secret := range slices.Sorted(maps.Keys(k.secrets)) {
			namespace, name, _ := strings.Cut(secret, "/")
			may, err := k.may(ctx, k.Namespace, account, &authorizationv1.ResourceAttributes{
				Namespace: namespace, Name: name, Verb: "list", Resource: "secrets"})
			if err != nil {
				k.cannot(check, err)
				return
			}
			if !may {
				faults = append(faults, fmt.Sprintf("service account %s may not read Secret %s of Gateway %s: its handshakes at this revision fail",
					account, secret, k.secrets[secret]))
			}
		}
	}
	switch {
	case len(faults) > 0:
		k.add(check.count(len(faults)), Warning, some(faults), "name their namespaces in the chart's value gatewaySecrets "+
			"(deploy/docs/gateways.md, Expose a host over HTTPS)")
	case len(k.secrets) > 0:
		k.add(check.count(0), OK, fmt.Sprintf("the ingesters may read the %d Secrets that Gateways name", len(k.secrets)), "")
	}
}

// listsSecrets reports whether a service account may list the Secrets of its namespace.
func (k *checker) listsSecrets(ctx context.Context, namespace, name string) (bool, error) {
	return k.may(ctx, namespace, name, &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "secrets"})
}

// may reports whether a service account has a right.
func (k *checker) may(ctx context.Context, namespace, account string, right *authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	review := accountReview(namespace, account, right, nil)
	err := k.API.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, &review)
	return review.Status.Allowed, err
}

// accountReview returns the SubjectAccessReview that asks whether a service account has a right. The right concerns
// either a resource or a path. The other one of these two arguments is nil.
func accountReview(namespace, name string, resource *authorizationv1.ResourceAttributes,
	path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReview {
	return authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: resource, NonResourceAttributes: path,
		User:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}}
}

// ofGatewayAPI returns a fault for each Gateway of the Gateway API, which Navarch does not serve. It returns nil if the
// API server does not have this kind. If the Gateways cannot be listed, this is the only fault.
func (k *checker) ofGatewayAPI(ctx context.Context) []string {
	var list struct{ Items []gateway }
	err := k.get(ctx, "/apis/gateway.networking.k8s.io/v1/gateways", &list)
	if err != nil && !apiserver.IsStatus(err, http.StatusNotFound) {
		return []string{"Gateways of the Gateway API cannot be listed: " + err.Error()}
	}
	var faults []string
	for _, g := range list.Items {
		faults = append(faults, fmt.Sprintf("Gateway %s of the Gateway API is not served yet", g.name()))
	}
	return faults
}
