package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/cmd/navarchctl/cluster"
)

// kindName names a Kubernetes kind by its API group (empty: the core group) and its CamelCase name.
type kindName struct{ group, kind string }

const (
	networking = "networking.istio.io"
	security   = "security.istio.io"
	telemetry  = "telemetry.istio.io"
	extensions = "extensions.istio.io"
	gatewayAPI = "gateway.networking.k8s.io"
)

// kindNames maps kubectl's names and short names to the kinds that configure Navarch. Keys are in lower case and
// without a plural's s. For example, the key "serviceentrie" is for the plural "serviceentries".
var kindNames = map[string]kindName{
	"virtualservice": {networking, "VirtualService"}, "vs": {networking, "VirtualService"},
	"destinationrule": {networking, "DestinationRule"}, "dr": {networking, "DestinationRule"},
	"gateway": {networking, "Gateway"}, "gw": {networking, "Gateway"},
	"serviceentry": {networking, "ServiceEntry"}, "serviceentrie": {networking, "ServiceEntry"}, "se": {networking, "ServiceEntry"},
	"sidecar":       {networking, "Sidecar"},
	"workloadentry": {networking, "WorkloadEntry"}, "workloadentrie": {networking, "WorkloadEntry"}, "we": {networking, "WorkloadEntry"},
	"workloadgroup": {networking, "WorkloadGroup"}, "wg": {networking, "WorkloadGroup"},
	"envoyfilter": {networking, "EnvoyFilter"}, "proxyconfig": {networking, "ProxyConfig"},
	"authorizationpolicy": {security, "AuthorizationPolicy"}, "authorizationpolicie": {security, "AuthorizationPolicy"},
	"ap":                 {security, "AuthorizationPolicy"},
	"peerauthentication": {security, "PeerAuthentication"}, "pa": {security, "PeerAuthentication"},
	"requestauthentication": {security, "RequestAuthentication"}, "ra": {security, "RequestAuthentication"},
	"telemetry": {telemetry, "Telemetry"}, "telemetrie": {telemetry, "Telemetry"},
	"wasmplugin": {extensions, "WasmPlugin"},
	"httproute":  {gatewayAPI, "HTTPRoute"}, "grpcroute": {gatewayAPI, "GRPCRoute"}, "tcproute": {gatewayAPI, "TCPRoute"},
	"tlsroute": {gatewayAPI, "TLSRoute"}, "referencegrant": {gatewayAPI, "ReferenceGrant"},
	"service": {"", "Service"}, "svc": {"", "Service"}, "endpointslice": {"discovery.k8s.io", "EndpointSlice"},
	"secret": {"", "Secret"},
}

// configures reports whether k is a kind in kindNames, or Gateway of the Gateway API.
func (k kindName) configures() bool {
	for _, known := range kindNames {
		if k == known {
			return true
		}
	}
	return k == kindName{gatewayAPI, "Gateway"}
}

// named reports whether some kind in kindNames has the name k.kind. The group of k is ignored.
func (k kindName) named() bool {
	for _, known := range kindNames {
		if k.kind == known.kind {
			return true
		}
	}
	return false
}

// parseKind returns the kind that a word names. The word is a name, plural or short name in any case, or KIND.GROUP.
// parseKind accepts a KIND.GROUP that is not in kindNames, and returns its parts unchanged. It fails for an unknown
// word without a group.
func parseKind(word string) (kindName, error) {
	name, group, stated := strings.Cut(word, ".")
	k, known := kindNames[strings.TrimSuffix(strings.ToLower(name), "s")]
	if lower := strings.ToLower(name); !known {
		k, known = kindNames[lower]
	}
	switch {
	case stated && group == gatewayAPI && strings.EqualFold(strings.TrimSuffix(name, "s"), "gateway"):
		return kindName{gatewayAPI, "Gateway"}, nil
	case stated && (!known || k.group != group):
		return kindName{group, name}, nil
	case !known:
		return k, fmt.Errorf("kind %q: want a kind of the configuration, as %s, or KIND.GROUP", word, similarKind(name))
	}
	return k, nil
}

// similarKind returns a kind whose name resembles a mistyped word. If no name resembles the word, it returns
// VirtualService.
func similarKind(word string) string {
	var names []string
	for name := range kindNames {
		if len(name) > 3 { // any short word resembles a short name
			names = append(names, name)
		}
	}
	if like := similarTo(names, strings.ToLower(word)); len(like) > 0 {
		return kindNames[slices.Min(like)].kind
	}
	return "VirtualService"
}

// path returns the URL path of an object at the API server, and whether the kind is namespaced. It queries the API
// server for the resource, and for the version if version is empty. A kind that the API server does not serve is an
// error. Errors name the group.
func (k kindName) path(ctx context.Context, in *cluster.Cluster,
	version, namespace, name string) (path string, namespaced bool, err error) {
	base, r, err := k.resource(ctx, in, version)
	switch {
	case err != nil:
		return "", false, err
	case r == nil:
		return "", false, fmt.Errorf("kind %s of %s: the API server of %s does not have it", k.kind, base, in)
	case r.Namespaced:
		base += "/namespaces/" + url.PathEscape(namespace)
	}
	return base + "/" + r.Name + "/" + url.PathEscape(name), r.Namespaced, nil
}

// resource queries the API server for the resource of the kind, and returns it with the path of its group and version.
// The result r is nil if the API server serves the version, but not the kind. An empty version means the group's
// preferred version. A group or version that the API server does not serve is an error. Errors name the group.
func (k kindName) resource(ctx context.Context, in *cluster.Cluster, version string) (base string, r *metav1.APIResource, err error) {
	base = "/api/v1"
	if k.group != "" {
		if version == "" {
			var group metav1.APIGroup
			if err := in.API.Do(ctx, http.MethodGet, "/apis/"+url.PathEscape(k.group), nil, &group); err != nil {
				return "", nil, fmt.Errorf("group %s, by %s: %w", k.group, in, err)
			}
			version = group.PreferredVersion.Version
		}
		base = "/apis/" + url.PathEscape(k.group) + "/" + url.PathEscape(version)
	}
	var resources metav1.APIResourceList
	if err := in.API.Do(ctx, http.MethodGet, base, nil, &resources); err != nil {
		return "", nil, fmt.Errorf("kinds of %s, by %s: %w", cmp.Or(k.group, "the core API"), in, err)
	}
	for i := range resources.APIResources {
		if one := &resources.APIResources[i]; one.Kind == k.kind && !strings.Contains(one.Name, "/") {
			return base, one, nil
		}
	}
	return base, nil, nil
}
