package normal

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"
)

//lint:file-ignore SA1019 deprecated fields are what users' YAML still has

// checkAuthorizers checks the providers of external authorization of a mesh configuration: what Istio's control plane refuses, and what Envoy would refuse
// the listeners for. One that is wrong spoils the mesh configuration, of which what was good before stands.
func checkAuthorizers(r *report, config *meshv1.MeshConfig) {
	for i, p := range config.GetExtensionProviders() {
		at := fmt.Sprintf("data.mesh.extensionProviders[%d].", i)
		if http := p.GetEnvoyExtAuthzHttp(); http != nil {
			at += "envoyExtAuthzHttp"
			r.authorizer(at, http.GetService(), http.GetPort(), http.GetStatusOnError(), http.GetTimeout(), http.GetIncludeRequestBodyInCheck())
			if prefix := http.GetPathPrefix(); prefix != "" {
				if _, err := url.Parse(prefix); err != nil || !strings.HasPrefix(prefix, "/") {
					r.errorf(at+".pathPrefix", "%q is no path: want /...", prefix)
				}
			}
			for _, of := range []list{{"includeRequestHeadersInCheck", http.GetIncludeRequestHeadersInCheck()}, {"includeHeadersInCheck", http.GetIncludeHeadersInCheck()},
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
		if grpc := p.GetEnvoyExtAuthzGrpc(); grpc != nil {
			r.authorizer(at+"envoyExtAuthzGrpc", grpc.GetService(), grpc.GetPort(), grpc.GetStatusOnError(), grpc.GetTimeout(), grpc.GetIncludeRequestBodyInCheck())
		}
	}
}

// authorizer checks what both kinds have.
func (r *report) authorizer(at, service string, port uint32, status string, timeout *durationpb.Duration, body *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) {
	namespace, host, qualified := strings.Cut(service, "/")
	if !qualified {
		namespace, host = "", service
	}
	if wrong := plainHost(host); wrong != "" || qualified && namespace == "" {
		r.errorf(at+".service", "%q: want [NAMESPACE/]HOST", service)
	}
	r.port(at+".port", port)
	if code, err := strconv.Atoi(status); status != "" && (err != nil || !answered(code)) {
		r.errorf(at+".statusOnError", "%q is no status of HTTP that Envoy answers with", status)
	}
	r.duration1ms(at+".timeout", timeout, false)
	if body != nil && body.GetMaxRequestBytes() == 0 {
		r.requiredf(at+".includeRequestBodyInCheck.maxRequestBytes", "must be more than 0")
	}
}

// answered says whether a code is one of envoy.type.v3.StatusCode.
func answered(code int) bool {
	switch {
	case code >= 200 && code <= 208, code >= 300 && code <= 305, code >= 400 && code <= 417, code >= 421 && code <= 424, code >= 500 && code <= 508:
		return true
	}
	switch code {
	case 100, 226, 307, 308, 426, 428, 429, 431, 510, 511:
		return true
	}
	return false
}
