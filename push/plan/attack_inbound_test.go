package plan

import (
	"fmt"
	"strings"
	"testing"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

func init() {
	attacks["ports of a workload"] = func(t testing.TB, n int) []model.Record {
		return []model.Record{portsOfWorkload(t, 20*n)}
	}
	attacks["policies of inbound ports"] = func(t testing.TB, n int) []model.Record {
		return []model.Record{portsOfWorkload(t, n), manyPrincipals(t, 50*n)}
	}
	attacks["tokens of inbound ports"] = func(t testing.TB, n int) []model.Record {
		var rules strings.Builder
		for i := range 8 * n {
			fmt.Fprintf(&rules, "{issuer: i%d, jwks: '{\"keys\":[{\"kty\":\"oct\",\"kid\":\"%[1]d\",\"k\":\"aGVsbG8\"}]}', fromHeaders: [{name: h%[1]d}]}, ", i)
		}
		return []model.Record{portsOfWorkload(t, n), security(t, model.KindRequestAuthentication, "ns0/attack",
			"jwtRules: ["+rules.String()+"]", &securityv1.RequestAuthentication{})}
	}
	attacks["patches of inbound ports"] = func(t testing.TB, n int) []model.Record {
		return []model.Record{portsOfWorkload(t, n), manyPatches(t, n,
			"applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}",
			`operation: INSERT_FIRST, value: {name: f%d, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}`)}
	}
}

// portsOfWorkload is a Service of n ports that selects the tenant's own workload.
func portsOfWorkload(t testing.TB, n int) model.Record {
	var ports strings.Builder
	for k := range n {
		fmt.Fprintf(&ports, "{name: p%d, number: %d, protocol: PROTOCOL_HTTP}, ", k, 1000+k)
	}
	return workloadService(t, "attack", ports.String())
}

// manyPrincipals is a DENY policy of n principals.
func manyPrincipals(t testing.TB, n int) model.Record {
	var principals strings.Builder
	for i := range n {
		fmt.Fprintf(&principals, "cluster.local/ns/foo/sa/p-%06d, ", i)
	}
	return security(t, model.KindAuthorizationPolicy, "ns0/attack",
		"action: DENY\nrules: [{from: [{source: {principals: ["+principals.String()+"]}}]}]", &securityv1.AuthorizationPolicy{})
}
