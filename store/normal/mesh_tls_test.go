package normal

import (
	"fmt"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"
)

// TLS settings of the mesh are compared with those that proxies accept: all others are reported by their path, and
// omitted.
func TestMeshTLS(t *testing.T) {
	const suites, curves = "data.mesh.tlsDefaults.cipherSuites", "data.mesh.tlsDefaults.ecdhCurves"
	for _, c := range []struct {
		mesh string
		want []string
		left string // cipher suites and curves of tlsDefaults
	}{
		{"tlsDefaults: {cipherSuites: [AES128-SHA, RC4-MD5, '', AES128-SHA, TLS_AES_128_GCM_SHA256]}", []string{"warning " + suites + `[1]: "RC4-MD5" is not a cipher suite`, "warning " + suites + `[2]: "" is not`,
			"warning " + suites + `[3]: "AES128-SHA" occurs twice`, "warning " + suites + "[4]: "}, "AES128-SHA"},
		{"tlsDefaults: {cipherSuites: ['[AES128-SHA|AES256-SHA]', '[AES128-SHA|RC4]', '[]', '[AES128-SHA']}",
			[]string{"warning " + suites + "[1]: ", "warning " + suites + "[2]: ", "warning " + suites + "[3]: "}, "[AES128-SHA|AES256-SHA]"},
		{"tlsDefaults: {cipherSuites: [ALL, '!AES128-SHA', -DES-CBC3-SHA, +AES256-SHA, -ALL, '!']}", []string{"warning " + suites + "[4]: ", "warning " + suites + "[5]: "}, "ALL !AES128-SHA -DES-CBC3-SHA +AES256-SHA"},
		{"tlsDefaults: {cipherSuites: ['!AES128-SHA', AES128-SHA, -AES128-SHA]}", []string{"warning " + suites + "[0]: ", "warning " + suites + "[2]: "}, "AES128-SHA"},
		{"tlsDefaults: {ecdhCurves: [P-256, P-224, X25519Kyber768Draft00, prime256v1, '', P-384, secp521r1, X25519, x25519, X25519MLKEM768]}", []string{
			"warning " + curves + `[1]: "P-224" is not a curve that proxies support`, "warning " + curves + "[2]: ", "warning " + curves + `[3]: "prime256v1" occurs twice`,
			"warning " + curves + "[4]: ", "warning " + curves + `[8]: "x25519" occurs twice`}, "P-256 P-384 secp521r1 X25519 X25519MLKEM768"},
		{"tlsDefaults: {minProtocolVersion: 9}", []string{"data.mesh.tlsDefaults.minProtocolVersion: unknown value 9"}, "refused"},
		{"tlsDefaults: {minProtocolVersion: TLSV1_1}", []string{`data.mesh.tlsDefaults.minProtocolVersion: unknown value "TLSV1_1"`}, "refused"},
		{"meshMTLS: {minProtocolVersion: 9}", []string{"data.mesh.meshMTLS.minProtocolVersion: unknown value 9"}, "refused"},
		{"meshMTLS: {ecdhCurves: [P-256]}", []string{"data.mesh.meshMTLS.ecdhCurves: is not supported by Istio"}, "refused"},
		{"meshMTLS: {cipherSuites: [RC4-MD5], minProtocolVersion: TLSV1_3}", []string{`warning data.mesh.meshMTLS.cipherSuites[0]: "RC4-MD5"`}, ""},
		{"{tlsDefaults: {cipherSuites: [ECDHE-RSA-AES128-SHA256]}, meshMTLS: {cipherSuites: [ECDHE-RSA-AES128-SHA256]}}",
			[]string{`warning data.mesh.meshMTLS.cipherSuites[0]: "ECDHE-RSA-AES128-SHA256"`}, "ECDHE-RSA-AES128-SHA256"},
	} {
		got := testNormal.ParseMesh(read(t, meshMap(c.mesh, "{}")))
		wantProblems(t, got.Problems, c.want...)
		left := "refused"
		if got.Config != nil {
			left = strings.Join(append(got.Config.GetTlsDefaults().GetCipherSuites(), got.Config.GetTlsDefaults().GetEcdhCurves()...), " ")
		}
		if left != c.left || got.Config.GetMeshMTLS().GetCipherSuites() != nil {
			t.Errorf("%s: left are %q and of mTLS %v, want %q", c.mesh, left, got.Config.GetMeshMTLS().GetCipherSuites(), c.left)
		}
	}
	for v := range meshv1.MeshConfig_TLSConfig_TLSProtocol_name {
		if got := testNormal.ParseMesh(read(t, meshMap(fmt.Sprintf("tlsDefaults: {minProtocolVersion: %d}", v), "{}"))); got.Config == nil {
			t.Errorf("version %d: %v", v, got.Problems)
		}
	}
}
