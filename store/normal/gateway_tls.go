package normal

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// certificateField is a field of tls that names a certificate, a key or an authority.
type certificateField struct {
	name string
	set  bool
}

// certificateFields returns the fields of tls that name certificates, keys or authorities.
func certificateFields(tls *networkingv1.ServerTLSSettings) []certificateField {
	return []certificateField{
		{"serverCertificate", tls.ServerCertificate != ""}, {"privateKey", tls.PrivateKey != ""}, {"caCertificates", tls.CaCertificates != ""},
		{"tlsCertificates", len(tls.TlsCertificates) > 0}, {"credentialName", tls.CredentialName != ""},
		{"credentialNames", len(tls.CredentialNames) > 0},
	}
}

// checkMeshCertificate reports an error for each field that names a certificate, a key or an authority. A server with
// mode ISTIO_MUTUAL must not have such fields, because it uses the certificate of the mesh.
func checkMeshCertificate(r *report, at string, tls *networkingv1.ServerTLSSettings) {
	for _, f := range certificateFields(tls) {
		if f.set {
			r.errorf(at+"."+f.name, "does not go with mode ISTIO_MUTUAL, whose certificate is the mesh's")
		}
	}
}

// checkPassed reports certificates of a server that passes TLS through, because they have no effect. A single source of
// certificates gets only a warning, because Istio's webhook admits it.
func checkPassed(r *report, at string, tls *networkingv1.ServerTLSSettings) {
	switch sources := certificateSources(tls); {
	case len(sources) > 1:
		r.refusef(problem.NoEffect, at+"."+sources[len(sources)-1], "cannot be combined with %s; mode %v uses neither", sources[0], tls.Mode)
	case tls.CredentialName != "" && tls.CaCrl != "":
		r.refusef(problem.NoEffect, at+".caCrl", "does not go with credentialName, and mode %v has no certificate", tls.Mode)
	case tls.CaCrl != "" || slices.ContainsFunc(certificateFields(tls), func(f certificateField) bool { return f.set }):
		standard := ""
		if tls.Mode == networkingv1.ServerTLSSettings_PASSTHROUGH {
			standard = ", the default,"
		}
		r.warnf(problem.NoEffect, at, "mode %v%s does not terminate TLS: certificates have no effect", tls.Mode, standard)
	}
}

// certificateSources returns the fields that name the certificate of a server. Several such fields contradict each
// other. The file of a certificate counts only together with the file of its key.
func certificateSources(tls *networkingv1.ServerTLSSettings) (sources []string) {
	for _, f := range certificateFields(tls) {
		switch f.name {
		case "caCertificates", "privateKey":
			continue
		case "serverCertificate":
			f.set = f.set && tls.PrivateKey != ""
		}
		if f.set {
			sources = append(sources, f.name)
		}
	}
	return sources
}

// mostCertificates is the maximum number of certificates of a server: one with an RSA key and one with an ECDSA key.
const mostCertificates = 2

// checkServerCertificates checks the certificates of a server that terminates TLS (SIMPLE, MUTUAL, OPTIONAL_MUTUAL).
func checkServerCertificates(r *report, at string, tls *networkingv1.ServerTLSSettings) {
	if sources := certificateSources(tls); len(sources) > 1 {
		r.errorf(at+"."+sources[len(sources)-1], "cannot be combined with %s: want one source of certificates", sources[0])
	}
	if slices.Contains(tls.CredentialNames, "") {
		r.errorf(at+".credentialNames", "one of the names is empty")
	}
	clients := tls.Mode != networkingv1.ServerTLSSettings_SIMPLE
	if tls.CredentialName == "" && len(tls.CredentialNames) == 0 {
		checkCertificateFiles(r, at, tls, clients)
	}
	if len(tls.CredentialNames) > mostCertificates || len(tls.TlsCertificates) > mostCertificates {
		r.warnf(problem.NoEffect, at, "certificates beyond the first %d have no effect", mostCertificates)
	}
	switch secrets := tls.CredentialName != "" || len(tls.CredentialNames) > 0; {
	case tls.CaCrl == "":
	case secrets: // admitted by Istio's webhook, which ignores caCrl here
		r.warnf(problem.NoEffect, at+".caCrl", "does not go with a Secret: the revocation list is the Secret's")
	case !clients:
		r.refusef(problem.NoEffect, at+".caCrl", "does not go with mode SIMPLE, which asks clients for no certificate")
	}
	checkPins(r, at, tls)
	own := append([]string{tls.CredentialName}, tls.CredentialNames...)
	for i, name := range own {
		field := at + ".credentialName"
		if i > 0 {
			field = fmt.Sprintf("%s.credentialNames[%d]", at, i-1)
		}
		checkCredential(r, field, name, true)
	}
	if clients {
		checkCredential(r, at+".caCertCredentialName", tls.CaCertCredentialName, false)
	}
}

// checkCredential warns of the name of a credential that this version does not serve. If hasKey is true, the credential
// is a certificate with a private key. Otherwise it has the certificates of authorities.
func checkCredential(r *report, at, name string, hasKey bool) {
	const closed = "; connections are closed"
	_, short, isMap := model.ConfigMapOf(name)
	switch {
	case name == "", name == model.BuiltInCredential:
	case strings.HasPrefix(name, model.ExternalCredential):
		r.warnf(problem.NotSupported, at, "%.100q: this version uses no external SDS servers%s", name, closed)
	case isMap && short == "":
		r.warnf(problem.Invalid, at, "%.100q: want configmap://NAMESPACE/NAME%s", name, closed)
	case isMap && hasKey:
		r.warnf(problem.Invalid, at, "%.100q: a ConfigMap has no private key, and is for caCertCredentialName%s", name, closed)
	case !isMap && !hasKey && !strings.HasSuffix(name, model.AuthoritiesSuffix):
		r.warnf(problem.NoEffect, at, "%.100q: authorities are read from a Secret whose name ends with -cacert, "+
			"or from configmap://NAMESPACE/NAME, as by Istio's control plane%s", name, closed)
	}
}

// checkCertificateFiles reports an error if a server without Secrets does not name files for all of its certificates.
func checkCertificateFiles(r *report, at string, tls *networkingv1.ServerTLSSettings, clients bool) {
	if clients && tls.CaCertificates == "" {
		r.requiredf(at+".caCertificates", "must not be empty with mode %v", tls.Mode)
	}
	type files struct{ at, certificate, key string }
	all := []files{{at, tls.ServerCertificate, tls.PrivateKey}}
	if len(tls.TlsCertificates) > 0 {
		all = nil
	}
	for i, c := range tls.TlsCertificates {
		all = append(all, files{fmt.Sprintf("%s.tlsCertificates[%d]", at, i), c.GetServerCertificate(), c.GetPrivateKey()})
	}
	for _, f := range all {
		for field, stated := range map[string]string{"serverCertificate": f.certificate, "privateKey": f.key} {
			if stated == "" {
				r.requiredf(f.at+"."+field, "must not be empty with mode %v: set credentialName to a Secret of the gateway's namespace, or "+
					"serverCertificate and privateKey to files of the gateway's Pods", tls.Mode)
			}
		}
	}
}

// checkPins warns of hashes of client certificates in a form that Envoy refuses. No certificate matches such a hash.
func checkPins(r *report, at string, tls *networkingv1.ServerTLSSettings) {
	const size = 32 // bytes of SHA-256
	check := func(field string, pins []string, decode func(string) ([]byte, error)) {
		for i, pin := range pins {
			if b, err := decode(pin); err != nil || len(b) != size {
				r.warnf(problem.Invalid, fmt.Sprintf("%s.%s[%d]", at, field, i), "%.100q is no SHA-256: no certificate matches", pin)
			}
		}
	}
	check("verifyCertificateSpki", tls.VerifyCertificateSpki, base64.StdEncoding.DecodeString)
	check("verifyCertificateHash", tls.VerifyCertificateHash, func(pin string) ([]byte, error) {
		return hex.DecodeString(strings.ReplaceAll(pin, ":", ""))
	})
}
