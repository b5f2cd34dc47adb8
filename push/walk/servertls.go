package walk

import (
	"fmt"
	"strings"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/store/model"
)

// serverTLS terminates TLS with a certificate other than the mesh's, and reports whether the connection continues. The
// client must speak TLS, and the proxy must hold a certificate. The client must also have a certificate if the filter
// chain requires one. In this case, the proxy must hold the certificates of authorities.
func (w *walker) serverTLS(context *tlsv3.DownstreamTlsContext) bool {
	required := context.GetRequireClientCertificate().GetValue()
	lack := w.lackOfCertificates(context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs())
	trust := context.GetCommonTlsContext().GetCombinedValidationContext().GetValidationContextSdsSecretConfig()
	if trust.GetName() != "" {
		w.step("asks for a certificate of %s, required: %v", trust.GetName(), required)
		lack = append(lack, w.lackOf(trust)...)
	}
	switch {
	case !w.SpeaksTLS():
		w.step("closes the connection: it has to begin with TLS")
		return false
	case len(lack) > 0:
		var reasons []string
		for _, one := range lack {
			w.result.Lacks = append(w.result.Lacks, one.secret)
			reasons = append(reasons, one.why)
			if w.Held.(Secrets).MayHold(one.secret) {
				w.doubt(Likely, "it is not known whether the proxy has an earlier version of %s, which it would still use", one.secret)
			}
		}
		w.step("the handshake fails: %s", strings.Join(reasons, "; "))
		return false
	case required && w.Certificate == "":
		w.step("refuses a client without a certificate")
		return false
	}
	if required || trust.GetName() != "" || context.GetCommonTlsContext().GetValidationContext() != nil {
		w.peer = w.Certificate
	}
	w.ended = true
	return true
}

// lack is a secret that the proxy does not hold, with the reason.
type lack struct{ secret, why string }

// lackOfCertificates adds a step for each certificate of a filter chain. It returns the certificates that the proxy
// lacks if it lacks all of them. As in Envoy, one certificate is enough for a handshake.
func (w *walker) lackOfCertificates(all []*tlsv3.SdsSecretConfig) (lacking []lack) {
	for _, own := range all {
		lacking = append(lacking, w.lackOf(own)...)
	}
	for _, own := range all {
		cert, missing := certificateOf(w.Held, own.GetName()), w.lackOf(own)
		switch {
		case len(missing) > 0 && len(lacking) < len(all):
			w.step("lacks %s: %s", own.GetName(), missing[0].why)
			w.doubt(Likely, "the proxy lacks %s, so clients that need this type of certificate fail", own.GetName())
		case len(missing) > 0:
		case cert == nil:
			w.step("ends TLS with %s", own.GetName())
		default:
			w.step("ends TLS with %s, the certificate of %s", own.GetName(), cert.text())
			if why := cert.lapsed(w.Time); why != "" {
				w.doubt(Likely, "certificate %s %s, so clients that verify it refuse it", own.GetName(), why)
			}
		}
	}
	if len(lacking) < len(all) {
		return nil
	}
	return lacking
}

// lackOf returns the secret that a reference names if the proxy is known to lack it. Otherwise the result is nil.
func (w *walker) lackOf(of *tlsv3.SdsSecretConfig) []lack {
	held, is := w.Held.(Secrets)
	if !is {
		return nil
	}
	name := of.GetName()
	why := held.Lack(name)
	external := of.GetSdsConfig().GetAds() != nil && strings.HasPrefix(name, model.ExternalCredential)
	if external && held.Secret(name) == nil {
		why = fmt.Sprintf("%s is for an SDS server outside the control plane, and no sds provider in extensionProviders of the mesh "+
			"configuration has this name", name)
	}
	if why == "" {
		return nil
	}
	return []lack{{name, why}}
}
