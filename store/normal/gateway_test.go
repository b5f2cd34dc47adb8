package normal

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// oneServer is a Gateway with one server: its fields in place of hosts, port or tls, or beside them.
func oneServer(fields string) string {
	server := map[string]string{"hosts": "hosts: [a.com]", "port": "port: {number: 80, name: a, protocol: HTTP}"}
	for name := range server {
		if strings.Contains(fields, name+":") {
			delete(server, name)
		}
	}
	for _, field := range server {
		fields += ", " + field
	}
	return "{servers: [{" + strings.TrimPrefix(fields, ", ") + "}]}"
}

// oneTLS is a Gateway with one HTTPS server with these settings.
func oneTLS(fields string) string {
	return oneServer("port: {number: 443, name: a, protocol: HTTPS}, tls: {" + fields + "}")
}

// Hashes in the forms that Envoy takes.
const (
	spki = "NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A="
	hash = "df6ff72fe9116521268f6f2dd4966f51df479883fe7037b39f75916ac3049d1a"
)

// Errors that spoil a Gateway. Istio's webhook refuses these too; deploy/docs/validation.md has the exceptions.
func TestGatewayErrors(t *testing.T) {
	for _, c := range []struct{ spec, field string }{
		{"{servers: [{hosts: [a.com]}]}", "spec.servers[0].port: must not be empty"},
		{"{servers: [{port: {number: 80, name: a, protocol: HTTP}}]}", "spec.servers[0].hosts: must not be empty"},
		{oneServer("hosts: ['/a.com']"), `spec.servers[0].hosts[0]: "/a.com"`},
		{oneServer("hosts: ['a/']"), `spec.servers[0].hosts[0]: "a/"`},
		{oneServer("hosts: ['A_/a.com']"), `spec.servers[0].hosts[0]: "A_" is no namespace`},
		{oneServer("hosts: [a.com, '*a.com']"), `spec.servers[0].hosts[1]: host "*a.com"`},
		{oneServer("hosts: [a.*.com]"), `spec.servers[0].hosts[0]: host "a.*.com"`},
		{oneServer("hosts: [a/b/c.com]"), `spec.servers[0].hosts[0]: host "b/c.com"`},
		{oneServer("port: {number: 0, name: a, protocol: HTTP}"), "spec.servers[0].port.number: port 0"},
		{oneServer("port: {number: 65536, name: a, protocol: HTTP}"), "spec.servers[0].port.number: port 65536"},
		{oneServer("port: {number: 80, name: a}"), "spec.servers[0].port.protocol: must not be empty"},
		{oneServer("port: {number: 80, name: a, protocol: SMTP}"), `spec.servers[0].port.protocol: unknown protocol "SMTP"`},
		{oneServer("port: {number: 80, name: a, protocol: HTTPS}"), "spec.servers[0].tls: must be stated"},
		{oneServer("port: {number: 80, name: a, protocol: tls}"), "spec.servers[0].tls: must be stated"},
		{oneServer("bind: a.com"), `spec.servers[0].bind: "a.com" is neither`},
		{oneServer("port: {number: 0, name: a, protocol: HTTP}, bind: 'unix://a'"), `spec.servers[0].bind: "a" is not an absolute path`},
		{oneServer("port: {number: 0, name: a, protocol: HTTP}, bind: 'unix:///a/'"), `spec.servers[0].bind: "unix:///a/" is a folder`},
		{oneServer("bind: 'unix:///a'"), "spec.servers[0].port.number: must be 0"},
		{oneTLS("mode: SIMPEL"), "spec.servers[0].tls.mode"},
		{oneTLS("mode: ISTIO_MUTUAL, credentialName: a"), "spec.servers[0].tls.credentialName: does not go with mode ISTIO_MUTUAL"},
		{oneTLS("mode: ISTIO_MUTUAL, credentialNames: [a]"), "spec.servers[0].tls.credentialNames: does not go with mode ISTIO_MUTUAL"},
		{oneTLS("mode: ISTIO_MUTUAL, serverCertificate: /a"), "spec.servers[0].tls.serverCertificate: does not go with mode ISTIO_MUTUAL"},
		{oneTLS("mode: ISTIO_MUTUAL, privateKey: /a"), "spec.servers[0].tls.privateKey: does not go with mode ISTIO_MUTUAL"},
		{oneTLS("mode: ISTIO_MUTUAL, caCertificates: /a"), "spec.servers[0].tls.caCertificates: does not go with mode ISTIO_MUTUAL"},
		{oneTLS("mode: ISTIO_MUTUAL, tlsCertificates: [{serverCertificate: /a}]"), "spec.servers[0].tls.tlsCertificates: does not go with mode ISTIO_MUTUAL"},
		{oneTLS("mode: SIMPLE, credentialName: a, credentialNames: [b]"), "spec.servers[0].tls.credentialNames: cannot be combined with credentialName"},
		{oneTLS("mode: SIMPLE, credentialName: a, serverCertificate: /a, privateKey: /b"), "spec.servers[0].tls.credentialName: cannot be combined with serverCertificate"},
		{oneTLS("mode: MUTUAL, credentialName: a, tlsCertificates: [{}]"), "spec.servers[0].tls.credentialName: cannot be combined with tlsCertificates"},
		{oneTLS("mode: SIMPLE, credentialNames: [a, '']"), "spec.servers[0].tls.credentialNames: one of the names is empty"},
		{oneTLS("mode: SIMPLE, privateKey: /a"), "spec.servers[0].tls.serverCertificate: must not be empty"},
		{oneTLS("mode: SIMPLE, serverCertificate: /a"), "spec.servers[0].tls.privateKey: must not be empty"},
		{oneTLS("mode: SIMPLE, tlsCertificates: [{serverCertificate: /a}]"), "spec.servers[0].tls.tlsCertificates[0].privateKey: must not be empty"},
		{oneTLS("mode: MUTUAL, serverCertificate: /a, privateKey: /b"), "spec.servers[0].tls.caCertificates: must not be empty"},
		{oneTLS("mode: OPTIONAL_MUTUAL, serverCertificate: /a, privateKey: /b"), "spec.servers[0].tls.caCertificates: must not be empty"},
	} {
		r := testNormal.Object(read(t, istio("Gateway", c.spec)), &fake{})
		wantProblems(t, r.Problems, c.field)
		if !r.Spoiled || len(r.Records) > 0 {
			t.Errorf("%s applies", c.spec)
		}
	}
}

// Gateways that Istio admits apply; those with a warning have a field without effect.
func TestGatewayAdmitted(t *testing.T) {
	for _, c := range []struct{ spec, warning string }{
		{oneServer(""), ""},
		{oneServer("hosts: ['*', '*.a.com', A.com, ns/*, ./b.com, '*/*', 10.0.0.1, a.com.]"), ""},
		{oneServer("bind: 10.0.0.1"), ""},
		{oneServer("bind: 'f::1'"), ""},
		{oneServer("port: {number: 0, name: a, protocol: HTTP}, bind: 'unix:///a/b'"), ""},
		{oneServer("port: {number: 0, name: a, protocol: http2}, bind: 'unix://@a'"), ""},
		{oneServer("tls: {httpsRedirect: true}"), ""},
		{oneServer("port: {number: 80, name: a, protocol: MySQL}"), ""},
		{oneServer("port: {number: 80, name: a, protocol: UDP}"), "spec.servers[0].port.protocol"},
		{"{selector: {istio: ingressgateway}, " + oneTLS("mode: SIMPLE, credentialName: web")[1:], ""},
		{"{selector: {a: 'x*'}, " + oneServer("")[1:], "spec.selector"},
		{oneTLS("mode: SIMPLE, credentialNames: [a, b]"), ""},
		{oneTLS("mode: MUTUAL, credentialName: a, caCertCredentialName: b-cacert"), ""},
		{oneTLS("mode: MUTUAL, credentialName: a, caCertCredentialName: 'configmap://n/b'"), ""},
		{oneTLS("mode: MUTUAL, credentialName: a, caCertCredentialName: b"), "spec.servers[0].tls.caCertCredentialName"},
		{oneTLS("mode: MUTUAL, credentialName: a, caCertCredentialName: 'configmap://b'"), "spec.servers[0].tls.caCertCredentialName"},
		{oneTLS("mode: SIMPLE, credentialNames: [a, 'configmap://n/b']"), "spec.servers[0].tls.credentialNames[1]"},
		{oneTLS("mode: SIMPLE, credentialName: 'sds://a'"), "spec.servers[0].tls.credentialName"},
		{oneTLS("mode: SIMPLE, credentialName: 'builtin://'"), ""},
		{oneTLS("mode: OPTIONAL_MUTUAL, serverCertificate: /a, privateKey: /b, caCertificates: /c, caCrl: /d"), ""},
		{oneTLS("mode: SIMPLE, tlsCertificates: [{serverCertificate: /a, privateKey: /b}, {serverCertificate: /c, privateKey: /d}]"), ""},
		{oneTLS("mode: ISTIO_MUTUAL"), ""},
		{oneTLS("mode: PASSTHROUGH"), ""},
		{oneTLS("mode: AUTO_PASSTHROUGH"), ""},
		{oneTLS("mode: MUTUAL, credentialName: a, verifyCertificateSpki: [" + spki + "], verifyCertificateHash: [" + hash + "]"), ""},
		{oneTLS("mode: SIMPLE, credentialName: a, httpsRedirect: true"), "spec.servers[0].tls.httpsRedirect"},
		{oneTLS("mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2"), "spec.servers[0].tls.minProtocolVersion"},
		{oneTLS("mode: MUTUAL, credentialName: a, verifyCertificateSpki: [" + spki + ", bm90Cg==]"), "spec.servers[0].tls.verifyCertificateSpki[1]"},
		{oneTLS("mode: MUTUAL, credentialName: a, verifyCertificateHash: [" + hash + ", 'df:6f']"), "spec.servers[0].tls.verifyCertificateHash[1]"},
		{oneTLS("mode: PASSTHROUGH, credentialName: a"), "spec.servers[0].tls"},
		{oneTLS("mode: AUTO_PASSTHROUGH, caCrl: /a"), "spec.servers[0].tls"},
		{oneTLS("mode: SIMPLE, credentialNames: [a, b, c]"), "spec.servers[0].tls"},
		{oneTLS("mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_1"), "spec.servers[0].tls.cipherSuites"},
		{oneTLS("mode: SIMPLE, credentialName: a, cipherSuites: [AES128-SHA, AES128-SHA]"), "spec.servers[0].tls.cipherSuites[1]"},
		{oneTLS("mode: SIMPLE, credentialName: a, cipherSuites: [XYZ]"), "spec.servers[0].tls.cipherSuites[0]"},
		{oneTLS("mode: SIMPLE, credentialName: a, ecdhCurves: [P-256, P-225]"), "spec.servers[0].tls.ecdhCurves[1]"},
		{oneTLS("mode: MUTUAL, credentialName: a, caCrl: /a"), "spec.servers[0].tls.caCrl"},
	} {
		r := testNormal.Object(read(t, istio("Gateway", c.spec)), &fake{})
		if r.Spoiled || len(r.Records) != 1 || len(r.Refused) > 0 {
			t.Errorf("%s: %+v", c.spec, r)
		}
		if (len(r.Problems) == 1) != (c.warning != "") || c.warning != "" && r.Problems[0].Field != c.warning {
			t.Errorf("%s: %v, want a warning of %q", c.spec, r.Problems, c.warning)
		}
	}
}

// The name of a Gateway is a part of names of route configurations: no dots, as with Istio.
func TestGatewayName(t *testing.T) {
	text := istio("Gateway", oneServer(""))
	r := testNormal.Object(read(t, strings.Replace(text, "name: x", "name: x.y", 1)), &fake{})
	if len(r.Refused) != 1 || r.Refused[0].Field != "metadata.name" || len(r.Records) != 1 {
		t.Errorf("%s: %+v", text, r)
	}
}

// The record has cipher suites and curves that Envoy takes, and everything else as it is written.
func TestGatewayRecord(t *testing.T) {
	spec := oneTLS("mode: SIMPLE, credentialName: a, cipherSuites: [XYZ, AES128-SHA], ecdhCurves: [P-225, X25519]")
	r := testNormal.Object(read(t, istio("Gateway", spec)), &fake{})
	s := r.Records[0].(*model.Gateway).Spec.Servers[0]
	if tls := s.Tls; !slices.Equal(tls.CipherSuites, []string{"AES128-SHA"}) || !slices.Equal(tls.EcdhCurves, []string{"X25519"}) {
		t.Errorf("%v", tls)
	}
}

// A Service with Knative's label leaves ports of Gateways as they are.
func TestUntranslatedPorts(t *testing.T) {
	text := service("clusterIP: 10.0.0.1, ports: [{port: 80}]")
	labelled := strings.Replace(text, "namespace: shop}", "namespace: shop, labels: {"+untranslatedLabel+": ''}}", 1)
	for in, want := range map[string]bool{text: false, labelled: true} {
		r := testNormal.Object(read(t, in), &fake{})
		if got := r.Records[0].(*model.Service).Spec.GetUntranslatedPorts(); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}
