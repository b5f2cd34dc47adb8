package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/cmd/navarchctl/cluster"
)

// kindName is a kind of the configuration.
type kindName struct{ group, kind string }

const (
	networking = "networking.istio.io"
	security   = "security.istio.io"
	telemetry  = "telemetry.istio.io"
	extensions = "extensions.istio.io"
	gatewayAPI = "gateway.networking.k8s.io"
)

// kindNames maps kubectl's words for kinds to kinds of the configuration, in lower case and singular.
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
}

// configures reports whether the kind is one of the configuration.
func (k kindName) configures() bool {
	for _, known := range kindNames {
		if k == known {
			return true
		}
	}
	return k == kindName{gatewayAPI, "Gateway"}
}

// named reports whether the kind's name is one of the configuration, whatever its group.
func (k kindName) named() bool {
	for _, known := range kindNames {
		if k.kind == known.kind {
			return true
		}
	}
	return false
}

// parseKind returns the kind of a word: a name, a plural or a short name, in any case, or KIND.GROUP.
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
		return k, fmt.Errorf("kind %q: want a kind of the configuration, as VirtualService, or KIND.GROUP", word)
	}
	return k, nil
}

// path returns the path of an object at the API server, by the versions and resources that it offers, and whether the
// object has a namespace. Errors name the group and the kind.
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

// resource returns the path of the group and the resource of the kind; nil: the API server does not have it. Without a
// version it is the preferred one. Errors name the group.
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
