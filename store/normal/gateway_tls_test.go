package normal

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// Of a server's TLS, cipher suites and curves for which Envoy would refuse the whole listener are left out with a
// warning. Malformed pins stay: without them the server would accept other clients.
func TestServersOfGatewaysHaveWhatEnvoyTakes(t *testing.T) {
	of := func(more string) string {
		const server = "port: {number: 443, name: a, protocol: HTTPS}, hosts: ['*'], tls: {mode: MUTUAL, credentialName: a"
		return "{selector: {a: b}, servers: [{" + server + more + "}}]}"
	}
	sum, at := strings.Repeat("ab", 32), "warning spec.servers[0].tls."
	pins := ", verifyCertificateSpki: ['NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A=', 'YQ==']" +
		", verifyCertificateHash: ['" + sum + "', 'aa:bb']"
	const lists = ", cipherSuites: [AES128-SHA, NO-SUCH, AES128-SHA], ecdhCurves: [P-256, P-224, prime256v1]"
	r := testNormal.Object(read(t, istio("Gateway", of(lists+pins))), &fake{})
	wantProblems(t, r.Problems, at+`cipherSuites[1]: "NO-SUCH" is not a cipher suite`, at+`cipherSuites[2]: "AES128-SHA" occurs twice`,
		at+`ecdhCurves[1]: "P-224" is not a curve`, at+`ecdhCurves[2]: "prime256v1" occurs twice`,
		at+`verifyCertificateSpki[1]: "YQ==" is no SHA-256`, at+`verifyCertificateHash[1]: "aa:bb" is no SHA-256`)
	wantBody(t, r, key(model.KindGateway, "x"), of(", cipherSuites: [AES128-SHA], ecdhCurves: [P-256]"+pins))
}
