package gateway

import (
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/xds"
)

// The settings of a server and the mesh's defaults become the TLS of a chain; names of secrets are Istio's.
func TestServerTLS(t *testing.T) {
	const (
		simple, mutual = networkingv1.ServerTLSSettings_SIMPLE, networkingv1.ServerTLSSettings_MUTUAL
		optional       = networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL
		istio          = networkingv1.ServerTLSSettings_ISTIO_MUTUAL
		tls12, tls13   = networkingv1.ServerTLSSettings_TLSV1_2, networkingv1.ServerTLSSettings_TLSV1_3
	)
	ads := func(names ...string) listener.ServerTLS {
		var all []listener.Secret
		for _, name := range names {
			all = append(all, listener.Secret{Name: name})
		}
		return listener.ServerTLS{Mode: simple, Secrets: secrets.List(all...)}
	}
	with := func(s listener.ServerTLS, edit func(*listener.ServerTLS)) listener.ServerTLS { edit(&s); return s }
	trusting := func(mode networkingv1.ServerTLSSettings_TLSmode, trust string, names ...string) listener.ServerTLS {
		return with(ads(names...), func(s *listener.ServerTLS) { s.Mode, s.Trust = mode, listener.Secret{Name: trust} })
	}
	agents := func(name string) listener.Secret { return listener.Secret{Name: name, Cluster: xds.SDSCluster} }
	outside := func(name string) listener.Secret { return listener.Secret{Name: name, Cluster: "sds-external"} }
	defaults := &meshv1.MeshConfig{TlsDefaults: &meshv1.MeshConfig_TLSConfig{MinProtocolVersion: meshv1.MeshConfig_TLSConfig_TLSV1_3,
		CipherSuites: []string{"AES128-SHA"}, EcdhCurves: []string{"P-256"}}}
	for text, want := range map[string]listener.ServerTLS{
		"{}":                                     {},
		"{httpsRedirect: true}":                  {},
		"{mode: AUTO_PASSTHROUGH}":               {},
		"{mode: PASSTHROUGH, credentialName: a}": {},
		"{mode: SIMPLE, credentialName: a}":      ads("kubernetes://a"),
		"{mode: SIMPLE, credentialName: 'kubernetes://b/a'}":         ads("kubernetes://b/a"),
		"{mode: SIMPLE, credentialName: 'kubernetes-gateway://b/a'}": ads("kubernetes-gateway://b/a"),
		"{mode: SIMPLE, credentialName: 'invalid://'}":               ads("invalid://"),
		"{mode: SIMPLE, credentialNames: [rsa, ec, third]}":          ads("kubernetes://rsa", "kubernetes://ec"),
		"{mode: SIMPLE, credentialName: 'builtin://'}":               with(ads(), func(s *listener.ServerTLS) { s.Secrets = secrets.List(agents("default")) }),
		"{mode: MUTUAL, credentialName: 'builtin://'}": with(ads(), func(s *listener.ServerTLS) {
			s.Mode, s.Secrets, s.Trust = mutual, secrets.List(agents("default")), agents("ROOTCA")
		}),
		"{mode: MUTUAL, credentialName: 'sds://known'}": with(ads(), func(s *listener.ServerTLS) {
			s.Mode, s.Secrets, s.Trust = mutual, secrets.List(outside("sds://known")), outside("sds://known-cacert")
		}),
		"{mode: SIMPLE, credentialName: 'sds://other'}":                                                 ads("sds://other"),
		"{mode: MUTUAL, credentialName: a}":                                                             trusting(mutual, "kubernetes://a-cacert", "kubernetes://a"),
		"{mode: OPTIONAL_MUTUAL, credentialNames: [rsa, ec]}":                                           trusting(optional, "kubernetes://rsa-cacert", "kubernetes://rsa", "kubernetes://ec"),
		"{mode: MUTUAL, credentialName: a, caCertCredentialName: trust}":                                trusting(mutual, "kubernetes://trust", "kubernetes://a"),
		"{mode: MUTUAL, credentialName: a, caCertCredentialName: 'configmap://b/t-cacert'}":             trusting(mutual, "configmap://b/t-cacert", "kubernetes://a"),
		"{mode: MUTUAL, credentialName: a, serverCertificate: /c, privateKey: /k, caCertificates: /ca}": trusting(mutual, "kubernetes://a-cacert", "kubernetes://a"),
		"{mode: ISTIO_MUTUAL, subjectAltNames: [a]}":                                                    {Mode: istio, Clients: texts.List("a")},
		"{mode: SIMPLE, serverCertificate: /c, privateKey: /k, subjectAltNames: [a], verifyCertificateSpki: [k], insecureSkipVerify: true, caCertificates: /ca}": {Mode: simple, Certificate: "/c", Key: "/k"},
		"{mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /ca, caCrl: /crl, subjectAltNames: [a], verifyCertificateSpki: [k], verifyCertificateHash: [h]}": {Mode: mutual,
			Certificate: "/c", Key: "/k", Authorities: "/ca", Revoked: "/crl",
			Clients: texts.List("a"), Keys: texts.List("k"), Hashes: texts.List("h")},
		"{mode: OPTIONAL_MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /ca, insecureSkipVerify: true}": {Mode: optional, Certificate: "/c", Key: "/k", Authorities: "/ca", Unverified: true},
		"{mode: SIMPLE, tlsCertificates: [{serverCertificate: /c, privateKey: /k}, {serverCertificate: /c2, privateKey: /k2}, {serverCertificate: /c3, privateKey: /k3}]}": {Mode: simple,
			Certificate: "/c", Key: "/k", Certificate2: "/c2", Key2: "/k2"},
		"{mode: SIMPLE, credentialName: a, alpnProtocols: [http/1.1]}": with(ads("kubernetes://a"), func(s *listener.ServerTLS) { s.ALPN = texts.List("http/1.1") }),
	} {
		check(t, text, &meshv1.MeshConfig{}, want)
	}
	usual := with(ads("kubernetes://a"), func(s *listener.ServerTLS) {
		s.Ciphers, s.Curves, s.Least = texts.List("AES128-SHA"), texts.List("P-256"), tls13
	})
	for text, want := range map[string]listener.ServerTLS{
		"{mode: SIMPLE, credentialName: a}": usual,
		"{mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_2, cipherSuites: [AES256-SHA], ecdhCurves: [X25519]}": with(usual, func(s *listener.ServerTLS) {
			s.Ciphers, s.Curves, s.Least = texts.List("AES256-SHA"), texts.List("X25519"), tls12
		}),
		"{mode: SIMPLE, credentialName: a, maxProtocolVersion: TLSV1_2}":                              with(usual, func(s *listener.ServerTLS) { s.Least, s.Most = tls12, tls12 }),
		"{mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2}": with(usual, func(s *listener.ServerTLS) { s.Least, s.Most = tls13, tls12 }),
		"{mode: ISTIO_MUTUAL}": with(usual, func(s *listener.ServerTLS) { s.Mode, s.Secrets = istio, ads().Secrets }),
	} {
		check(t, text, defaults, want)
	}
}

func check(t *testing.T, text string, mesh *meshv1.MeshConfig, want listener.ServerTLS) {
	t.Helper()
	s := &networkingv1.Server{}
	raw, err := yaml.YAMLToJSON([]byte("tls: " + text))
	if err == nil {
		err = protojson.Unmarshal(raw, s)
	}
	if err != nil {
		t.Fatal(text, err)
	}
	serves := func(name string) string {
		if name == "known" {
			return "sds-external"
		}
		return ""
	}
	if got, want := contents(serverTLS(s, mesh, serves)), contents(want); got != want {
		t.Errorf("%s:\n got %s,\nwant %s", text, got, want)
	}
}

// contents prints the fields that are set. Lists of different tables have different handles.
func contents(tls listener.ServerTLS) string {
	out, v := "", reflect.ValueOf(tls)
	for i := range v.NumField() {
		field := v.Field(i)
		if all := field.MethodByName("All"); all.IsValid() {
			field = all.Call(nil)[0]
		}
		if !field.IsZero() {
			out += fmt.Sprintf("%s: %v; ", v.Type().Field(i).Name, field)
		}
	}
	return out
}
