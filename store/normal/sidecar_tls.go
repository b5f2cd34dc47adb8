package normal

import (
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// checkIngressTLS validates the TLS settings of an ingress listener by the rules of Istio: modes SIMPLE, MUTUAL and
// OPTIONAL_MUTUAL, with certificates in files
// (https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener). Unknown and repeated cipher
// suites are removed with a warning.
func checkIngressTLS(r *report, at string, port *networkingv1.SidecarPort, tls *networkingv1.ServerTLSSettings) {
	if tls == nil {
		return
	}
	if p := protocolNames[strings.ToLower(port.GetProtocol())]; p != model.Protocol_PROTOCOL_HTTPS && p != model.Protocol_PROTOCOL_TLS {
		r.errorf(at, "goes with protocol HTTPS or TLS, not %q", port.GetProtocol())
	}
	for _, no := range []struct {
		field string
		set   bool
	}{
		{"subjectAltNames", len(tls.SubjectAltNames) > 0}, {"httpsRedirect", tls.HttpsRedirect}, {"credentialName", tls.CredentialName != ""},
		{"credentialNames", len(tls.CredentialNames) > 0}, {"tlsCertificates", len(tls.TlsCertificates) > 0},
	} {
		if no.set {
			r.errorf(at+"."+no.field, "is not supported by Istio in an ingress listener of a Sidecar")
		}
	}
	clients := tls.Mode == networkingv1.ServerTLSSettings_MUTUAL || tls.Mode == networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL
	switch {
	case clients, tls.Mode == networkingv1.ServerTLSSettings_SIMPLE:
		checkServerFiles(r, at, tls, clients)
	case tls.Mode == networkingv1.ServerTLSSettings_PASSTHROUGH:
		r.warnf(problem.NoEffect, at+".mode", "PASSTHROUGH does not terminate TLS: the proxy forwards connections unchanged")
	default:
		r.errorf(at+".mode", "%v is not supported in an ingress listener of a Sidecar: want SIMPLE, MUTUAL or OPTIONAL_MUTUAL", tls.Mode)
	}
	checkServerVersions(r, at, tls)
	if reversedVersions(tls) {
		r.errorf(at+".minProtocolVersion", "%v is above maxProtocolVersion %v", tls.MinProtocolVersion, tls.MaxProtocolVersion)
	}
}

// checkServerFiles validates the paths of a server's certificate files. The argument clients reports whether the mode
// verifies client certificates.
func checkServerFiles(r *report, at string, tls *networkingv1.ServerTLSSettings, clients bool) {
	if tls.ServerCertificate == "" {
		r.requiredf(at+".serverCertificate", "must not be empty with mode %v", tls.Mode)
	}
	if tls.PrivateKey == "" {
		r.requiredf(at+".privateKey", "must not be empty with mode %v", tls.Mode)
	}
	if clients && tls.CaCertificates == "" {
		r.requiredf(at+".caCertificates", "must not be empty with mode %v", tls.Mode)
	}
	if !clients && tls.CaCrl != "" {
		r.errorf(at+".caCrl", "does not go with mode SIMPLE, which asks clients for no certificate")
	}
}

// reversedVersions reports whether the minimum version of TLS is above the maximum version. Envoy refuses a listener
// with such settings.
func reversedVersions(tls *networkingv1.ServerTLSSettings) bool {
	return tls.MaxProtocolVersion != networkingv1.ServerTLSSettings_TLS_AUTO && tls.MinProtocolVersion > tls.MaxProtocolVersion
}

// checkServerVersions validates versions of TLS, and removes cipher suites that are unknown or stated twice. It does
// not compare the minimum with the maximum version, as reversedVersions does.
func checkServerVersions(r *report, at string, tls *networkingv1.ServerTLSSettings) {
	known := func(field string, v networkingv1.ServerTLSSettings_TLSProtocol) {
		if _, ok := networkingv1.ServerTLSSettings_TLSProtocol_name[int32(v)]; !ok {
			r.errorf(at+"."+field, "unknown value %d", v)
		}
	}
	known("minProtocolVersion", tls.MinProtocolVersion)
	known("maxProtocolVersion", tls.MaxProtocolVersion)
	if old := tls.MinProtocolVersion; (old == networkingv1.ServerTLSSettings_TLSV1_0 || old == networkingv1.ServerTLSSettings_TLSV1_1) &&
		len(tls.CipherSuites) == 0 {
		r.warnf(problem.Required, at+".cipherSuites", "versions of TLS below TLSV1_2 want cipher suites that are not among Envoy's own")
	}
	tls.CipherSuites = knownCiphers(r, at+".cipherSuites", tls.CipherSuites, serverCiphers)
}
