package normal

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"
)

//lint:file-ignore SA1019 users' YAML still uses deprecated fields

// checkExtensionProviders validates the providers of a mesh configuration by the rules of Istio's control plane and of
// Envoy. An invalid provider is reported as an error and removed, so policies and telemetry do not find its name. The
// rest of the mesh configuration applies. istiod differs: it warns, and omits the resources of an invalid provider
// (validateExtensionProvider in pkg/config/validation/agent).
func checkExtensionProviders(r *report, config *meshv1.MeshConfig) {
	spoiled, seen, good := r.spoiled, map[string]bool{}, []*meshv1.MeshConfig_ExtensionProvider(nil)
	for i, p := range config.GetExtensionProviders() {
		r.spoiled = false
		at := fmt.Sprintf("data.mesh.extensionProviders[%d]", i)
		switch name := p.GetName(); {
		case name == "":
			r.requiredf(at+".name", "must not be empty")
		case seen[name]:
			r.duplicatef(at+".name", "another provider is called %q too", name)
		}
		seen[p.GetName()] = true
		r.providerService(at, p)
		r.httpAuthorizer(at+".envoyExtAuthzHttp", p.GetEnvoyExtAuthzHttp())
		r.answer(at+".envoyExtAuthzGrpc", p.GetEnvoyExtAuthzGrpc())
		checkTracer(r, at, p)
		if r.spoiled {
			r.errorf(at, "provider %q is left out: its users have no provider", p.GetName())
			continue
		}
		good = append(good, p)
	}
	config.ExtensionProviders, r.spoiled = good, spoiled
}

// providerService validates that a provider has a kind. If this kind has a service and a port, it validates them too.
func (r *report) providerService(at string, p *meshv1.MeshConfig_ExtensionProvider) {
	m := p.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
	if kind == nil {
		r.requiredf(at, "needs the kind of the provider: zipkin, opentelemetry, envoyExtAuthzGrpc or another")
		return
	}
	at += "." + kind.JSONName()
	of, is := m.Get(kind).Message().Interface().(interface {
		GetService() string
		GetPort() uint32
	})
	if !is {
		return
	}
	namespace, host, qualified := strings.Cut(of.GetService(), "/")
	if !qualified {
		namespace, host = "", of.GetService()
	}
	if wrong := plainHost(host); wrong != "" || qualified && namespace == "" {
		r.errorf(at+".service", "%q: want [NAMESPACE/]HOST", of.GetService())
	}
	r.port(at+".port", of.GetPort())
}

// httpAuthorizer validates a provider of external authorization by HTTP.
func (r *report) httpAuthorizer(at string, http *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) {
	r.answer(at, http)
	if prefix := http.GetPathPrefix(); prefix != "" {
		if _, err := url.Parse(prefix); err != nil || !strings.HasPrefix(prefix, "/") {
			r.errorf(at+".pathPrefix", "%q is no path: want /...", prefix)
		}
	}
	for _, of := range []list{{"includeRequestHeadersInCheck", http.GetIncludeRequestHeadersInCheck()},
		{"includeHeadersInCheck", http.GetIncludeHeadersInCheck()},
		{"headersToUpstreamOnAllow", http.GetHeadersToUpstreamOnAllow()}, {"headersToDownstreamOnDeny", http.GetHeadersToDownstreamOnDeny()},
		{"headersToDownstreamOnAllow", http.GetHeadersToDownstreamOnAllow()}} {
		for j, header := range of.values {
			if header == "" || header == "*" {
				r.errorf(fmt.Sprintf("%s.%s[%d]", at, of.field, j), "%q: want a header, or *x or x* for those that end or begin so", header)
			}
		}
	}
	for _, name := range sortedKeys(http.GetIncludeAdditionalHeadersInCheck()) {
		r.headerName(fmt.Sprintf("%s.includeAdditionalHeadersInCheck[%s]", at, name), name)
	}
}

// answer validates the fields that both kinds of external authorizers have: HTTP and gRPC.
func (r *report) answer(at string, of interface {
	GetStatusOnError() string
	GetTimeout() *durationpb.Duration
	GetIncludeRequestBodyInCheck() *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
}) {
	status := of.GetStatusOnError()
	if code, err := strconv.Atoi(status); status != "" && (err != nil || !answered(code)) {
		r.errorf(at+".statusOnError", "%q is no status of HTTP that Envoy answers with", status)
	}
	r.duration1ms(at+".timeout", of.GetTimeout(), false)
	if body := of.GetIncludeRequestBodyInCheck(); body != nil && body.GetMaxRequestBytes() == 0 {
		r.requiredf(at+".includeRequestBodyInCheck.maxRequestBytes", "must be more than 0")
	}
}

// answered reports whether a code is a value of envoy.type.v3.StatusCode.
func answered(code int) bool {
	switch {
	case code >= 200 && code <= 208, code >= 300 && code <= 305, code >= 400 && code <= 417, code >= 421 && code <= 424, code >= 500 &&
		code <= 508:
		return true
	}
	switch code {
	case 100, 226, 307, 308, 426, 428, 429, 431, 510, 511:
		return true
	}
	return false
}
