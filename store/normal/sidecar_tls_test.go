package normal

import (
	"testing"

	"navarch.io/navarch/store/model"
)

// TLS settings of an ingress listener: settings that Istio's validation refuses are refused; cipher suites that Envoy
// does not know are removed.
func TestSidecarIngressTLS(t *testing.T) {
	of := func(protocol, tls string) string {
		return "{ingress: [{port: {number: 443, protocol: " + protocol + ", name: a}, tls: {" + tls + "}}]}"
	}
	const files, mutual = "serverCertificate: /c, privateKey: /k", "mode: MUTUAL, serverCertificate: /c, privateKey: /k"
	taken := of("HTTPS", mutual+", caCertificates: /ca, caCrl: /crl, minProtocolVersion: TLSV1_2, maxProtocolVersion: TLSV1_3, cipherSuites: [AES128-SHA]")
	for _, c := range []struct {
		spec string
		want []string
	}{
		{taken, nil},
		{of("TLS", "mode: SIMPLE, "+files), nil},
		{of("HTTPS", "mode: OPTIONAL_MUTUAL, caCertificates: /ca, "+files), nil},
		{of("HTTPS", files), []string{"warning spec.ingress[0].tls.mode: PASSTHROUGH does not terminate TLS"}},
		{of("HTTPS", "mode: SIMPLE"), []string{"spec.ingress[0].tls.serverCertificate: must not be empty", "spec.ingress[0].tls.privateKey: must not be empty"}},
		{of("HTTPS", mutual), []string{"spec.ingress[0].tls.caCertificates: must not be empty"}},
		{of("HTTPS", "mode: SIMPLE, caCrl: /crl, "+files), []string{"spec.ingress[0].tls.caCrl: does not go with mode SIMPLE"}},
		{of("HTTPS", "mode: ISTIO_MUTUAL"), []string{"spec.ingress[0].tls.mode: ISTIO_MUTUAL is not supported"}},
		{of("HTTPS", "mode: AUTO_PASSTHROUGH"), []string{"spec.ingress[0].tls.mode: AUTO_PASSTHROUGH is not supported"}},
		{of("HTTP", "mode: SIMPLE, "+files), []string{`spec.ingress[0].tls: goes with protocol HTTPS or TLS, not "HTTP"`}},
		{of("HTTPS", "mode: SIMPLE, httpsRedirect: true, "+files), []string{"spec.ingress[0].tls.httpsRedirect: is not supported"}},
		{of("HTTPS", "mode: SIMPLE, credentialName: a, "+files), []string{"spec.ingress[0].tls.credentialName: is not supported"}},
		{of("HTTPS", "mode: SIMPLE, credentialNames: [a], "+files), []string{"spec.ingress[0].tls.credentialNames: is not supported"}},
		{of("HTTPS", "mode: SIMPLE, tlsCertificates: [{serverCertificate: /c, privateKey: /k}], "+files), []string{"spec.ingress[0].tls.tlsCertificates: is not supported"}},
		{of("HTTPS", mutual+", caCertificates: /ca, subjectAltNames: [a]"), []string{"spec.ingress[0].tls.subjectAltNames: is not supported"}},
		{of("HTTPS", "mode: SIMPLE, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2, "+files), []string{"spec.ingress[0].tls.minProtocolVersion: TLSV1_3 is above"}},
		{of("HTTPS", "mode: SIMPLE, minProtocolVersion: TLSV1_1, "+files), []string{"warning spec.ingress[0].tls.cipherSuites: versions of TLS below TLSV1_2"}},
		{of("HTTPS", "mode: SIMPLE, cipherSuites: [AES128-SHA, RC4-MD5, AES128-SHA], "+files), []string{
			`warning spec.ingress[0].tls.cipherSuites[1]: "RC4-MD5" is not a cipher suite`, `warning spec.ingress[0].tls.cipherSuites[2]: "AES128-SHA" occurs twice`}},
		{of("HTTPS", mutual+", caCertificates: /ca, verifyCertificateHash: [a]"), []string{"warning spec.ingress[0].tls.verifyCertificateHash: is not acted on"}},
	} {
		wantProblems(t, testNormal.Object(read(t, istio("Sidecar", c.spec)), &fake{}).Problems, c.want...)
	}
	r := testNormal.Object(read(t, istio("Sidecar", of("HTTPS", "mode: SIMPLE, cipherSuites: [AES128-SHA, RC4-MD5, AES128-SHA], "+files))), &fake{})
	wantBody(t, r, key(model.KindSidecar, "x"), of("HTTPS", "mode: SIMPLE, cipherSuites: [AES128-SHA], "+files))
}
